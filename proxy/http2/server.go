// Package http2 is an HTTP/2 engine: it reads frames strictly as RFC 9113 defines them, and answers requests or relays
// them to origins in HTTP/1.1. It knows nothing about rules.
//
// One goroutine reads each connection and answers the requests that the node refuses. When it has processed all bytes
// that it has read, it writes its answers together. A separate goroutine relays each request that passes, and a second
// one sends a body that arrives later.
//
// The engine converts requests to HTTP/1.1, and package http1 parses them. So it refuses the same requests, and rules
// see the same fields.
package http2

import (
	"net"

	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/proxy/http1"
)

// A Server serves connections. Its methods may be called concurrently.
type Server struct {
	conns.Server[*Conn]
	o     http1.Options
	clock http1.Clock
}

// NewServer returns a server. ReadHeaderTimeout also bounds the preface and each frame, and IdleTimeout a connection
// without requests. MaxHeaderBytes is counted like SETTINGS_MAX_HEADER_LIST_SIZE. For MaxOverhead see Overhead.
//
// Shutdown tells clients twice that their connections end (RFC 9113, 6.8): first to open no more streams, then, within
// conns.RequestWait, which streams the node has seen.
func NewServer(o http1.Options) *Server { return &Server{o: o} }

// Accept adds a connection, and returns a function that serves it until it ends.
func (s *Server) Accept(conn net.Conn, start http1.Start) (serve func()) {
	c := newConn(s, conn, start.Secure)
	c.in, c.held = conns.NewBuffer(maxFrame), start.Held
	c.w, c.since = copy(c.in, start.Read), start.Since
	done := s.Begin(c, conn, start.Ended)
	if done == nil {
		return func() {}
	}
	return func() {
		defer done()
		c.serve()
	}
}
