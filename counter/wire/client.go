// Package wire exchanges batches of a node's counts with the shards of a PoP, in the protocol that they speak.
//
// A [Client] sends batches to one shard over connections of its own, and no request path waits for it. It writes a
// batch while it reads the answers, and limits the size of every line and value that it reads. It never counts a
// request twice: the [counter.Outcome] of each operation tells whether it may be sent again. After a few failures it
// leaves the shard alone, except for probes.
package wire

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sony/gobreaker/v2"

	"github.com/edgelimit/edge/counter"
)

// A Protocol speaks the shard's protocol over one connection.
type Protocol interface {
	// Append appends the commands of b to out, and to ends the positions at which the command of each increment and
	// store ends. For an empty batch, it appends a command that asks whether the shard answers.
	Append(out []byte, ends []int, b *counter.Batch) ([]byte, []int)

	// Read reads the answers, and sets the outcomes. If again is true, the answers require more commands: Append and Read
	// are called once more. After an error the connection is closed; operations without an answer keep their outcomes. The
	// error wraps ErrMalformed if the shard does not speak the protocol, and ErrUnusable if the shard has answered all
	// commands but cannot count.
	Read(r *Replies, b *counter.Batch) (again bool, err error)
}

// Options configures a Client. The zero value is usable.
type Options struct {
	// Timeout bounds dialing, and each wait for more of an answer; a whole exchange may take ten times as long. It never
	// delays a request: counting is asynchronous. If zero, 100 ms.
	Timeout time.Duration

	// Failures is the number of consecutive failures that open the breaker. If zero, 3.
	Failures int

	// Dial connects to the shard. If nil, it uses TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// Metrics may be shared by all shards of a node. If nil, they are not registered.
	Metrics *Metrics
}

func (o Options) withDefaults() Options {
	o.Timeout = cmp.Or(max(o.Timeout, 0), 100*time.Millisecond)
	o.Failures = cmp.Or(max(o.Failures, 0), 3)
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	return o
}

// A Client talks to one shard, a server that owns part of a PoP's counters. It is safe for concurrent use. Its methods
// block for a round trip, so the request path must not call them.
//
// Errors are [counter.ErrNotSent] or [counter.ErrUnknown], wrapped with the operation and the cause.
type Client struct {
	Options // with defaults

	addr    string
	speak   func() Protocol
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	down    atomic.Bool // the breaker is not closed
	series  *series
	last    atomic.Pointer[error] // see Last
	unfit   atomic.Pointer[error] // see Unfit

	mu        sync.Mutex // guards the fields below
	conns     []*conn    // idle connections for batches
	slowSince time.Time  // every answer since then was slow; zero if the last one was not
}

// openPause is how long the breaker stays open before one request may probe the shard.
const openPause = 250 * time.Millisecond

// New returns a client for the shard at addr. speak returns the Protocol for a new connection. The client connects on
// first use.
func New(addr string, o Options, speak func() Protocol) *Client {
	s := &Client{Options: o.withDefaults(), addr: addr, speak: speak}
	s.series = s.Metrics.of(addr)
	s.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        addr,
		Timeout:     openPause,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= uint32(s.Failures) },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			s.down.Store(to != gobreaker.StateClosed)
			s.series.open.Set(0)
			if s.Down() {
				s.series.open.Set(1)
			}
		},
	})
	return s
}

// Addr returns the shard's address as every node spells it.
func (s *Client) Addr() string { return s.addr }

// Available reports whether the shard accepts requests now: its breaker is not open.
func (s *Client) Available() bool { return s.breaker.State() != gobreaker.StateOpen }

// Down reports whether the shard gets only occasional probes: from when its breaker opens until
// a probe succeeds. It only reads a flag, so the request path may call it.
func (s *Client) Down() bool { return s.down.Load() }

// Last returns the error of the last round trip. asked is false if there was none.
func (s *Client) Last() (asked bool, err error) {
	if last := s.last.Load(); last != nil {
		return true, *last
	}
	return false, nil
}

// Unfit returns why the shard cannot be used although it answers, or nil.
func (s *Client) Unfit() error {
	if err := s.unfit.Load(); err != nil {
		return *err
	}
	return nil
}

// Probe returns an error if the shard does not answer.
func (s *Client) Probe() error { return s.Exchange(new(counter.Batch)) }

// Hide removes the shard from the metrics. The Client may still be used.
func (s *Client) Hide() {
	s.Metrics.open.DeleteLabelValues(s.addr)
	s.Metrics.seconds.DeletePartialMatch(prometheus.Labels{"shard": s.addr})
}

// Close closes idle connections. The Client may still be used.
func (s *Client) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.conns = nil
	return nil
}

// allow returns the function to call with the result of a round trip, or an error while the breaker is open.
func (s *Client) allow() (done func(error), err error) {
	count, err := s.breaker.Allow()
	if err != nil {
		return nil, fmt.Errorf("%w: the breaker of %s is open", counter.ErrNotSent, s.addr)
	}
	return func(err error) {
		s.last.Store(&err) // first: a caller that sees the shard down may ask why
		count(err)
	}, nil
}

// Do runs one round trip over a connection of the caller, under the breaker, and returns its error. answered tells
// whether the shard answered, if only with that error.
func (s *Client) Do(op string, roundTrip func() (answered bool, err error)) error {
	done, err := s.allow()
	if err != nil {
		return err
	}
	start := time.Now()
	answered, err := roundTrip()
	if !answered {
		done(err)
		return err
	}
	done(nil)
	s.observe(op, start)
	return err
}

// observe records the time of a round trip.
func (s *Client) observe(op string, start time.Time) {
	s.series.seconds[op].Observe(time.Since(start).Seconds())
}
