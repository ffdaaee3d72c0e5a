package pop

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"github.com/edgelimit/edge/pop/http1"
	"github.com/edgelimit/edge/pop/http2"
	"github.com/edgelimit/edge/pop/proxy"
	"github.com/edgelimit/edge/pop/spop"
)

// An Engine serves the HTTP of clients.
type Engine uint8

const (
	// OwnEngine consists of the packages http1 and http2.
	OwnEngine Engine = iota

	// NetHTTP consists of the server and the reverse proxy of net/http.
	NetHTTP
)

// String returns the engine as it is written in settings.
func (e Engine) String() string {
	if e == NetHTTP {
		return "net/http"
	}
	return "own"
}

// ParseEngine parses own or net/http.
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

// An ownServer serves a Front with OwnEngine.
type ownServer struct {
	http1 *http1.Server
	http2 *http2.Server
	front *proxy.Front
}

// An httpHandler answers requests of both engines.
type httpHandler interface {
	http1.Handler
	http2.Handler
}

// serveOwnLocked serves clients that connect to ln with OwnEngine. mu is held.
func (n *Node) serveOwnLocked(ln net.Listener, handler httpHandler) {
	limits := http1.Limits{
		ReadHeaderTimeout: n.o.ReadHeaderTimeout,
		IdleTimeout:       n.o.IdleTimeout,
		BodyTimeout:       n.o.BodyTimeout,
		BodyRate:          max(0, n.o.BodyRate),
		MaxHeaderBytes:    n.o.MaxHeaderBytes,
	}
	one := http1.NewServer(http1.Options{Handler: handler, Limits: limits, Tunnels: n.upgraded, Logger: n.o.Logger})
	two := http2.NewServer(http2.Options{
		Handler: handler, Limits: limits, MaxStreams: n.o.HTTP2Streams, MaxOverhead: n.o.HTTP2Overhead, Logger: n.o.Logger,
	})
	n.proxy.EndIdle(one.EndIdle)
	n.proxy.EndIdle(two.EndIdle)
	front := n.proxy.Front(ln, n.o.ReadHeaderTimeout, one.ServeConn, two.ServeConn)
	n.servers = append(n.servers, &ownServer{one, two, front})
	n.running.Go(front.Run)
}

// Leave asks clients to reconnect elsewhere.
func (s *ownServer) Leave() {
	s.http1.Leave()
	s.http2.Leave()
}

// Shutdown closes the listener and waits for requests in flight: see [proxy.Front.Stop],
// [http1.Server.Shutdown] and [http2.Server.Shutdown].
func (s *ownServer) Shutdown(ctx context.Context) error {
	s.Leave()
	closed, ended := s.front.Stop(ctx), make(chan error, 1)
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

// A netServer is a server of net/http.
type netServer struct {
	*http.Server
	front  *proxy.Front  // nil if it serves operators
	served chan struct{} // closed when it no longer accepts connections
}

// Shutdown closes the listener and waits for requests in flight, including those on connections that the Front
// has just accepted.
func (s *netServer) Shutdown(ctx context.Context) error {
	closed := s.front.Stop(ctx)
	<-s.served // it has taken all connections of the Front, or the Front has closed them
	return errors.Join(closed, s.Server.Shutdown(ctx))
}

// serveClientsLocked starts servers for clients that connect to ln. mu is held.
func (n *Node) serveClientsLocked(ln net.Listener) { n.serveHTTPLocked(n.withProxyProtocol(ln)) }

// serveTLSLocked starts servers for clients that connect to ln with TLS. mu is held.
func (n *Node) serveTLSLocked(ln net.Listener) {
	n.serveHTTPLocked(tls.NewListener(n.withProxyProtocol(ln), n.files.tls()))
}

func (n *Node) serveHTTPLocked(ln net.Listener) {
	if n.o.HTTPEngine == OwnEngine {
		n.serveOwnLocked(ln, ownHandler{n})
		return
	}
	front := n.proxy.Front(ln, n.o.ReadHeaderTimeout, nil, nil)
	defer n.running.Go(front.Run)
	clients := n.lameDuck.follow(n.upgrading.follow(n.proxy))
	var h1, h2 http.Protocols
	h1.SetHTTP1(true)
	h2.SetUnencryptedHTTP2(true)
	for ln, protocols := range map[net.Listener]http.Protocols{front.HTTP1: h1, front.HTTP2: h2} {
		n.servers = append(n.servers, n.serveLocked(ln, front, clients, protocols))
	}
}

// serveLocked starts a server for ln. front is nil unless it serves clients. mu is held.
func (n *Node) serveLocked(ln net.Listener, front *proxy.Front, handler http.Handler, protocols http.Protocols) *netServer {
	s := &netServer{Server: n.o.server(handler, protocols, n.upgraded), front: front, served: make(chan struct{})}
	n.running.Go(func() {
		_ = s.Serve(ln) // until it is closed
		close(s.served)
	})
	return s
}

// An ownHandler passes the requests of the engines to the proxy.
type ownHandler struct{ n *Node }

func (h ownHandler) ServeHTTP1(c *http1.Conn, r *http1.Request) {
	h.n.lameDuck.noteRequest()
	if r.Upgrade {
		h.n.upgrading.add(1)
		defer h.n.upgrading.add(-1)
	}
	h.n.proxy.ServeHTTP1(c, r)
}

func (h ownHandler) Malformed(c *http1.Conn, err *http1.Error) { h.n.proxy.Malformed(c, err) }

func (h ownHandler) ServeHTTP2(s *http2.Stream, r *http1.Request) http2.Passing {
	h.n.lameDuck.noteRequest()
	return h.n.proxy.ServeHTTP2(s, r)
}

func (h ownHandler) MalformedHTTP2(peer netip.AddrPort) (fields []byte, end bool) {
	return h.n.proxy.MalformedHTTP2(peer)
}

// A checkHandler passes queries of other proxies to the check endpoint.
type checkHandler struct {
	*proxy.Check
	n *Node
}

func (h checkHandler) ServeHTTP1(c *http1.Conn, r *http1.Request) {
	h.n.lameDuck.noteRequest()
	h.Check.ServeHTTP1(c, r)
}

func (h checkHandler) ServeHTTP2(s *http2.Stream, r *http1.Request) http2.Passing {
	h.n.lameDuck.noteRequest()
	return h.Check.ServeHTTP2(s, r)
}

// serveAskedLocked starts a server for other proxies that connect to ln. mu is held.
func (n *Node) serveAskedLocked(ln net.Listener) {
	_, local := ln.Addr().(*net.UnixAddr)
	check := n.proxy.NewCheck(proxy.CheckOptions{Local: local, DenyStatus: n.o.CheckDenyStatus})
	n.serveOwnLocked(ln, checkHandler{check, n})
}

// serveHAProxyLocked starts a SPOP agent for ln. mu is held.
func (n *Node) serveHAProxyLocked(ln net.Listener) {
	agent := n.proxy.NewAgent()
	server := spop.NewServer(spop.Options{
		Handle: func(m *spop.Message, a *spop.Actions) {
			n.lameDuck.noteRequest()
			agent.Handle(m, a)
		},
		Refuse:       agent.RefusePeer,
		HelloTimeout: n.o.ReadHeaderTimeout,
		Logger:       n.o.Logger,
	})
	n.servers = append(n.servers, server)
	n.running.Go(func() { _ = server.Serve(ln) }) // until it is closed
}

// ListenAt listens at addr, HOST:PORT or unix:PATH. The permissions of a Unix socket's directory decide who may
// connect. ListenAt replaces the socket of a process that was killed.
func ListenAt(addr string) (net.Listener, error) {
	path, unix := strings.CutPrefix(addr, "unix:")
	if !unix {
		return net.Listen("tcp", addr)
	}
	if conn, err := net.Dial("unix", path); err == nil {
		_ = conn.Close()
	} else if info, errStat := os.Stat(path); errStat == nil && info.Mode().Type() != os.ModeSocket {
		return nil, fmt.Errorf("%s is not a socket; choose another path", path)
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		_ = os.Remove(path)
	}
	ln, err := net.Listen("unix", path)
	if err == nil {
		err = os.Chmod(path, 0o666)
	}
	return ln, err
}
