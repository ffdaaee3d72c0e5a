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
//   - Time is exact. Memcached's clock ticks once a second, so an item with a time
//     to live of 2 s may expire there after little more than 1 s.
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
//   - There are no slab classes: the least recently used item is evicted, whatever
//     its size.
//
// # Bounds
//
// Items and their index take at most [Options.MaxBytes]. Memory use grows as the
// store fills and never shrinks. A connection takes up to about 100 KiB more, and
// a few times the size of a long line or value while that is received or sent. No
// lock is held while waiting for a client.
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
	// MaxBytes is the maximum memory of all items, including overhead, at least
	// 64 KiB. If zero, 64 MiB, which hold 762,000 counters with keys of up to 19
	// bytes. Beyond it, the least recently used items are evicted.
	MaxBytes int64

	// MaxItemSize is the maximum size of an item: key, value, and 59 bytes or, with
	// flags, 63. If zero, 1 MiB, but not more than a quarter of MaxBytes.
	MaxItemSize int

	// MaxConns is the maximum number of connections. Further ones are answered
	// ERROR Too many open connections and closed. If zero, 1024.
	MaxConns int

	// IdleTimeout is the maximum time between two commands, and the maximum time
	// to send a reply. If zero, there is none.
	IdleTimeout time.Duration

	// Registerer gets the server's metrics. If nil, they are not registered.
	// Several servers need different labels: see
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
	instance string // in stats; distinguishes servers in one process

	conns         atomic.Int64
	acceptedConns atomic.Int64
	rejectedConns atomic.Int64
	flushes       atomic.Int64
	bytesRead     atomic.Int64
	bytesWritten  atomic.Int64
}

// New returns a Server without items. It starts no goroutine. For use in a
// synctest bubble, it must be called in the bubble, because it starts the clock.
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

// acceptPause is how long Serve waits when the process is out of file
// descriptors, until other connections have closed theirs.
const acceptPause = 50 * time.Millisecond

// Serve serves the connections of ln, each in a goroutine, until ctx is done or ln
// is closed, and then returns nil. It closes ln and the connections, and waits for
// its goroutines. The items are kept.
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

// refuse tells a client that there are too many connections. It does not wait
// long for the client to read that.
func refuse(nc net.Conn) {
	if nc.SetWriteDeadline(time.Now().Add(time.Second)) == nil {
		nc.Write([]byte("ERROR Too many open connections\r\n"))
	}
}
