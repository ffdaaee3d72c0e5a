package wire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/idle"
)

// patience is the maximum duration of an exchange, in units of Options.Timeout. It bounds shards that answer a few
// bytes at a time.
const patience = 10

// A conn is a connection to a shard, used by one goroutine at a time.
type conn struct {
	net.Conn
	Replies
	Protocol
	deadline time.Time // of the exchange
	out      []byte    // commands
	ends     []int     // of the increments and stores in out
}

// Exchange sends b to the shard and sets the outcomes. It writes all commands at once while it
// reads the answers. An empty batch probes whether the shard answers.
//
// If the exchange fails, answered operations keep their outcomes; the others are Unknown if they may have been sent,
// and otherwise NotSent. The error is [counter.ErrNotSent] or [counter.ErrUnknown].
func (s *Client) Exchange(b *counter.Batch) (err error) {
	prepare(b)
	defer func() { s.Metrics.exchanged(b) }()
	done, err := s.allow()
	if err != nil {
		return err
	}
	c, err := s.connect()
	if err != nil {
		return s.failed(done, counter.ErrNotSent, "connecting to", err)
	}
	start := time.Now()
	first, err := c.exchange(b, s.Timeout)
	if err != nil {
		_ = c.Close()
		_ = s.Close() // the others are probably dead, too
		kind := counter.ErrUnknown
		if errors.Is(err, ErrUnusable) {
			kind = counter.ErrNotSent
		}
		return s.failed(done, kind, "batch to", err)
	}
	s.observe("batch", start)
	s.unfit.Store(nil)
	s.keep(c)
	done(s.slowness(first, start.Add(first)))
	return nil
}

// exchanged counts the increments of a batch by outcome.
func (m *Metrics) exchanged(b *counter.Batch) {
	var n [counter.Unknown + 1]int
	for i := range b.Increments {
		n[b.Increments[i].Outcome]++
	}
	for outcome, n := range n {
		if n > 0 {
			m.increments[outcome].Add(float64(n))
		}
	}
}

// failed records why an exchange failed, and returns the error.
func (s *Client) failed(done func(error), kind error, doing string, err error) error {
	if errors.Is(err, ErrMalformed) {
		s.Metrics.Malformed()
	}
	s.unfit.Store(nil)
	if errors.Is(err, ErrMalformed) || errors.Is(err, ErrUnusable) {
		s.unfit.Store(&err)
	}
	err = fmt.Errorf("%w: %s %s: %w", kind, doing, s.addr, err)
	done(err)
	return err
}

// prepare resets the outcomes to those of a batch that was not sent.
func prepare(b *counter.Batch) {
	b.Values = b.Values[:0]
	for i := range b.Increments {
		b.Increments[i].Outcome = counter.NotSent
	}
	for i := range b.Stores {
		b.Stores[i].Outcome = counter.NotSent
	}
	for i := range b.Reads {
		b.Reads[i].Outcome, b.Reads[i].Value = counter.NotSent, nil
	}
}

// broke sets the outcomes after an error, when at most written bytes were sent: an operation without an answer is
// Unknown if the shard may have read it.
func (c *conn) broke(b *counter.Batch, written int) {
	start := 0
	for i, end := range c.ends {
		var outcome *counter.Outcome
		if stores := i - len(b.Increments); stores < 0 {
			outcome = &b.Increments[i].Outcome
		} else {
			outcome = &b.Stores[stores].Outcome
		}
		if *outcome == counter.NotSent && start < written {
			*outcome = counter.Unknown
		}
		start = end
	}
}

// connect returns an idle connection, or a new one. A server that accepts connections but does not answer must not
// swallow a batch, so a new connection first exchanges an empty batch.
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
		if c.Buffered() == 0 && idle.Quiet(c.Conn) {
			return c, nil
		}
		_ = c.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.Timeout)
	defer cancel()
	raw, err := s.Dial(ctx, "tcp", s.addr)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, Replies: Replies{Reader: bufio.NewReaderSize(raw, 1<<14)}, Protocol: s.speak()}
	if _, err := c.exchange(new(counter.Batch), s.Timeout); err != nil {
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

// maxIdle is the maximum number of idle connections: the loop has two batches in flight, and other goroutines may probe
// or read.
const maxIdle = 4

// exchange executes b, and returns the time until the first answer.
func (c *conn) exchange(b *counter.Batch, timeout time.Duration) (time.Duration, error) {
	c.deadline = time.Now().Add(patience * timeout)
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
	again, first, err := c.ask(b, timeout)
	for again && err == nil {
		again, _, err = c.ask(b, timeout)
	}
	return first, err
}

// ask sends the commands that the protocol appends for b, and reads the answers. It returns the time until the first
// one.
func (c *conn) ask(b *counter.Batch, timeout time.Duration) (again bool, first time.Duration, err error) {
	start := time.Now()
	c.out, c.ends = c.Append(c.out[:0], c.ends[:0], b)
	written := make(chan int, 1)
	go func() {
		n, _ := c.Write(c.out)
		written <- n
	}()
	c.refill()
	if _, err = c.Peek(1); err == nil {
		first = time.Since(start)
		again, err = c.Protocol.Read(&c.Replies, b)
	}
	if err != nil && !errors.Is(err, ErrUnusable) {
		_ = c.Close() // unblocks Write
		c.broke(b, <-written)
		return false, first, err
	}
	if n := <-written; n < len(c.out) { // if the shard does not read, until the deadline of the write
		return false, first, fmt.Errorf("%w: replies to commands that were not sent", ErrMalformed)
	}
	return again, first, err
}

// slowAfter is how long all answers of a shard must have been slow for the shard to count as failed.
const slowAfter = 5 * time.Second

// errSlow trips the breaker of a slow shard.
var errSlow = errors.New("the shard is slow")

// slowness records the latency of an answer. It returns errSlow if all answers for slowAfter took
// more than half of the timeout.
func (s *Client) slowness(latency time.Duration, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case latency <= s.Timeout/2:
		s.slowSince = time.Time{}
	case s.slowSince.IsZero():
		s.slowSince = now
	case now.Sub(s.slowSince) >= slowAfter:
		return errSlow
	}
	return nil
}

var (
	// ErrMalformed is wrapped by errors about a shard that does not speak the protocol.
	ErrMalformed = errors.New("malformed reply")

	// ErrUnusable is wrapped by errors about a shard that answers but cannot count.
	ErrUnusable = errors.New("the server refuses all commands")
)

// Malformed returns the error about a malformed line or value.
func Malformed(line []byte) error { return fmt.Errorf("%w: %.40q", ErrMalformed, line) }

const (
	// Longest is the maximum size of a value, in bytes. Counters have 20 digits, records 84 bytes. Longer values are
	// skipped.
	Longest = 128

	// MaxSkip is the maximum size of a skipped value, in bytes: memcached's largest item.
	MaxSkip = 1 << 20
)

// Replies reads the answers of one connection. The reader's buffer limits the length of lines.
type Replies struct {
	*bufio.Reader
	refill func() // called before more is read from the connection
}

// Line returns the next line without CRLF. It is valid until the next read.
func (r *Replies) Line() ([]byte, error) {
	if r.Buffered() == 0 {
		r.refill()
	}
	line, err := r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, Malformed(line)
	case err != nil:
		return nil, err
	case len(line) < 2 || line[len(line)-2] != '\r':
		return nil, Malformed(line)
	}
	return line[:len(line)-2], nil
}

// Value reads n bytes and CRLF, and appends the bytes to into if n is at most longest.
func (r *Replies) Value(n, longest int, into []byte) ([]byte, error) {
	if n <= longest {
		from := len(into)
		into = append(into, make([]byte, n+2)...)
		if _, err := io.ReadFull(r, into[from:]); err != nil {
			return into, err
		}
		if string(into[from+n:]) != "\r\n" {
			return into, Malformed(into[from+n:])
		}
		return into[:from+n], nil
	}
	for n += 2; n > 0; {
		r.refill()
		k, err := r.Discard(min(n, r.Size()))
		n -= k
		if err != nil {
			return into, err
		}
	}
	return into, nil
}
