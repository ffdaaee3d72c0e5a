package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/proxy/http1"
	"github.com/edgelimit/edge/proxy/http2"
	"github.com/edgelimit/edge/proxy/http3"
)

// A Front accepts client connections, detects their protocols, and hands each to the engine of its protocol.
type Front struct {
	p            *Proxy
	ln           net.Listener
	timeout      time.Duration // for the TLS handshake and the beginning of the first request
	http1, http2 engine
	greeting     conns.Set[net.Conn] // connections whose protocol is not known yet
	ran          chan struct{}       // closed when Run has returned
}

// An engine serves connections of one version of HTTP.
type engine interface {
	Accept(net.Conn, http1.Start) (serve func())
	AskToLeave()
	Shutdown(context.Context) error
}

// NewFront returns a Front for the connections of ln, which may use TLS. It starts with Run. The Handler of o is p or a
// [Check].
func (p *Proxy) NewFront(ln net.Listener, o http1.Options) *Front {
	o.Tunnels = &p.tunnels
	return &Front{
		p: p, ln: ln, timeout: o.ReadHeaderTimeout, ran: make(chan struct{}),
		http1: http1.NewServer(o), http2: http2.NewServer(o),
	}
}

// NewHTTP3 returns a server of HTTP/3 for the packets of socket. Call it before Fronts run: they announce it.
func (p *Proxy) NewHTTP3(socket net.PacketConn, secure *tls.Config, o http1.Options) (*http3.Server, error) {
	p.altSvc = fmt.Sprintf("Alt-Svc: h3=\":%d\"; ma=86400\r\n", socket.LocalAddr().(*net.UDPAddr).Port)
	return http3.NewServer(socket, http3.Options{
		Options: o, TLS: secure,
		Client: p.clientAt, Add: p.addConnection,
	})
}

// Run accepts connections until Shutdown. It returns when each connection was closed or handed to its engine.
func (f *Front) Run() {
	defer close(f.ran)
	for {
		c, err := f.ln.Accept()
		if err != nil {
			break
		}
		c = http1.NewSocket(c)
		if f.greeting.Add(c) {
			go func() { f.open(c)() }()
		} else {
			_ = c.Close()
		}
	}
	<-f.greeting.Empty()
}

// AskToLeave makes every later response ask its client to close the connection and open a new one.
func (f *Front) AskToLeave() {
	f.http1.AskToLeave()
	f.http2.AskToLeave()
}

// Shutdown closes the listener and waits for requests in flight: see [conns.Server.Shutdown]. It waits for
// conns.RequestWait for clients that have sent nothing yet.
func (f *Front) Shutdown(ctx context.Context) error {
	f.AskToLeave()
	closed := f.ln.Close()
	select {
	case <-f.ran:
	case <-time.After(conns.RequestWait):
	case <-ctx.Done():
	}
	f.greeting.Close(func(c net.Conn) { _ = c.Close() })
	ended := make(chan error, 1)
	go func() { ended <- f.http2.Shutdown(ctx) }()
	return errors.Join(closed, f.http1.Shutdown(ctx), <-ended)
}

// open detects the protocol of c, and returns a function that serves c with the engine of that protocol or closes it.
func (f *Front) open(c net.Conn) (serve func()) {
	defer f.greeting.Remove(c)
	defer conns.LogPanic(f.p.o.Logger, "panic while opening a connection")
	start := http1.Start{Since: time.Now(), Ended: func() {}}
	serve = func() {
		start.Ended()
		_ = c.Close()
	}
	peer := conns.Peer(c) // may read a PROXY header
	start.Held, start.Ended = f.p.addConnection(c, peer)
	var to engine
	if secure, ok := c.(*tls.Conn); ok {
		to = f.handshake(secure, peer, &start)
	} else {
		_ = c.SetReadDeadline(start.Since.Add(f.timeout))
		start.Read = sniff(c)
		to = f.engine(peer, start.Read)
	}
	if to == nil {
		return serve
	}
	_ = c.SetDeadline(time.Time{})
	return to.Accept(c, start)
}

// engine returns the engine for a connection without TLS that begins with first, or nil if it must be closed.
func (f *Front) engine(peer netip.Addr, first []byte) engine {
	if len(first) == 0 {
		return nil
	}
	f.p.environment.open(peer, first)
	switch {
	case isForeign(first):
		f.p.malformed(peer, f.p.o.Now())
		return nil
	case bytes.HasPrefix(first, []byte(preface)):
		return f.http2
	}
	return f.http1
}

// handshake does the TLS handshake and returns the engine for c, or nil if the handshake failed.
func (f *Front) handshake(c *tls.Conn, peer netip.Addr, start *http1.Start) engine {
	_ = c.SetDeadline(start.Since.Add(f.timeout))
	greeting, _ := c.NetConn().(*conns.Greeting)
	greeting.Charge(start.Held)
	defer greeting.Charge(nil)
	err := c.HandshakeContext(context.Background())
	if err == nil {
		f.p.environment.open(peer, nil)
		start.Since, start.Secure = time.Now(), true
		if c.ConnectionState().NegotiatedProtocol == "h2" {
			return f.http2
		}
		return f.http1
	}
	f.p.o.Logger.Debug("TLS handshake failed", "err", err)
	var notTLS tls.RecordHeaderError
	if errors.As(err, &notTLS) && notTLS.Conn != nil {
		f.p.environment.open(peer, notTLS.RecordHeader[:])
		switch string(notTLS.RecordHeader[:]) {
		case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
			bad := &http1.Error{Status: http.StatusBadRequest, Text: "Client sent an HTTP request to an HTTPS server."}
			fields, status, body, _ := f.p.Malformed(peer, bad)
			if status != 0 {
				_, _ = fmt.Fprintf(notTLS.Conn, "HTTP/1.1 %d %s\r\n%sContent-Length: %d\r\nConnection: close\r\n\r\n%s",
					status, http.StatusText(status), fields, len(body), body)
			}
		}
	}
	return nil
}

// isForeign reports whether first begins with a request line of another protocol, such as RTSP or SIP, or
// with a broken HTTP/2 preface: three words, the second not a path and the last not a version of HTTP.
// Such a client would not understand an HTTP/1 answer.
func isForeign(first []byte) bool {
	line, _, whole := strings.Cut(string(first), "\r\n")
	words := strings.Split(line, " ")
	return whole && len(words) == 3 && words[0] != "" && words[1] != "" && words[1][0] != '/' && words[2] != "" &&
		!strings.HasPrefix(strings.ToUpper(words[2]), "HTTP/")
}

// preface begins every HTTP/2 connection, and no HTTP/1 connection.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// sniff reads until it knows whether the client speaks HTTP/2, or the client has left.
func sniff(c net.Conn) []byte {
	read, err := http1.ReadNew(c)
	for err == nil && len(read) < len(preface) && strings.HasPrefix(preface, string(read)) {
		var more []byte
		more, err = http1.ReadNew(c)
		read = append(read, more...)
	}
	return read
}
