package pop

import (
	"context"
	"errors"
	"net/netip"

	"github.com/edgelimit/edge/pop/http1"
	"github.com/edgelimit/edge/pop/http2"
	"github.com/edgelimit/edge/pop/proxy"
)

// An Engine serves the HTTP of clients.
type Engine uint8

const (
	// OwnEngine is the packages http1 and http2.
	OwnEngine Engine = iota

	// NetHTTP is the server and the reverse proxy of net/http.
	NetHTTP
)

// String returns the engine as settings write it.
func (e Engine) String() string {
	if e == NetHTTP {
		return "net/http"
	}
	return "own"
}

// ParseEngine reads own or net/http.
func ParseEngine(text string) (Engine, error) {
	for _, e := range []Engine{OwnEngine, NetHTTP} {
		if e.String() == text {
			return e, nil
		}
	}
	return 0, errors.New("must be own or net/http")
}

// A server serves clients.
type server interface {
	Shutdown(context.Context) error
	Close() error
}

// An ownServer serves a Front by the engine.
type ownServer struct {
	http1 *http1.Server
	http2 *http2.Server
	front *proxy.Front
}

// ownEngine has the engine serve what front accepts, instead of the servers behind it.
func (n *Node) ownEngine(front *proxy.Front) server {
	one := http1.NewServer(http1.Options{
		Handler:           ownHandler{n},
		ReadHeaderTimeout: n.o.ReadHeaderTimeout,
		IdleTimeout:       n.o.IdleTimeout,
		BodyTimeout:       n.o.BodyTimeout,
		BodyRate:          max(0, n.o.BodyRate),
		MaxHeaderBytes:    n.o.MaxHeaderBytes,
		Tunnels:           n.upgraded,
		Logger:            n.o.Logger,
	})
	two := http2.NewServer(http2.Options{
		Handler:           ownHandler{n},
		ReadHeaderTimeout: n.o.ReadHeaderTimeout,
		IdleTimeout:       n.o.IdleTimeout,
		BodyTimeout:       n.o.BodyTimeout,
		BodyRate:          max(0, n.o.BodyRate),
		MaxHeaderBytes:    n.o.MaxHeaderBytes,
		MaxStreams:        n.o.HTTP2Streams,
		MaxOverhead:       n.o.HTTP2Overhead,
		Logger:            n.o.Logger,
	})
	front.OwnHTTP1, front.OwnHTTP2 = one.ServeConn, two.ServeConn
	n.proxy.EndIdle(one.EndIdle)
	n.proxy.EndIdle(two.EndIdle)
	return &ownServer{one, two, front}
}

// Leave asks clients to go elsewhere.
func (s *ownServer) Leave() {
	s.http1.Leave()
	s.http2.Leave()
}

// Shutdown closes the listener, and waits for requests that are under way: see
// [http1.Server.Shutdown] and [http2.Server.Shutdown].
func (s *ownServer) Shutdown(ctx context.Context) error {
	closed, ended := s.front.Close(), make(chan error, 1)
	go func() { ended <- s.http2.Shutdown(ctx) }()
	return errors.Join(closed, s.http1.Shutdown(ctx), <-ended)
}

// Close closes all connections at once.
func (s *ownServer) Close() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.Shutdown(ctx)
	return nil
}

// An ownHandler passes the requests of the engines to the proxy.
type ownHandler struct{ n *Node }

func (h ownHandler) ServeHTTP1(c *http1.Conn, r *http1.Request) {
	h.n.leaving.noteRequest()
	if r.Upgrade {
		h.n.upgrading.add(1)
		defer h.n.upgrading.add(-1)
	}
	h.n.proxy.ServeHTTP1(c, r)
}

func (h ownHandler) Malformed(c *http1.Conn, err *http1.Error) { h.n.proxy.Malformed(c, err) }

func (h ownHandler) ServeHTTP2(s *http2.Stream, r *http1.Request) http2.Passing {
	h.n.leaving.noteRequest()
	return h.n.proxy.ServeHTTP2(s, r)
}

func (h ownHandler) MalformedHTTP2(peer netip.AddrPort) (fields []byte, end bool) {
	return h.n.proxy.MalformedHTTP2(peer)
}
