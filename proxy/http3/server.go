// Package http3 is an HTTP/3 engine on the QUIC of quic-go: it reads frames as RFC 9114 defines them, and answers
// requests or relays them to origins in HTTP/1.1. It knows nothing about rules.
//
// One goroutine accepts the streams of each connection, and another one serves each stream. http2.Head converts fields,
// so the engine refuses the same requests as HTTP/2, and rules see the same fields. The engine does not use quic-go's
// server for net/http: that resets malformed requests before the node can count them, waits for a header without a
// deadline, and sorts fields. Its RawServerConn cannot send GOAWAY, and does not count useless frames.
package http3

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"

	"github.com/quic-go/quic-go"

	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/proxy/http1"
)

// Options configures a Server. All are required.
type Options struct {
	// Limits.ReadHeaderTimeout also bounds the handshake, and IdleTimeout a connection without requests. For MaxOverhead
	// see [http2.Overhead].
	http1.Options

	// TLS is the configuration of TLS.
	TLS *tls.Config

	// Client returns the client at an address. It is invalid if only the bounds for all clients apply to it.
	Client func(peer netip.Addr) netip.Addr

	// Add counts a connection. It returns the holder of the connection's memory, and a function to call when the
	// connection has ended.
	Add func(conn io.Closer, peer netip.Addr) (held *conns.Holder, ended func())
}

// Receive windows. They bound the memory for data that arrives out of order or is not read yet, and grow to those of
// HTTP/2 while an origin accepts a body quickly.
const (
	firstStreamWindow = 64 << 10
	firstConnWindow   = 128 << 10
	maxStreamWindow   = 256 << 10
	maxConnWindow     = 1 << 20
)

// maxUniStreams is how many unidirectional streams, which carry no requests, a client may open. It needs three.
const maxUniStreams = 8

// A Server serves connections. Its methods may be called concurrently.
type Server struct {
	conns.Server[*Conn]
	o         Options
	clock     http1.Clock
	transport quic.Transport
	ln        *quic.Listener

	mu          sync.Mutex // guards the fields below
	handshaking int        // connections whose handshake has not ended
	handshakes  map[netip.Addr]int
}

// NewServer returns a server for the packets of socket, which Shutdown closes. It starts with Run.
func NewServer(socket net.PacketConn, o Options) (*Server, error) {
	s := &Server{o: o, handshakes: map[netip.Addr]int{}}
	s.transport = quic.Transport{Conn: socket, VerifySourceAddress: s.isBusy, ConnContext: s.admit}
	secure := o.TLS.Clone()
	secure.NextProtos = []string{"h3"}
	var err error
	s.ln, err = s.transport.Listen(secure, &quic.Config{
		HandshakeIdleTimeout:           o.ReadHeaderTimeout / 2, // the whole handshake may take twice that
		MaxIdleTimeout:                 o.IdleTimeout,
		InitialStreamReceiveWindow:     firstStreamWindow,
		InitialConnectionReceiveWindow: firstConnWindow,
		MaxStreamReceiveWindow:         maxStreamWindow,
		MaxConnectionReceiveWindow:     maxConnWindow,
		MaxIncomingStreams:             int64(o.MaxStreams),
		MaxIncomingUniStreams:          maxUniStreams,
		RequireStreamCreditRelease:     true, // a client must not reset streams faster than their requests end
	})
	return s, err
}

// Run accepts connections until Shutdown.
func (s *Server) Run() {
	for {
		qc, err := s.ln.Accept(context.Background())
		if err != nil {
			return
		}
		s.open(qc)
	}
}

// Shutdown closes the socket when all requests are answered: see [conns.Server.Shutdown]. It first asks clients to open
// no more streams. After conns.RequestWait, it tells them which stream was the last.
func (s *Server) Shutdown(ctx context.Context) error {
	closed := s.ln.Close()
	err := s.Server.Shutdown(ctx)
	return errors.Join(closed, err, s.transport.Close(), s.transport.Conn.Close())
}

// Bounds of the number of connections whose handshake has not ended. Such connections can be refused, but not closed.
const (
	// maxUnverified is how many there may be before clients must show that they receive packets at their address, which
	// takes a round trip. Without this proof, they could forge addresses.
	maxUnverified = 64

	// maxHandshakes is how many there may be, and maxOfClient how many of a client that has verified its address.
	maxHandshakes = 4096
	maxOfClient   = 64
)

// isBusy reports whether clients must verify their address after a Retry (RFC 9000, 8.1.2).
func (s *Server) isBusy(net.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handshaking >= maxUnverified
}

var errBusy = errors.New("http3: too many handshakes")

// handshakeEnd is the key of the function in a connection's context to call when the handshake has ended.
type handshakeEnd struct{}

// admit counts a handshake until it has ended or ctx is done, or refuses it.
func (s *Server) admit(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	var client netip.Addr
	if info.AddrVerified {
		client = s.o.Client(conns.AddrOf(info.RemoteAddr.(*net.UDPAddr).AddrPort()))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handshaking >= maxHandshakes || client.IsValid() && s.handshakes[client] >= maxOfClient {
		return nil, errBusy
	}
	s.handshaking++
	s.handshakes[client]++
	ended := sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.handshaking--
		if s.handshakes[client]--; s.handshakes[client] == 0 {
			delete(s.handshakes, client)
		}
	})
	stop := context.AfterFunc(ctx, ended)
	return context.WithValue(ctx, handshakeEnd{}, func() { stop(); ended() }), nil
}
