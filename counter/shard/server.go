// Package shard implements an in-process counter shard: a small server of memcached's text
// protocol, so that a PoP can run and be tested without memcached.
//
// # Compatibility
//
// It has the commands that nodes and operators send: get, gets, set, add, cas, incr, delete, flush_all, stats, version
// and quit. As long as nothing is evicted, it answers them like memcached 1.6.18, byte for byte; the package's tests
// compare the two.
//
// # Differences
//
//   - All other commands get ERROR. There is no binary protocol and no UDP. stats has general
//     figures only.
//   - Time is exact. Memcached's clock ticks once a second, so an item with a time to live of
//     2 s may expire there after little more than 1 s.
//   - Numbers are decimal digits, for times with or without a sign, and must fit. Memcached
//     reads them as C does. In both, a value that incr made shorter is padded with spaces.
//   - A line has at most 16 KiB, and a value 128 KiB. A longer line ends the connection.
//   - flush_all and delete accept no time.
//   - Which items are evicted: see Bounds.
//
// # Bounds
//
// Items and their index take at most [Options.MaxBytes]. At the bound, approximately the least recently used items are
// evicted: see log.go. Memory grows as the store fills, and only flush_all releases it. Each connection takes up to
// about 50 KiB, and twice the size of a long value while it receives that. No lock is held while waiting for a client.
package shard

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Options configures a Server. The zero value is usable.
type Options struct {
	// MaxBytes is the maximum memory of all items, including overhead, at least 64 KiB.
	// If zero, 64 MiB, enough for 645,000 counters.
	MaxBytes int64

	// MaxConns is the maximum number of connections. Further ones are answered
	// ERROR Too many open connections and closed. If zero, 1024.
	MaxConns int

	// Registerer gets the server's metrics. If nil, they are not registered. Several servers
	// need different labels: see [prometheus.WrapRegistererWith].
	Registerer prometheus.Registerer
}

// A Server holds items in memory and serves them to memcached clients. It is safe for
// concurrent use.
type Server struct {
	options Options
	store   *store
	start   time.Time

	conns, accepted, rejected, flushes atomic.Int64
}

// New returns a Server without items. It starts no goroutine. For use in a synctest bubble, it
// must be called in the bubble, because it starts the clock.
func New(o Options) *Server {
	o.MaxBytes = cmp.Or(o.MaxBytes, 64<<20)
	o.MaxConns = cmp.Or(o.MaxConns, 1024)
	now := time.Now()
	s := &Server{options: o, store: newStore(o.MaxBytes, now), start: now}
	s.register(o.Registerer)
	return s
}

// acceptPause is how long Serve waits for connections to close when the process is out of file descriptors.
const acceptPause = 50 * time.Millisecond

// Serve serves the connections of ln, each in a goroutine, until ctx is done or ln is closed, and then returns nil. It
// closes ln and the connections, and waits for its goroutines. It keeps the items.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		<-ctx.Done()
		ln.Close()
	})
	for {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			wg.Go(func() { s.ServeConn(ctx, nc) })
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return nil
		case errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE):
			select {
			case <-ctx.Done():
			case <-time.After(acceptPause):
			}
		default:
			return fmt.Errorf("shard: accepting connections: %w", err)
		}
	}
}

// ServeConn serves one connection until it ends or ctx is done, and closes it.
func (s *Server) ServeConn(ctx context.Context, nc net.Conn) {
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { nc.Close() })()
	defer s.conns.Add(-1)
	if s.conns.Add(1) > int64(s.options.MaxConns) {
		s.rejected.Add(1)
		if nc.SetWriteDeadline(time.Now().Add(time.Second)) == nil {
			_, _ = io.WriteString(nc, "ERROR Too many open connections\r\n")
		}
		return
	}
	s.accepted.Add(1)
	c := &conn{Server: s, net: nc}
	c.in = bufio.NewReaderSize(c, maxLine)
	c.serve()
}
