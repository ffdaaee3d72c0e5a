package http1

import (
	"errors"
	"math"
	"strconv"
	"sync"
	"time"
)

// ErrInterrupted is returned by a Call's methods after Interrupt.
var ErrInterrupted = errors.New("http1: the exchange was interrupted")

// A Call is one exchange with an origin, for a client of another protocol. The zero value is ready to
// use. One goroutine calls its methods, except that another one may call Send and Sent, and any may
// call Interrupt.
type Call struct {
	o    *Origin
	oc   *originConn
	a    Answer
	body bodyReader

	unsent []byte // the part of a whole request that Ask did not send because of Interrupt

	mu          sync.Mutex // guards the fields below, and the deadlines of oc
	interrupted bool
	answered    bool // the final answer has begun
	cut         bool
}

// Reset makes c ready for another exchange. c must not be in use.
func (c *Call) Reset() {
	c.interrupted, c.answered, c.cut, c.unsent = false, false, false, nil
}

// Ask sends begin: the head of r, as made by AppendHead, and the part of its body that has arrived. whole
// is set if that is the whole request. If the origin has closed a reused connection, the request is sent
// again on a new one, provided that none of it was sent or it is idempotent. After ErrInterrupted, begin
// must stay as it is until Resume or End.
func (c *Call) Ask(o *Origin, r *Request, begin []byte, whole bool) error {
	c.o = o.forRequest(r)
	oc, err := c.o.send(isRepeatable(string(r.Method())), time.Now(), func(oc *originConn) (n int, err error) {
		c.setConn(oc)
		if !whole { // no timeout of the answer while the request is being sent: see Sent
			oc.readBy, oc.writeBy = time.Time{}, time.Time{}
			_ = oc.conn.SetDeadline(time.Time{})
			return oc.write(begin)
		}
		oc.setReadDeadline(time.Now(), c.o.timeout) // after connecting
		if !c.isInterrupted() {
			n, err = oc.ask(begin, smallBuffer)
		}
		if (n == 0 || err != nil) && c.isInterrupted() {
			c.unsent, err = begin[n:], ErrInterrupted
		}
		return n, err
	})
	c.setConn(oc)
	return tooEarly(err)
}

func (c *Call) setConn(oc *originConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.oc = oc
}

// Send sends more of the request. An origin that has not begun its answer must accept it within its timeout.
func (c *Call) Send(p []byte) error {
	c.mu.Lock()
	if !c.answered && !c.cut {
		c.oc.setWriteDeadline(time.Now(), c.o.timeout)
	}
	c.mu.Unlock()
	_, err := c.oc.conn.Write(p)
	return c.oc.noteReset(err)
}

// Sent must be called by the goroutine that calls Send, after the whole request has been sent or Send has failed.
// It starts the origin's timeout.
func (c *Call) Sent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answered {
		return
	}
	c.oc.readBy = time.Now().Add(c.o.timeout)
	if !c.interrupted {
		_ = c.oc.conn.SetReadDeadline(c.oc.readBy)
	}
}

// Interrupt ends the current read from the origin, or the next one.
func (c *Call) Interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interrupted = true
	if c.oc != nil {
		c.oc.interrupt()
	}
}

// Clear undoes Interrupt, and Cut for later Sends. Resume must follow.
func (c *Call) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interrupted, c.cut = false, false
}

// Resume continues the exchange after Clear, unless it was interrupted again. It sends what Ask has not sent. If cutShort is
// set, it ends the request, although that is incomplete; no Send may run.
func (c *Call) Resume(cutShort bool) error {
	c.mu.Lock()
	_ = c.oc.conn.SetReadDeadline(c.oc.readBy)
	c.mu.Unlock()
	if cutShort {
		c.oc.closeWrite()
	}
	if len(c.unsent) == 0 {
		return nil
	}
	_, err := c.oc.write(c.unsent)
	c.unsent = nil
	return err
}

// fill reads more of the answer.
func (c *Call) fill(size int) error {
	if c.isInterrupted() {
		return ErrInterrupted
	}
	err := c.oc.fill(size)
	if err != nil && c.isInterrupted() {
		return ErrInterrupted
	}
	return err
}

func (c *Call) isInterrupted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.interrupted
}

// Answer reads the head of the next answer: interim ones, then the final one. The result is valid until the
// next call of Answer or Wait.
func (c *Call) Answer(toHead bool) (*Answer, error) {
	for c.a.reset(); ; {
		done, err := c.a.scan(c.oc.buffered(), toHead)
		if err == nil && !done {
			err = c.fill(smallBuffer)
		}
		if err != nil {
			return nil, tooEarly(err)
		}
		if done {
			c.oc.use(len(c.a.raw))
			c.body = newBodyReader(c.a.Body, c.a.Length)
			c.mu.Lock()
			if c.answered = c.a.Status >= 200; c.answered && !c.cut && !c.oc.writeBy.IsZero() {
				c.oc.writeBy = time.Time{}
				_ = c.oc.conn.SetWriteDeadline(c.oc.writeBy)
			}
			c.mu.Unlock()
			return &c.a, nil
		}
	}
}

// Data returns the next bytes of the answer's body that have arrived, and whether they are the last.
// They are valid until Wait.
func (c *Call) Data() (data []byte, ended bool, err error) {
	if c.body.ended {
		return nil, true, nil
	}
	data, n, err := c.body.next(c.oc.buffered())
	c.oc.use(n)
	return data, c.body.ended, err
}

// Wait reads more of the body. It has no timeout. If the body ends with the connection, it returns io.EOF.
func (c *Call) Wait() error {
	oc := c.oc
	c.mu.Lock()
	if !oc.readBy.IsZero() && !c.interrupted {
		oc.readBy = time.Time{}
		_ = oc.conn.SetReadDeadline(oc.readBy)
	}
	c.mu.Unlock()
	err := c.fill(largeBuffer)
	if c.body.kind == UntilClose {
		return err
	}
	return tooEarly(err)
}

// Closed ends the body after Wait has returned io.EOF, unless the origin has reset the connection. No Send may run.
func (c *Call) Closed() error {
	c.body.ended = !c.oc.reset
	return c.oc.closed()
}

// Trailers returns the fields after the body, as lines that end in CRLF.
func (c *Call) Trailers() []byte { return c.body.trailers }

// End makes the origin's connection available to other requests if the whole request was sent, as whole
// says, and the whole answer was read. Otherwise it closes the connection.
func (c *Call) End(whole bool) {
	c.mu.Lock()
	oc, kept := c.oc, whole && !c.interrupted
	c.oc = nil // Interrupt no longer affects it
	c.mu.Unlock()
	switch {
	case oc == nil:
	case kept && c.body.ended && !c.a.Close && oc.r == oc.w:
		c.o.put(oc, time.Now())
	default:
		oc.close()
	}
}

// Cut ends a running Send.
func (c *Call) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	if c.oc != nil {
		c.oc.writeBy = time.Time{}
		_ = c.oc.conn.SetWriteDeadline(past)
	}
}

// AppendHead appends the head for the origin: as received, without connection-specific fields, and with
// the changes of edit.
func (r *Request) AppendHead(dst []byte, edit Relay) []byte {
	dst = append(append(dst, r.Method()...), ' ')
	dst = append(dst, r.Path()...)
	if r.hostless { // HTTP/1.1 does not allow that
		dst = append(dst, " HTTP/1.0\r\n"...)
	} else {
		dst = append(dst, " HTTP/1.1\r\n"...)
	}
	if r.authority[1] > 0 {
		dst = append(append(append(dst, "Host: "...), r.Host()...), "\r\n"...)
	}
	for f := range r.Fields {
		if f.Name == Host && r.authority[1] > 0 || !edit.Keeps(f, r.NameOf(f)) {
			continue
		}
		dst = append(append(dst, r.raw[f.start:f.valueEnds]...), "\r\n"...)
	}
	dst = edit.AppendRequest(dst)
	if r.Body == Chunked {
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
	}
	if r.Upgrade {
		dst = append(dst, "Connection: upgrade\r\n"...)
	}
	return append(dst, "\r\n"...)
}

// AppendChunkSize begins a chunk of n bytes, other than the last. Its data and CRLF follow.
func AppendChunkSize(dst []byte, n int) []byte {
	return append(strconv.AppendUint(dst, uint64(n), 16), "\r\n"...)
}

// AppendLastChunk appends the end of a body, with lines of trailers.
func AppendLastChunk(dst, trailers []byte) []byte {
	dst = append(append(dst, "0\r\n"...), trailers...)
	return append(dst, "\r\n"...)
}

// Parse reads a complete head, whose size was checked.
func (r *Request) Parse(raw []byte) error {
	r.reset()
	done, err := r.scan(raw, math.MaxInt)
	if err == nil && !done {
		return errRequestLine
	}
	return err
}
