package load

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edge/internal/idle"
	"github.com/edgelimit/edge/load/judge"
	"github.com/edgelimit/edge/load/mix"
)

// A conn sends requests one at a time over successive HTTP/1.1 connections. It never sends a
// request twice: a connection that the target has closed is replaced before anything is written
// to it.
type conn struct {
	run  *run
	from *dueQueue
	tape tape

	http2   *http2Conn // nil for HTTP/1.1
	nc      net.Conn
	unwatch func() bool // stops waiting for run.cut
	to      int         // index of the connected target
	owner   uint64      // with the PROXY protocol, the client of the connection
	sent    int         // requests sent over this connection
	last    int64       // when it was last used, in microseconds since the start of the run
	wire    wire
	answer  answer
	out     []byte
	request Request
	record  record
	node    []byte // name of the node that answered last; number is its index
	number  uint16
	policy  []byte // RateLimit-Policy of the last answer
	random  *rand.Rand
}

// work sends requests until there are no more.
func (c *conn) work() {
	defer c.disconnect()
	c.wire.Reader = bufio.NewReaderSize(nil, 16<<10)
	c.wire.nodeHeader, c.wire.bodies = []byte(c.run.o.NodeHeader), c.run.o.Bodies
	for c.from.next(&c.request) {
		if c.run.returns.holds(&c.request) {
			continue
		}
		c.exchange()
	}
}

// exchange sends a request and reads and records the answer.
func (c *conn) exchange() {
	q, r := &c.request, &c.record
	*r = record{due: q.Due.Microseconds(), client: q.Client, look: q.Look.number, retry: judge.NoRetry, remaining: -1}
	err := c.send()
	if failureOf(err) == judge.NotSent && c.run.isOver() {
		c.run.unsent.Add(1)
		return
	}
	r.done = c.run.now()
	c.last = r.done
	c.sent++
	if err != nil {
		r.failure, r.node = failureOf(err), r.target
		if r.failure == timedOut && c.run.cut.Err() != nil {
			r.failure = cutOff
		}
		c.run.failed(r.failure, err)
		c.disconnect()
	}
	c.tape.add(r)
	c.run.live.add(r)
	if c.run.o.Return && r.status != 0 && r.retry > 0 {
		c.run.returns.refused(q, r)
	}
	if err == nil && (c.answer.last || c.run.o.KeepAlive > 0 && c.sent >= c.run.o.KeepAlive) {
		c.disconnect()
	}
}

// idleAfter is how long a connection may be unused before connect checks whether the target has closed it.
const idleAfter = 1000 // microseconds

// send sends the request, connecting first if necessary, and reads the answer into the record.
func (c *conn) send() error {
	r := &c.record
	err := c.connect()
	r.sent, r.target = c.run.now(), uint16(c.to)
	if c.run.o.ClosedLoop {
		r.due = r.sent // the connection determines the schedule
	}
	if err != nil {
		return &connectError{err}
	}
	if c.http2 != nil {
		return c.http2.roundTrip(c)
	}
	r.flags = 0
	if c.sent > 0 {
		r.flags = reused
	}
	c.out = c.appendRequest(c.out[:0])
	if n, err := c.nc.Write(c.out); err != nil {
		if n == 0 && c.sent > 0 && failureOf(err) == judge.Closed { // closed before anything was sent
			c.disconnect()
			return c.send()
		}
		// A target may answer before it has read the whole body, and then close the connection.
		if n == 0 || c.read() != nil {
			return err
		}
		c.answer.last = true
	} else if err := c.read(); err != nil {
		return err
	}
	if c.wire.Buffered() > 0 {
		c.answer.last = true // the rest was not requested, so the connection is not reused
	}
	c.take()
	return nil
}

func (c *conn) read() error { return c.wire.read(&c.answer, c.request.Look.Method == "HEAD") }

// take records the answer.
func (c *conn) take() {
	r, a := &c.record, &c.answer
	r.status, r.retry, r.remaining = a.status, a.retry, a.least()
	r.flags |= a.flags | a.disagreement()
	r.node = c.nodeOf(a.node)
	if !bytes.Equal(a.policy, c.policy) {
		c.policy = append(c.policy[:0], a.policy...)
		c.run.note(a.policy)
	}
}

// nodeOf returns the index of the node that answered.
func (c *conn) nodeOf(name []byte) uint16 {
	if len(name) == 0 {
		return uint16(c.to)
	}
	if string(name) != string(c.node) {
		c.node = append(c.node[:0], name...)
		c.number = c.run.nodeNamed(string(name), uint16(c.to))
	}
	return c.number
}

// appendRequest appends the request in wire format.
func (c *conn) appendRequest(b []byte) []byte {
	look := c.request.Look
	host, path := look.at(&c.run.o.Targets[c.to])
	b = append(append(b, look.Method...), ' ')
	b = append(append(b, path...), " HTTP/1.1\r\nHost: "...)
	b = append(append(b, host...), "\r\n"...)
	b = c.run.o.appendHeader(b, &c.request)
	body := c.run.o.bodyOf(look.Method)
	if len(body) > 0 || slices.Contains([]string{"POST", "PUT", "PATCH"}, look.Method) {
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), int64(len(body)), 10), "\r\n"...)
	}
	return append(append(b, "\r\n"...), body...)
}

// CarriesBody reports whether requests with this method carry Options.Body.
func CarriesBody(method string) bool {
	return method != "GET" && method != "HEAD" && method != "OPTIONS" && method != "TRACE"
}

// bodyOf returns the body of requests with this method.
func (o *Options) bodyOf(method string) []byte {
	if !CarriesBody(method) {
		return nil
	}
	return o.Body
}

// connect ensures that there is a usable connection for the request, and gives the request its deadline.
func (c *conn) connect() error {
	if c.http2 != nil {
		return c.run.over.Err()
	}
	if c.nc != nil {
		own := c.run.o.Identity.Proxy == 0 || c.owner == c.request.Client
		if own && c.bound() == nil && (c.run.now()-c.last < idleAfter || idle.Quiet(c.nc)) {
			return nil
		}
		c.disconnect()
	}
	switch n := len(c.run.o.Targets); {
	case c.from.target >= 0:
		c.to = c.from.target
	case c.run.o.Hashed:
		c.to = int(mix.Scramble(c.request.Client) % uint64(n))
	default:
		c.to = c.random.IntN(n)
	}
	ctx, cancel := context.WithTimeout(c.run.over, c.run.o.Timeout)
	defer cancel()
	nc, err := c.run.dial(ctx, &c.run.o.Targets[c.to], c.request.Addr)
	if err != nil {
		return err
	}
	c.sent, c.owner, c.nc = 0, c.request.Client, nc
	c.unwatch = context.AfterFunc(c.run.cut, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	c.wire.Reset(nc)
	return c.bound()
}

// bound sets the deadline of a request that is sent now. It fails once requests are aborted, so that it cannot undo
// the deadline that aborts them.
func (c *conn) bound() error {
	return cmp.Or(c.nc.SetDeadline(time.Now().Add(c.run.o.Timeout)), c.run.cut.Err())
}

// dial connects to a target, on behalf of client if the PROXY protocol is used.
func (r *run) dial(ctx context.Context, t *Target, client netip.Addr) (net.Conn, error) {
	nc, err := r.o.Dial(ctx, t)
	if err != nil {
		return nil, err
	}
	r.opened.Add(1)
	if r.o.Identity.Proxy != 0 {
		if _, err := nc.Write(r.o.Identity.proxyHeader(client, t.Addr)); err != nil {
			nc.Close()
			return nil, err
		}
	}
	if !t.TLS {
		return nc, nil
	}
	secure := tls.Client(nc, r.tlsOf(t))
	if err := secure.HandshakeContext(ctx); err != nil {
		nc.Close()
		return nil, err
	}
	return secure, nil
}

func (c *conn) disconnect() {
	if c.nc != nil {
		c.unwatch()
		c.nc.Close()
		c.nc = nil
	}
}

// A connectError wraps the reason why there is no connection.
type connectError struct{ error }

func (e *connectError) Unwrap() error { return e.error }

func failureOf(err error) judge.Failure {
	if err == nil {
		return judge.Answered
	}
	if _, unconnected := errors.AsType[*connectError](err); unconnected {
		return judge.NotSent
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, context.Canceled):
		return timedOut
	case errors.Is(err, errMalformed):
		return malformed
	}
	return judge.Closed
}

// failed schedules giveUp after the first failure. It keeps the first error of each kind that says more than its kind.
func (r *run) failed(f judge.Failure, err error) {
	r.firstFailure.Do(func() {
		patience := time.Second
		if f == timedOut {
			patience = 0 // the request has waited already
		}
		time.AfterFunc(patience, r.giveUp)
	})
	if f != judge.NotSent && f != judge.Closed {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.examples[failureNames[f]] == "" {
		r.examples[failureNames[f]] = shortened(strings.TrimPrefix(err.Error(), "load: "))
	}
}

// tlsOf returns the TLS configuration for a target.
func (r *run) tlsOf(t *Target) *tls.Config {
	config := r.o.TLS.Clone()
	if r.o.HTTP2 {
		config.NextProtos = []string{"h2"}
	}
	host, _, _ := net.SplitHostPort(t.Name)
	config.ServerName = cmp.Or(config.ServerName, host, t.Name)
	return config
}
