package memcached

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// patience is the maximum duration of an exchange, in units of Options.Timeout. It applies
// to a shard that answers a few bytes at a time.
const patience = 10

// A conn is a connection to a shard, used by one goroutine at a time.
type conn struct {
	net.Conn
	replies
	deadline time.Time // of the exchange
}

// Exchange sends b to the shard and sets the outcomes. It writes all commands at once while it
// reads the answers. An empty batch probes whether the shard answers.
//
// If the exchange fails, operations that were answered are Done, others are Unknown if they may
// have been sent, else NotSent. The error is [ErrNotSent] or [ErrUnknown].
func (s *Client) Exchange(b *Batch) (err error) {
	b.prepare()
	defer func() { s.metrics.exchanged(b) }()
	done, err := s.breaker.Allow()
	if err != nil {
		return fmt.Errorf("%w: the breaker of %s is open", ErrNotSent, s.addr)
	}
	c, err := s.connect()
	if err != nil {
		done(err)
		return fmt.Errorf("%w: connecting to %s: %w", ErrNotSent, s.addr, err)
	}
	start := time.Now()
	first, err := c.exchange(b, s.o.Timeout)
	if err != nil {
		_ = c.Close()
		s.closeIdle() // the others are probably dead, too
		if errors.Is(err, errMalformed) {
			s.metrics.panics.Inc()
		}
		done(err)
		return fmt.Errorf("%w: batch to %s: %w", ErrUnknown, s.addr, err)
	}
	if series := s.series.Load(); series != nil {
		series.seconds["batch"].Observe(time.Since(start).Seconds())
	}
	s.keep(c)
	done(s.slowness(first, start.Add(first)))
	return nil
}

// connect returns an idle connection, or a new one. A server that accepts connections but does not answer must not
// swallow a batch, so a new connection asks for the version first.
func (s *Client) connect() (*conn, error) {
	for {
		s.mu.Lock()
		last := len(s.conns) - 1
		if last < 0 {
			s.mu.Unlock()
			break
		}
		c := s.conns[last]
		s.conns = s.conns[:last]
		s.mu.Unlock()
		if c.Buffered() == 0 && quiet(c.Conn) {
			return c, nil
		}
		_ = c.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.o.Timeout)
	defer cancel()
	raw, err := s.o.Dial(ctx, "tcp", string(s.addr))
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, replies: replies{Reader: bufio.NewReaderSize(raw, 1<<14)}}
	if _, err := c.exchange(new(Batch), s.o.Timeout); err != nil { // asks for the version
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// keep makes a connection available to the next exchange.
func (s *Client) keep(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Buffered() > 0 || len(s.conns) >= maxIdle { // Buffered: unexpected answers
		_ = c.Close()
		return
	}
	s.conns = append(s.conns, c)
}

// maxIdle is the maximum number of idle connections: the loop has two batches in flight, others may probe or read.
const maxIdle = 4

func (s *Client) closeIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.conns = nil
}

// exchange executes b, and returns the time until the first answer.
func (c *conn) exchange(b *Batch, timeout time.Duration) (first time.Duration, err error) {
	b.encode()
	start := time.Now()
	c.deadline = start.Add(patience * timeout)
	c.refill = func() {
		next := time.Now().Add(timeout)
		if next.After(c.deadline) {
			next = c.deadline
		}
		_ = c.SetReadDeadline(next)
	}
	if err := c.SetWriteDeadline(c.deadline); err != nil {
		return 0, err
	}
	written := make(chan int, 1)
	go func() {
		n, _ := c.Write(b.out)
		written <- n
	}()
	c.refill()
	if _, err = c.Peek(1); err == nil {
		first = time.Since(start)
		err = b.decode(&c.replies)
	}
	if err != nil {
		_ = c.Close() // unblocks Write
		b.broke(<-written)
		return first, err
	}
	select {
	case n := <-written:
		if n < len(b.out) {
			return first, fmt.Errorf("%w: replies to commands that were not sent", errMalformed)
		}
	case <-time.After(timeout):
		return first, fmt.Errorf("%w: replies to commands that were not sent", errMalformed)
	}
	return first, nil
}

// slowAfter is how long every answer of a shard must be slow before the shard counts as failed.
const slowAfter = 5 * time.Second

// errSlow trips the breaker of a slow shard.
var errSlow = errors.New("the shard is slow")

// slowness records the latency of an answer. It returns errSlow if all answers for slowAfter took
// more than half of the timeout.
func (s *Client) slowness(latency time.Duration, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case latency <= s.o.Timeout/2:
		s.slowSince = time.Time{}
	case s.slowSince.IsZero():
		s.slowSince = now
	case now.Sub(s.slowSince) >= slowAfter:
		return errSlow
	}
	return nil
}
