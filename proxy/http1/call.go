package http1

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/edgelimit/edge/proxy/conns"
)

// A Client is the HTTP/1.1 connection, or the stream of HTTP/2 or HTTP/3, that a Call relays a request of.
type Client interface {
	// Take returns bytes of the request's body that have arrived, and whether they are the last. If so, it also returns
	// the trailers, as lines that end in CRLF. data is valid until the next call of Take or Await.
	Take() (data, trailers []byte, ended bool, err error)

	// Arrived reports whether Take would return more now. It does not wait.
	Arrived() bool

	// Await waits until Take would return more, until by unless that is zero, or until stop is set and Wake is called. n
	// is the number of bytes that have arrived.
	Await(by time.Time, stop *atomic.Bool) (n int, err error)
	Wake()

	// Watch makes c notice when the client disconnects, until stop is called. If c notices it anyway, stop is nil.
	Watch(c *Call) (stop func())

	// Begin sends the head of an interim answer, or that of the final one with lines added. taken says that Take has
	// returned the whole body.
	Begin(a *Answer, lines []byte, taken bool) error

	// Send sends data of the answer's body. ended says that this is the last data, which trailers follow.
	Send(data []byte, ended bool, trailers []byte) error

	// Flush writes pending output.
	Flush() error
}

// A Relay edits a request for the origin, and its answer. One goroutine at a time calls its methods, except
// KeepsTrailer and Gone.
type Relay interface {
	// Keeps reports whether a field of the request is forwarded. name is its name as the client sent it.
	Keeps(f *Field, name []byte) bool

	// KeepsTrailer reports whether a trailer of the request, with this name, is forwarded.
	KeepsTrailer(name []byte) bool

	// AppendRequest appends fields for the origin to dst, as lines that end in CRLF.
	AppendRequest(dst []byte) []byte

	// Hasty reports whether the Call must notice the client's disconnect at once, not only if the origin is slow. That
	// costs a goroutine.
	Hasty() bool

	// Gone notes that the client has disconnected before the origin answered, or has failed to send the rest of its body,
	// so that the origin's connection is half-closed. It reports whether to wait for the answer anyway; a call of end
	// stops the wait. It may run in another goroutine.
	Gone(end func()) bool

	// Answered gets the head of the origin's final answer. It appends fields for the client to dst, as lines that end in
	// CRLF. If deliver is false, the client must not get the answer: the Call closes the connection to the origin and
	// returns ErrWithheld.
	Answered(dst []byte, a *Answer) (fields []byte, deliver bool)

	// Body gets each part of the answer's body, which it must not keep. The last part may be empty.
	Body(part []byte, last bool)

	// Relayed ends the exchange. If err is not nil, it is a *RelayError, and no part of an answer was sent: Relayed must
	// then answer.
	Relayed(err error)
}

// ErrWithheld is the cause of a RelayError if an answer was withheld from the client.
var ErrWithheld = errors.New("http1: the answer was withheld")

// errSwitched is the error if an origin answers 101 although the request did not ask for an upgrade.
var errSwitched = &Error{502, "the origin switched protocols without being asked to"}

// A RelayError says why a request got no answer from its origin.
type RelayError struct {
	// Client says that the client is the cause: its body was malformed or timed out, or it disconnected. Otherwise, the
	// origin could not be reached or did not answer.
	Client bool

	Err error // an *Error, a timeout, or another error of reading, writing or dialing
}

func (e *RelayError) Error() string { return e.Err.Error() }
func (e *RelayError) Unwrap() error { return e.Err }

// watchAfter is how long an origin may take before the Call watches the client, which costs a goroutine.
const watchAfter = 250 * time.Millisecond

// A Call is one exchange with an origin. It sends a request, repeats it if the origin has closed a reused connection,
// sends the answer to the client, and notices if the client leaves. The zero value is ready to use, again and again.
//
// The goroutine that calls Relay sends the request, with the part of the body that has arrived, and relays the answer.
// If more of the body follows, upload sends it in a second goroutine, which the first one ends with stopUpload. A loop
// does not call Relay, but prepare and, when the origin has answered, finish: see Conn.suspend.
//
// Upload, Client.Watch and the reader of an HTTP/2 connection call Leave when they notice that the client has left.
// Leave changes the state. Unless Relay.Gone still wants the answer, it ends the read from the origin.
type Call struct {
	client Client
	relay  Relay
	o      *Origin
	now    time.Time // when the request was sent to the origin; after the exchange, when it ended
	until  time.Time // deadline for the beginning of the origin's answer; zero after that
	head   []byte    // first bytes sent to the origin
	lines  []byte    // buffer for what Relay.Answered appends

	state  atomic.Uint32
	hasty  bool // Relay.Hasty
	chunks bool // the request's body is chunked
	broken bool // a part of the answer was sent, but not all of it
	waited bool // for more than the first bytes of the answer, or for longer than watchAfter

	leaving sync.Mutex // held while Relay.Gone runs, and when the exchange ends; locked before mu

	mu     sync.Mutex
	oc     *originConn // the goroutine of Relay sets it while mu is held, so that others can interrupt its read
	blocks func()      // called before a read that may block; may be nil

	taken atomic.Bool // the whole body of the request was taken from the client
	whole atomic.Bool // all bytes of a body of known length were sent, but its end was not taken

	// Changed by upload while it runs:
	sent      bool // the whole body was sent to the origin
	uploading chan error
	trailers  []byte      // of the request
	failure   error       // of the client, as upload returned it
	stop      atomic.Bool // upload must end

	a    Answer
	body bodyReader // of the answer
	rest []byte     // part of the body that follows head, and was taken but not sent
	left int64      // bytes of the body that were not taken; negative if unknown

	options *Options
	behind  time.Duration // how long the client's body has fallen behind BodyRate
}

// States of a Call.
const (
	over     uint32 = iota // nobody waits for the answer
	asked                  // the client waits for the answer
	alone                  // the client has left, but Relay.Gone wants the answer
	answered               // the client gets the answer
)

// Start begins a new exchange, which Relay continues. Leave has no effect before.
func (c *Call) Start(relay Relay, options *Options, now time.Time) {
	c.relay, c.hasty, c.now = relay, relay.Hasty(), now
	c.options, c.behind = options, 0
	c.sent, c.waited, c.failure, c.blocks = false, false, nil, nil
	c.taken.Store(false)
	c.stop.Store(false)
	c.state.Store(asked)
}

// Relay sends r to o, and o's answer to client. If it returns an error, a *RelayError, no part of an answer was sent.
func (c *Call) Relay(client Client, r *Request, o *Origin) error {
	err := c.prepare(client, r, o)
	if err == nil {
		err = c.repeat(c.try(false))
	}
	return c.finish(r, err)
}

// finish relays the answer and ends the exchange, even if a method of Relay panics. If err is not nil, the exchange has
// failed before the answer.
func (c *Call) finish(r *Request, err error) (unanswered error) {
	whole := false
	defer func() { c.close(r, whole) }()
	if err == nil {
		err = c.readAnswer(r)
	}
	switch {
	case err == nil:
		err = c.answer()
		whole = err == nil
	case err == ErrWithheld:
		unanswered = &RelayError{false, err}
	default:
		unanswered = c.failed(err)
	}
	c.broken = err != nil && unanswered == nil
	return unanswered
}

// close ends the exchange. whole says that the client got the whole answer.
func (c *Call) close(r *Request, whole bool) {
	c.stopUpload()
	c.now = time.Now()
	c.leaving.Lock()
	c.mu.Lock()
	oc, ended := c.oc, c.state.Swap(over) == over
	c.oc = nil
	c.mu.Unlock()
	c.leaving.Unlock()
	switch {
	case oc == nil:
	case whole && c.sent && !ended && !c.a.Close && !r.hostless && oc.r == oc.w:
		c.o.put(oc, c.now)
	default:
		oc.close()
	}
	conns.FreeBuffer(c.head)
	c.head, c.rest, c.trailers, c.client, c.relay = nil, nil, nil, nil, nil
}

// prepare makes c.head of the request's head and the part of its body that has arrived.
func (c *Call) prepare(client Client, r *Request, o *Origin) error {
	c.client, c.o, c.chunks, c.left = client, o, r.Body == Chunked, r.Length
	if o.http1 != nil && (r.Upgrade || len(r.Host()) == 0) { // HTTP/2 has neither upgrades nor requests without a host
		c.o = o.http1
	}
	c.head = r.AppendHead(conns.NewBuffer(smallBuffer)[:0], c.relay)
	for !c.sent && len(c.rest) == 0 {
		data, err := c.take()
		if err != nil {
			c.failure = err
			return err
		}
		if len(c.head)+len(data) > largeBuffer {
			c.rest = data
			break
		}
		c.head = appendChunk(conns.Grow(c.head, len(data)), data, c.chunks)
		if len(c.trailers) > maxTrailers { // a bridge has no room for them
			break
		}
		if c.taken.Load() && c.chunks {
			c.head = appendLastChunk(c.head, c.trailers)
		}
		c.sent = c.taken.Load()
		if len(data) == 0 && !c.sent && !c.client.Arrived() {
			break
		}
	}
	return nil
}

// repeat returns err, the error of a try, nil if it succeeded. But if the origin has closed a reused connection, and
// either nothing was sent or the request is idempotent, repeat tries once more over a new one. n is how much of c.head
// was sent.
func (c *Call) repeat(n int, err error) error {
	oc := c.oc
	if err == nil || oc == nil {
		return err
	}
	if c.state.Load() == over {
		return errClosed
	}
	idempotent := isIdempotent(c.head)
	again := oc.reused && oc.w == 0 && (n == 0 || idempotent) && !IsTimeout(err)
	if bridge, ok := err.(bridgeError); ok {
		again = bridge.mayRepeat(idempotent)
	}
	if again {
		oc.close()
		if _, err = c.try(true); err != nil && c.state.Load() == over {
			return errClosed
		}
	}
	return err
}

// use makes oc the connection to the origin. It is nil if connecting has failed.
func (c *Call) use(oc *originConn) {
	c.mu.Lock()
	c.oc = oc
	c.mu.Unlock()
	if oc != nil && !oc.reused {
		c.now = time.Now() // the origin's timeout does not include the time to connect
	}
	c.until = c.now.Add(c.o.timeout)
}

// try sends c.head over a connection, which is new if fresh is set. If that is the whole request, it also reads the
// beginning of the answer. Otherwise, it starts the upload of the rest. n is how much of c.head was sent.
func (c *Call) try(fresh bool) (n int, err error) {
	oc, err := c.o.get(fresh, c.now)
	c.use(oc)
	switch {
	case err != nil:
		return 0, err
	case c.state.Load() == over:
		return 0, errClosed
	case !c.sent:
		if n, err = oc.write(c.head); err == nil {
			c.uploading = make(chan error, 1)
			c.whole.Store(c.left == 0 && len(c.rest) == 0)
			go c.runUpload(oc)
		}
		return n, err
	case !c.hasty:
		oc.wakeWithin(c.now, watchAfter)
		n, err = oc.ask(c.head, largeBuffer)
		if 0 < n && n < len(c.head) || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
	if n == 0 { // hasty, or a busy machine has reached the deadline before the write
		if n, err = oc.write(c.head); err != nil {
			return n, err
		}
	}
	return n, c.fill(c.hasty)
}

// Leave notes that the client has left, or will not send the rest of the request, and reports whether the exchange
// continues without it. It may be called from any goroutine.
func (c *Call) Leave() (continues bool) {
	if !c.continues() {
		c.end()
		return false
	}
	return true
}

// continues notes that the client has left, and reports whether the exchange continues without it.
func (c *Call) continues() bool {
	c.leaving.Lock()
	defer c.leaving.Unlock()
	if c.state.CompareAndSwap(asked, alone) && !c.relay.Gone(c.end) {
		c.state.CompareAndSwap(alone, asked)
	}
	return c.state.Load() == alone
}

// end ends the exchange. It may be called from any goroutine, even after the exchange.
func (c *Call) end() {
	c.state.Store(over)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.oc != nil {
		c.oc.interrupt()
	}
}

// fill reads more of the answer, until c.until unless that is zero. The origin's timeout begins when the whole request
// has been sent. When the origin has taken watchAfter, or at once if waited is set, fill flushes the client's output,
// and begins to watch the client.
func (c *Call) fill(waited bool) error {
	c.waited = true
	if c.blocks != nil {
		c.blocks()
	}
	oc := c.oc
	for ; ; waited = true {
		if waited {
			_ = c.client.Flush() // the next write returns the same error
		}
		if sent := c.joinUpload(); waited && sent {
			break
		} else if !sent && !c.until.IsZero() {
			c.until = time.Now().Add(c.o.timeout)
		}
		now, timeout := time.Now(), watchAfter
		if !c.until.IsZero() { // it must end even if parts of a head, or interim answers, keep arriving
			timeout = min(timeout, c.until.Sub(now))
		}
		oc.setReadDeadline(now, timeout)
		if c.state.Load() == over {
			return errClosed
		}
		err := oc.more(largeBuffer)
		switch {
		case !errors.Is(err, os.ErrDeadlineExceeded): // timeouts of a bridge's transport are not ours
			return err
		case !c.until.IsZero() && time.Now().After(c.until):
			return err
		}
	}
	oc.readBy = c.until
	_ = oc.conn.SetReadDeadline(c.until)
	if c.state.Load() != alone {
		if stop := c.client.Watch(c); stop != nil {
			defer stop()
		}
	}
	if c.state.Load() == over {
		return errClosed
	}
	return oc.more(largeBuffer)
}

// readAnswer reads the head of the final answer, and relays interim answers.
func (c *Call) readAnswer(r *Request) error {
	for c.a.reset(); ; {
		done, err := c.a.scan(c.oc.buffered(), r.Head)
		switch {
		case err != nil:
			return err
		case !done:
			if err := c.fill(c.hasty); err != nil {
				return err
			}
			continue
		case c.a.Status == http.StatusSwitchingProtocols && !r.Upgrade:
			return errSwitched
		}
		if !c.a.interim() {
			break
		}
		_ = c.client.Begin(&c.a, nil, false) // the next write returns the same error
		c.oc.use(len(c.a.raw))
		c.a.reset()
	}
	c.state.CompareAndSwap(asked, answered)
	c.until = time.Time{}
	var deliver bool
	if c.lines, deliver = c.relay.Answered(c.lines[:0], &c.a); !deliver {
		return ErrWithheld
	}
	return nil
}

// answer sends the final answer to the client.
func (c *Call) answer() error {
	oc, a, b := c.oc, &c.a, &c.body
	if a.Status == http.StatusSwitchingProtocols {
		c.stopUpload()
	}
	if err := c.client.Begin(a, c.lines, c.taken.Load()); err != nil {
		return err
	}
	oc.use(len(a.raw))
	if a.Status == http.StatusSwitchingProtocols {
		c.client.(*Conn).tunnel(oc)
		return errClosed
	}
	for *b = a.reader(); !b.ended; {
		data, n, err := b.next(oc.buffered())
		if err == nil && (len(data) > 0 || b.ended) {
			c.relay.Body(data, b.ended)
			err = c.client.Send(data, b.ended, b.trailers)
		}
		oc.use(n)
		if err != nil {
			return err
		}
		if n > 0 || b.ended {
			continue
		}
		if err := c.client.Flush(); err != nil {
			return err
		}
		err = c.fill(false)
		if err == io.EOF && b.kind == UntilClose {
			c.stopUpload()
			if oc.reset {
				return syscall.ECONNRESET
			}
			b.ended = true
			c.relay.Body(nil, true)
			err = c.client.Send(nil, true, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// failed returns the *RelayError for an error that occurred before the answer.
func (c *Call) failed(err error) error {
	c.stopUpload()
	switch state := c.state.Load(); {
	case c.failure != nil:
		return &RelayError{true, c.failure}
	case state == alone, state == over:
		return &RelayError{true, errClosed}
	}
	return &RelayError{false, tooEarly(err)}
}
