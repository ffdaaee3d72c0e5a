package memcached

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/edgelimit/edge/counter"
)

var (
	// ErrNotSent means that nothing was sent: the shard's breaker is open, or it could not
	// be dialed. Counts must be sent later.
	ErrNotSent = errors.New("memcached: not sent")

	// ErrUnknown means that a shard was asked, but may or may not have acted. Counts must
	// not be sent again.
	ErrUnknown = errors.New("memcached: outcome unknown")
)

// Options configures a Client. The zero value of every field is usable.
type Options struct {
	// Timeout bounds dialing and each read or write. It never delays a request:
	// counting is asynchronous. If zero, 100 ms.
	Timeout time.Duration

	// Failures is the number of consecutive failures that open the breaker. If zero, 3.
	Failures int

	// Pause is how long the breaker stays open before one request may probe the shard.
	// If zero, 250 ms.
	Pause time.Duration

	// Dial connects to the shard. If nil, it uses TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// Metrics may be shared by all shards of a node. If nil, they are not registered.
	Metrics *Metrics
}

func (o Options) withDefaults() Options {
	o.Timeout = cmp.Or(max(o.Timeout, 0), 100*time.Millisecond)
	o.Failures = cmp.Or(max(o.Failures, 0), 3)
	o.Pause = cmp.Or(max(o.Pause, 0), 250*time.Millisecond)
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	return o
}

// A Client speaks to one shard, a memcached that owns part of a PoP's counters. Its methods may
// be called concurrently. They block for a round trip, so the request path must not call them.
//
// Errors are [ErrNotSent] or [ErrUnknown], wrapped with what was done and why it failed.
type Client struct {
	addr    string
	o       Options
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	down    atomic.Bool // the breaker is not closed
	metrics *Metrics
	series  atomic.Pointer[series] // nil while the shard is hidden

	mu        sync.Mutex // guards the fields below
	counting  []*conn    // idle connections of Exchange
	others    []*conn    // idle connections of Update and Probe, which are rare
	slowSince time.Time  // every answer since then was slow; zero: the last one was not
}

// New returns a client of the shard at addr, host:port. It connects on first use. Close
// closes idle connections.
func New(addr string, o Options) *Client {
	o = o.withDefaults()
	s := &Client{addr: addr, o: o, metrics: o.Metrics}
	s.Show()
	s.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        addr,
		Timeout:     o.Pause,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= uint32(o.Failures) },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			s.down.Store(to != gobreaker.StateClosed)
			s.series.Load().setOpen(s.Down())
		},
	})
	return s
}

// dial connects, and asks the server which instance it is. If the server closes the connection
// for that question, as some proxies do, the instance is unknown.
func (s *Client) dial(ctx context.Context) (net.Conn, *Link, error) {
	mustNotDecide("dial")
	conn, err := s.o.Dial(ctx, "tcp", s.addr)
	if err != nil {
		return nil, nil, err
	}
	conn = guard(conn)
	instance, err := ask(ctx, conn)
	if err == nil {
		return conn, &Link{instance}, nil
	}
	_ = conn.Close()
	if !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	if conn, err = s.o.Dial(ctx, "tcp", s.addr); err != nil {
		return nil, nil, err
	}
	return guard(conn), new(Link), nil
}

// Addr returns the shard's host:port.
func (s *Client) Addr() string { return s.addr }

// Available reports whether the shard accepts requests now: its breaker is not open.
func (s *Client) Available() bool { return s.breaker.State() != gobreaker.StateOpen }

// Down reports whether the shard gets only occasional probes: from when its breaker opens until
// a probe succeeds. It only reads a flag, so the request path may call it.
func (s *Client) Down() bool { return s.down.Load() }

// Probe finds out whether the shard answers.
func (s *Client) Probe() error { return s.exchange(new(Batch), "get") }

// Hide removes the shard from the metrics until Show. It may still be used.
func (s *Client) Hide() {
	s.series.Store(nil)
	s.metrics.forget(s.Addr())
}

// Show adds the shard to the metrics, as New does.
func (s *Client) Show() {
	if s.series.Load() == nil {
		series := s.metrics.of(s.Addr())
		s.series.Store(series)
		series.setOpen(s.Down())
	}
}

// Close closes idle connections. The Client may still be used.
func (s *Client) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range slices.Concat(s.counting, s.others) {
		_ = c.Close()
	}
	s.counting, s.others = nil, nil
	return nil
}

// ParseNumber parses the value of a counter. memcached pads a value that has become shorter with
// spaces.
func ParseNumber(value []byte) (uint64, error) {
	number, err := strconv.ParseUint(string(bytes.TrimRight(value, " ")), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("memcached: %q is not a number", value)
	}
	return number, nil
}

// maxUpdated is the maximum size of a value that Update reads, in bytes. A longer one is replaced.
const maxUpdated = 1 << 17

// Update replaces the value of item with the result of change, in at most three tries if
// others write it at the same time. old is nil if there is no value. change returns the new
// value and its time to live in seconds, or nil to keep the old one.
func (s *Client) Update(item counter.Item, change func(old []byte) (value []byte, ttl int32)) error {
	for range 3 {
		get := Batch{Reads: []Read{{Item: item}}, MaxValue: maxUpdated}
		if err := s.exchange(&get, "get"); err != nil {
			return err
		}
		old := &get.Reads[0]
		value, ttl := change(old.Value)
		if value == nil {
			return nil
		}
		set, op := Batch{Stores: []Store{{Item: item, Value: value, TTL: ttl, CAS: old.CAS}}}, "cas"
		if old.CAS == 0 {
			op = "add"
		}
		if err := s.exchange(&set, op); err != nil {
			return err
		}
		switch set.Stores[0].Outcome {
		case Done:
			return nil
		case Refused:
			return fmt.Errorf("%w: %s refuses to store a value", ErrUnknown, s.addr)
		}
	}
	return fmt.Errorf("%w: others write the record of %s at the same time", ErrUnknown, s.addr)
}
