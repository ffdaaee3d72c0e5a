package pop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/edgelimit/edge/internal/lograte"
	"github.com/edgelimit/edge/operate"
	"github.com/edgelimit/edge/operate/page"
	"github.com/edgelimit/edge/proxy/conns"
)

// A listener is a socket that Start opens, with the function that serves it.
type listener struct {
	net.Listener
	name, addr string
	serve      func(net.Listener)
}

// listen opens all listeners or none.
func (n *Node) listen() (open []listener, err error) {
	for _, l := range []listener{
		{name: "http3", addr: n.o.HTTP3Listen, serve: n.serveHTTP3Locked}, // first: answers over TLS announce it
		{name: "http", addr: n.o.Listen, serve: n.serveClientsLocked},
		{name: "https", addr: n.o.TLSListen, serve: n.serveTLSLocked},
		{name: "metrics", addr: n.o.MetricsListen, serve: n.serveMetricsLocked},
		{name: "admin", addr: n.o.AdminListen, serve: n.serveAdminLocked},
		{name: "shard", addr: n.o.ShardListen, serve: n.serveShardLocked},
		{name: "check", addr: n.o.CheckListen, serve: n.serveAskedLocked},
		{name: "spop", addr: n.o.SPOPListen, serve: n.serveHAProxyLocked},
	} {
		ln := n.o.Listeners[l.name]
		if ln == nil && l.addr == "" {
			continue
		}
		switch {
		case l.name == "http3":
			var conn net.PacketConn
			conn, err = net.ListenPacket("udp", l.addr)
			ln = socket{conn}
		case ln == nil:
			ln, err = ListenAt(l.addr, n.o.SocketGroup)
		}
		if err != nil {
			closeAll(open)
			return nil, fmt.Errorf("pop: listening for %s: %w", l.name, err)
		}
		l.Listener = ln
		if l.name != "http3" {
			l.Listener = newRetryListener(ln, n.o.Logger, n.proxy.MakeRoom)
		}
		open = append(open, l)
	}
	return open, nil
}

func closeAll(listeners []listener) {
	for _, l := range listeners {
		_ = l.Close()
	}
}

// serveShardLocked serves the embedded shard to other nodes that connect to ln. mu is held.
func (n *Node) serveShardLocked(ln net.Listener) {
	n.running.Go(func() { _ = n.inner.Serve(n.upgraded, ln) }) // until its context ends
}

// metricsTime is the maximum time for an answer of the metrics listener.
const metricsTime = 30 * time.Second

// serveMetricsLocked starts the server for metrics and health checks. mu is held.
func (n *Node) serveMetricsLocked(ln net.Listener) {
	both := new(http.Protocols)
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Handler:                      operate.Handler(n.Gatherer(), n.readiness),
		Protocols:                    both,
		ReadTimeout:                  n.o.ReadHeaderTimeout, // no request needs a body
		WriteTimeout:                 metricsTime,
		IdleTimeout:                  n.o.IdleTimeout,
		MaxHeaderBytes:               n.o.MaxHeaderBytes,
		DisableGeneralOptionsHandler: true,
		HTTP2:                        &http.HTTP2Config{SendPingTimeout: n.o.IdleTimeout, PingTimeout: 15 * time.Second, WriteByteTimeout: n.o.BodyTimeout},
		ErrorLog:                     slog.NewLogLogger(n.o.Logger.Handler(), slog.LevelDebug),
	}
	n.serveOperatorsLocked("metrics", ln, server, func() {})
}

// serveAdminLocked starts the server for operators. mu is held.
func (n *Node) serveAdminLocked(ln net.Listener) {
	host, _, _ := net.SplitHostPort(n.o.AdminListen)
	at, _ := ln.Addr().(*net.TCPAddr)
	page := page.New(n.operator, n.operator.History, n.o.Now)
	api := operate.NewAPI(operate.Options{
		Operations: n.operator,
		Page:       page,
		Events:     http.HandlerFunc(page.Events),
		Tokens:     &n.files.tokens,
		Host:       host,
		Open:       at != nil && at.IP.IsLoopback(),
		PProf:      n.o.AdminPProf,
		Logger:     n.o.Logger,
		Registerer: n.registry,
	})
	remove := func() {}
	if n.o.AdminTokens != "" {
		operate.RemoveLocal(ln.Addr().String())
	} else {
		var err error
		if remove, err = n.files.tokens.WriteLocal(ln.Addr().String()); err != nil {
			n.o.Logger.Warn("cannot write the token for commands on this machine, so nothing can be changed through the admin listener: set admin-tokens", "err", err)
		}
		if at == nil || !at.IP.IsLoopback() {
			n.o.Logger.Warn("the admin listener is not on a loopback address, and only this machine knows its token: set admin-tokens", "admin", ln.Addr())
		}
	}
	server := api.Server()
	server.BaseContext = func(net.Listener) context.Context { return n.counting } // ends the streams of the page
	n.serveOperatorsLocked("admin", ln, server, remove)
}

// operatorConnections is the maximum number of connections of each listener for operators.
const operatorConnections = 256

// serveOperatorsLocked starts server on ln, the operators' listener called name. It bounds the connections of ln, and
// shares them among addresses. The server is among the last parts of the node to stop; stopped is called when it has.
// mu is held.
func (n *Node) serveOperatorsLocked(name string, ln net.Listener, server *http.Server, stopped func()) {
	closed := promauto.With(n.registry).NewCounter(prometheus.CounterOpts{
		Name:        "edge_operator_connections_closed_total",
		Help:        "Connections of operators closed to make room for those of other addresses, by listener.",
		ConstLabels: prometheus.Labels{"listener": name},
	})
	ln = conns.NewBudget(operatorConnections, 0, func(bool) { closed.Inc() }).Share(ln)
	context.AfterFunc(n.upgraded, func() { _ = server.Close() })
	n.running.Go(func() {
		_ = server.Serve(ln) // until it is closed
		stopped()
	})
}

// acceptPause is the pause before accept is retried.
const acceptPause = 50 * time.Millisecond

// roomPause is the pause if a connection is being closed to make room.
const roomPause = 5 * time.Millisecond

// A retryListener retries if it cannot accept a connection. If the process is out of file descriptors, it makes room. It
// logs such errors, because clients wait meanwhile.
type retryListener struct {
	net.Listener
	logger   *slog.Logger
	makeRoom func()
	failed   lograte.Limiter
}

func newRetryListener(ln net.Listener, logger *slog.Logger, makeRoom func()) *retryListener {
	return &retryListener{ln, logger, makeRoom, lograte.Limiter{Every: 10 * time.Second}}
}

// Accept returns an error only if l is closed.
func (l *retryListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return conn, err
		}
		l.failed.Log(l.logger, slog.LevelError, time.Now(), "cannot accept connections; retrying", "addr", l.Addr(), "err", err)
		pause := acceptPause
		if errors.Is(err, syscall.EMFILE) {
			l.makeRoom()
			pause = roomPause
		}
		time.Sleep(pause)
	}
}
