// Package shard implements an in-process counter shard: a server of memcached's
// text protocol, so that a PoP can run and be tested without memcached.
//
// # Compatibility
//
// It behaves like memcached 1.6.18, byte for byte, for get, gets, set, add,
// replace, cas, incr, decr, touch, delete, flush_all, stats, version, verbosity
// and quit, as clients send them. The package's tests compare the two.
//
// # Differences
//
//   - Time is exact. Memcached's clock ticks once a second, so that there an
//     item with a time-to-live of 2 s may be gone after little more than 1 s.
//     Here it lives for 2 s.
//   - All other commands, such as append, gat and the meta ones, get ERROR. There
//     is no UDP, and a connection that begins like the binary protocol is closed.
//     stats has general figures only, and no reset.
//   - Numbers are decimal digits, for times with or without a sign, and must fit.
//     Memcached reads them as C does: after white space, up to white space or
//     a NUL, and with excess bits cut off. In both, a value that incr or decr
//     made shorter is padded with spaces.
//   - A line is at most 1 MiB long. A longer one is refused with CLIENT_ERROR line
//     too long, and the connection is closed. A NUL does not end a line.
//   - A get with a key that is too long returns the items before it, and then the
//     error. A browser's request, which has HTTP/ in its last word, closes the
//     connection after the replies to earlier commands, not without them.
//   - flush_all accepts no delay but 0, and delete accepts none.
//   - stats also has the name of the instance, which no other one has, and does not
//     count items that expired or were evicted without being read.
//   - Any item may be the one to be evicted, since there are no slab classes.
//
// # Bounds
//
// Items and their index take at most [Options.MaxBytes], which memory use
// approaches from below as the store fills and then keeps. A connection takes
// up to about 100 KiB beside it, and a few times the size of a long line or value
// while it is on its way in or out. Nothing is locked while the peer
// is waited for.
package shard

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Options configures a Server. The zero value is usable.
type Options struct {
	// MaxBytes bounds the memory of all items with all overhead.
	// If zero, 64 MiB; at least 64 KiB. Beyond it the least recently used
	// items are evicted. 64 MiB hold 762,000 counters with keys of up to 19
	// bytes.
	MaxBytes int64

	// MaxItemSize bounds the size of an item: key, value, and 59 bytes or, with
	// flags, 63. If zero, 1 MiB, but not more than a quarter of MaxBytes.
	MaxItemSize int

	// MaxConns is the number of connections beyond which a new one is answered
	// ERROR Too many open connections and closed. If zero, 1024.
	MaxConns int

	// IdleTimeout is how long after a command the next one must have arrived,
	// and how long a reply may take to leave. If zero, there is no limit.
	IdleTimeout time.Duration

	// Registerer gets the server's metrics. If nil, they are not registered.
	// Several servers need a label each, see
	// [prometheus.WrapRegistererWith].
	Registerer prometheus.Registerer
}

const (
	minMaxBytes    = 64 << 10
	minMaxItemSize = 1 << 10
)

func (o Options) withDefaults() (Options, error) {
	o.MaxBytes = cmp.Or(o.MaxBytes, 64<<20)
	o.MaxItemSize = cmp.Or(o.MaxItemSize, int(min(1<<20, o.MaxBytes/itemsPerStripe)))
	o.MaxConns = cmp.Or(o.MaxConns, 1024)
	switch {
	case o.MaxBytes < minMaxBytes:
		return o, fmt.Errorf("shard: MaxBytes %d is less than %d", o.MaxBytes, minMaxBytes)
	case o.MaxItemSize < minMaxItemSize || int64(o.MaxItemSize) > o.MaxBytes/itemsPerStripe:
		return o, fmt.Errorf("shard: MaxItemSize %d is not between %d and a quarter of MaxBytes %d",
			o.MaxItemSize, minMaxItemSize, o.MaxBytes)
	case o.MaxConns < 0:
		return o, fmt.Errorf("shard: MaxConns %d is negative", o.MaxConns)
	case o.IdleTimeout < 0:
		return o, fmt.Errorf("shard: IdleTimeout %v is negative", o.IdleTimeout)
	}
	return o, nil
}

// Server holds items in memory and serves them to memcached clients. It is safe
// for concurrent use.
type Server struct {
	options  Options
	store    *store
	start    time.Time
	instance string // told by stats: tells servers in one process apart

	conns         atomic.Int64
	acceptedConns atomic.Int64
	rejectedConns atomic.Int64
	flushes       atomic.Int64
	bytesRead     atomic.Int64
	bytesWritten  atomic.Int64
}

// New returns a Server with no items. It starts no goroutine: there is nothing
// to stop before Serve or ServeConn is called. In a synctest bubble it must be
// called inside, since its clock starts here.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	s := &Server{options: o, store: newStore(o.MaxBytes, o.MaxItemSize, now), start: now, instance: rand.Text()}
	newMetrics(s, o.Registerer)
	return s, nil
}

// acceptPause is the time to wait after the process has run out of file
// descriptors, which other connections give back.
const acceptPause = 50 * time.Millisecond

// Serve serves the connections of ln, each with a goroutine, until ctx is done
// or ln is closed, and returns nil then. It closes ln and the connections, and
// returns once all of its goroutines have. The items stay.
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

// ServeConn serves one connection until the client closes it, does what closes
// it, or ctx is done. It then closes it and returns.
func (s *Server) ServeConn(ctx context.Context, nc net.Conn) {
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		nc.Close()
		close(closed)
	})
	defer func() {
		if !stop() {
			<-closed
		}
		nc.Close()
	}()

	if s.conns.Add(1) > int64(s.options.MaxConns) {
		s.conns.Add(-1)
		s.rejectedConns.Add(1)
		refuse(nc)
		return
	}
	defer s.conns.Add(-1)
	s.acceptedConns.Add(1)
	c := &conn{server: s, store: s.store, net: nc, idle: s.options.IdleTimeout}
	c.serve()
}

// refuse tells a client that there are too many, unless it does not listen.
func refuse(nc net.Conn) {
	if nc.SetWriteDeadline(time.Now().Add(time.Second)) == nil {
		nc.Write([]byte("ERROR Too many open connections\r\n"))
	}
}
