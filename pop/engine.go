package pop

import (
	"context"
	"errors"

	"github.com/edgelimit/edge/pop/http1"
	"github.com/edgelimit/edge/pop/proxy"
)

// An Engine serves the HTTP/1.1 of clients.
type Engine uint8

const (
	// OwnEngine is package http1.
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

// An ownServer serves the HTTP/1.1 of a Front by the engine.
type ownServer struct {
	*http1.Server
	front *proxy.Front
}

// ownEngine has the engine serve what front takes for HTTP/1.1, instead of the server behind
// front.HTTP1.
func (n *Node) ownEngine(front *proxy.Front) server {
	s := http1.NewServer(http1.Options{
		Handler:           ownHandler{n},
		ReadHeaderTimeout: n.o.ReadHeaderTimeout,
		IdleTimeout:       n.o.IdleTimeout,
		BodyTimeout:       n.o.BodyTimeout,
		BodyRate:          max(0, n.o.BodyRate),
		MaxHeaderBytes:    n.o.MaxHeaderBytes,
		Tunnels:           n.upgraded,
		Logger:            n.o.Logger,
	})
	front.Own = s.ServeConn
	n.proxy.EndIdle(s.EndIdle)
	return &ownServer{s, front}
}

// Shutdown closes the listener, and waits for requests that are under way: see
// [http1.Server.Shutdown].
func (s *ownServer) Shutdown(ctx context.Context) error {
	return errors.Join(s.front.Close(), s.Server.Shutdown(ctx))
}

// Close closes all connections at once.
func (s *ownServer) Close() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.Shutdown(ctx)
	return nil
}

// An ownHandler passes the requests of the engine to the proxy.
type ownHandler struct{ n *Node }

func (h ownHandler) ServeHTTP1(c *http1.Conn, r *http1.Request) {
	if h.n.leaving.begun.Load() {
		h.n.leaving.asked.Store(true)
	}
	if r.Upgrade {
		h.n.upgrading.add(1)
		defer h.n.upgrading.add(-1)
	}
	h.n.proxy.ServeHTTP1(c, r)
}

func (h ownHandler) Malformed(c *http1.Conn, err *http1.Error) { h.n.proxy.Malformed(c, err) }
