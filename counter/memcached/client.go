package memcached

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/sony/gobreaker/v2"
)

var (
	// ErrNotSent means that nothing was sent: the shard's breaker is open, or it could not
	// be dialed. Counts must be sent later.
	ErrNotSent = errors.New("memcached: not sent")

	// ErrUnknown means that a shard was asked, but may or may not have acted. Counts must
	// not be sent again.
	ErrUnknown = errors.New("memcached: outcome unknown")
)

// Options configures a Client. The zero value is usable.
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

// A Client talks to one shard, a memcached that owns part of a PoP's counters. It is safe for
// concurrent use. Its methods block for a round trip, so the request path must not call them.
//
// Errors are [ErrNotSent] or [ErrUnknown], wrapped with what was done and why it failed.
type Client struct {
	addr    address
	o       Options
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	down    atomic.Bool // the breaker is not closed
	metrics *Metrics
	series  atomic.Pointer[series] // nil while the shard is hidden
	rare    *memcache.Client       // for Update

	mu        sync.Mutex // guards the fields below
	conns     []*conn    // idle connections for batches
	slowSince time.Time  // every answer since then was slow; zero: the last one was not
}

// address is the shard's host:port. It is the client's whole server list.
type address string

func (a address) Network() string                       { return "tcp" }
func (a address) String() string                        { return string(a) }
func (a address) PickServer(string) (net.Addr, error)   { return a, nil }
func (a address) Each(visit func(net.Addr) error) error { return visit(a) }

// New returns a client for the shard at addr, host:port. It connects on first use. Close
// closes idle connections.
func New(addr string, o Options) *Client {
	o = o.withDefaults()
	s := &Client{addr: address(addr), o: o, metrics: o.Metrics}
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
	s.rare = memcache.NewFromSelector(s.addr)
	s.rare.Timeout, s.rare.MaxIdleConns = o.Timeout, 1
	s.rare.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := o.Dial(ctx, network, addr)
		if err != nil {
			return nil, dialError{err}
		}
		return &boundedConn{Conn: conn}, nil
	}
	return s
}

// dialError marks a failed dial: nothing was sent.
type dialError struct{ error }

func (e dialError) Unwrap() error { return e.error }

// Addr returns the shard's host:port.
func (s *Client) Addr() string { return string(s.addr) }

// Available reports whether the shard accepts requests now: its breaker is not open.
func (s *Client) Available() bool { return s.breaker.State() != gobreaker.StateOpen }

// Down reports whether the shard gets only occasional probes: from when its breaker opens until
// a probe succeeds. It only reads a flag, so the request path may call it.
func (s *Client) Down() bool { return s.down.Load() }

// Probe returns an error if the shard does not answer.
func (s *Client) Probe() error { return s.Exchange(new(Batch)) }

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
	s.closeIdle()
	return s.rare.Close()
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

// Update replaces the value under key with the result of change, in at most three tries if
// others write it at the same time. old is nil if there is no value. change returns the new
// value and its time to live in seconds, or nil to keep the old one.
func (s *Client) Update(key string, change func(old []byte) (value []byte, ttl int32)) error {
	for range 3 {
		var item *memcache.Item
		err := s.do("get", func() (err error) {
			item, err = s.rare.Get(key)
			return err
		})
		if err == memcache.ErrCacheMiss {
			item, err = &memcache.Item{Key: key}, nil
		}
		if err != nil {
			return err
		}
		value, ttl := change(item.Value)
		if value == nil {
			return nil
		}
		write, op := s.rare.CompareAndSwap, "cas"
		if item.Value == nil {
			write, op = s.rare.Add, "add"
		}
		item.Value, item.Expiration = value, ttl
		switch err := s.do(op, func() error { return write(item) }); err {
		case memcache.ErrCASConflict, memcache.ErrNotStored, memcache.ErrCacheMiss:
		default:
			return err
		}
	}
	return fmt.Errorf("%w: other nodes keep writing the record on %s", ErrUnknown, s.addr)
}

// do runs one round trip under the breaker. Negative answers from the shard count as successes for the
// breaker: do returns those errors unchanged.
func (s *Client) do(op string, roundTrip func() error) (err error) {
	done, err := s.breaker.Allow()
	if err != nil {
		return fmt.Errorf("%w: the breaker of %s is open", ErrNotSent, s.addr)
	}
	start := time.Now()
	defer func() {
		// gomemcache panics on truncated replies.
		if r := recover(); r != nil {
			s.metrics.panics.Inc()
			err = fmt.Errorf("%w: malformed reply from %s: %v", ErrUnknown, s.addr, r)
		}
		if err != nil && !answered(err) {
			done(err)
			return
		}
		done(nil)
		if series := s.series.Load(); series != nil {
			series.seconds[op].Observe(time.Since(start).Seconds())
		}
	}()
	if err = roundTrip(); err == nil || answered(err) {
		return err
	}
	var dial dialError
	if errors.As(err, &dial) {
		return fmt.Errorf("%w: connecting to %s: %w", ErrNotSent, s.addr, dial.error)
	}
	_ = s.Close() // the other idle connections are probably dead, too, and each would lose a batch
	return fmt.Errorf("%w: %s on %s: %w", ErrUnknown, op, s.addr, err)
}

// answered reports whether err is an answer from the shard.
func answered(err error) bool {
	switch err {
	case memcache.ErrCacheMiss, memcache.ErrNotStored, memcache.ErrCASConflict:
		return true
	}
	return false
}
