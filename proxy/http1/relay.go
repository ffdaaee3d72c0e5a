package http1

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"
)

// A Relay edits a request for the origin, and its answer. The goroutine of the connection calls its
// methods, except Gone.
type Relay interface {
	// Keeps reports whether a field of the request is forwarded. name is its name as the client
	// sent it.
	Keeps(f *Field, name []byte) bool

	// AppendRequest appends fields for the origin to dst, as lines that end in CRLF.
	AppendRequest(dst []byte) []byte

	// Hasty reports whether the client's disconnect must be noticed immediately, not only if the
	// origin is slow. That costs a goroutine.
	Hasty() bool

	// Gone is called, perhaps from another goroutine, if the client disconnects before the origin answers, or fails to send
	// the rest of its body: then the origin's connection is half-closed. It reports whether to wait for the answer
	// anyway. Calling end stops the wait.
	Gone(end func()) bool

	// Answered is called with the origin's final answer. It appends fields for the client to dst, as
	// lines that end in CRLF. If deliver is false, the client must not get the answer: the relay closes the connection
	// to the origin and returns ErrWithheld.
	Answered(dst []byte, a *Answer) (fields []byte, deliver bool)
}

// ErrWithheld is the cause of a RelayError if an answer was withheld from the client.
var ErrWithheld = errors.New("http1: the answer was withheld")

// A RelayError says why a request got no answer from its origin.
type RelayError struct {
	// Client is set if the client is the cause: its body was malformed or timed out, or it
	// disconnected. Otherwise the origin could not be reached or did not answer.
	Client bool

	Err error // an *Error, a timeout, or another error of reading, writing or dialing
}

func (e *RelayError) Error() string { return e.Err.Error() }
func (e *RelayError) Unwrap() error { return e.Err }

// watchAfter is how long an origin may take before a goroutine starts to watch whether the
// client disconnects.
const watchAfter = 250 * time.Millisecond

// abandonAfter is how long the node waits for the origin after the client has shut down its side of the
// connection. Such a client may still read the answer.
const abandonAfter = 5 * time.Second

// A relaying is one exchange with an origin.
type relaying struct {
	c      *Conn
	x      *exchange
	o      *Origin
	oc     *originConn
	edit   Relay
	head   []byte    // first bytes sent to the origin
	toHead bool      // the request is HEAD
	minor  int       // of the client's version
	now    time.Time // when the request was sent to the origin
	until  time.Time // when the origin must have begun its answer; zero after that

	uploading chan error // of upload; nil unless it runs

	watching chan struct{} // closed when watch has returned
	over     chan struct{} // closed to stop watch
	goesOn   bool          // the exchange continues without the client: see Relay.Gone
	gone     atomic.Bool   // the client no longer waits for an answer
	begun    atomic.Bool   // the answer's header has been read
	stop     atomic.Bool   // upload must end
	failure  error         // of upload, once it has ended
}

// Relay sends r to o, and o's answer to the client. If it returns a *RelayError, no part of an
// answer was sent, and the caller must answer.
func (c *Conn) Relay(r *Request, o *Origin, edit Relay) error {
	t := &c.x.relaying
	*t = relaying{} // cleared in place, without a copy on the stack
	t.c, t.x, t.o, t.edit, t.minor, t.toHead, t.now = c, c.x, o.forRequest(r), edit, r.Minor, r.Head, c.clock()
	c.now = time.Time{}
	err := t.ask(r)
	if err == nil {
		err = t.answer(r)
	}
	t.end()
	if !c.x.body.ended {
		c.closing = true // the rest of the body would be read as a request
	}
	return err
}

// ask sends the request's head and the part of its body that has been read, and starts the upload of the
// rest.
func (t *relaying) ask(r *Request) error {
	c, b := t.c, &t.x.body
	idempotent := isRepeatable(string(r.Method()))
	head := r.AppendHead(newBuffer(smallBuffer)[:0], t.edit)
	c.used()
	t.x.req.raw = nil
	head, err := t.frame(head)
	if err != nil {
		return &RelayError{true, err}
	}
	t.head = head
	oc, err := t.o.send(idempotent, t.now, func(oc *originConn) (n int, err error) {
		t.oc = oc
		if !oc.reused {
			t.now = time.Now() // connecting takes time, which the origin's timeout does not include
		}
		t.until = t.now.Add(t.o.timeout)
		if c.upstream.Store(oc); c.state.Load() == ended {
			return 0, ErrInterrupted
		}
		if n, err = t.begin(b.ended); err != nil && t.gone.Load() {
			err = ErrInterrupted
		}
		return n, err
	})
	if err != nil {
		t.oc = oc // nil if connecting failed
		return t.failed(err)
	}
	return nil
}

// frame appends the part of the body that has arrived. A short body that was sent right after the head is
// already in the socket. It is forwarded with the head and needs no goroutine.
func (t *relaying) frame(dst []byte) ([]byte, error) {
	c, b := t.c, &t.x.body
	if rest := int64(b.left) - int64(c.w-c.r); b.kind == Sized && rest > 0 && int64(len(dst))+int64(b.left) <= largeBuffer {
		head := dst
		dst = append(append(newBuffer(largeBuffer)[:0], head...), c.buffered()...)
		freeBuffer(head)
		c.use(c.w - c.r)
		n := c.readNow(dst[len(dst) : len(dst)+int(rest)])
		dst = dst[:len(dst)+n]
		b.left = uint64(rest) - uint64(n)
		b.ended = b.left == 0
		return dst, nil
	}
	for !b.ended && len(dst) < largeBuffer {
		data, n, err := b.next(c.buffered())
		if err != nil {
			return dst, err
		}
		dst = appendChunk(dst, b, data)
		c.use(n)
		if n == 0 && (b.kind != Chunked || !c.moreNow()) {
			break
		}
	}
	if b.ended {
		dst = appendEnd(dst, b)
	}
	return dst, nil
}

// appendChunk appends data of b, as a chunk if b is chunked.
func appendChunk(dst []byte, b *bodyReader, data []byte) []byte {
	if b.kind != Chunked || len(data) == 0 {
		return append(dst, data...)
	}
	dst = append(AppendChunkSize(dst, len(data)), data...)
	return append(dst, "\r\n"...)
}

// sendChunk sends data, as a chunk if chunked is set.
func (w *wire) sendChunk(data []byte, chunked bool) error {
	if !chunked || len(data) == 0 {
		return w.send(data)
	}
	w.out = AppendChunkSize(w.room(), len(data))
	if err := w.send(data); err != nil {
		return err
	}
	w.out = append(w.room(), "\r\n"...)
	return nil
}

// appendEnd appends the end of b if b is chunked.
func appendEnd(dst []byte, b *bodyReader) []byte {
	if b.kind != Chunked {
		return dst
	}
	return AppendLastChunk(dst, b.trailers)
}

// upload sends the rest of the body, in its own goroutine. It returns an error only if the client has
// failed. It returns nil once the body is sent, the origin accepts no more, or endUpload was called: the origin may
// still answer.
func (t *relaying) upload() error {
	c, b := t.c, &t.x.body
	pace := NewPace(c.server.o.BodyTimeout, c.server.o.BodyRate)
	for {
		data, n, err := b.next(c.buffered())
		if err != nil {
			t.cutShort()
			return err
		}
		err = t.oc.sendChunk(data, b.kind == Chunked)
		c.use(n)
		if b.ended {
			t.oc.out = appendEnd(t.oc.room(), b)
		}
		if err == nil && (b.ended || n == 0) {
			err = t.oc.flush()
		}
		if b.ended || err != nil {
			return nil
		}
		if n > 0 {
			continue
		}
		start := time.Now()
		_ = c.conn.SetReadDeadline(pace.Deadline(start, t.begun.Load()))
		if t.stop.Load() {
			return nil
		}
		before := c.w - c.r
		err = c.fill(largeBuffer)
		pace.Read(c.w-c.r-before, time.Since(start))
		if t.stop.Load() {
			return nil
		}
		if err != nil {
			t.cutShort()
			return tooEarly(err)
		}
	}
}

// begin sends t.head. If that is the whole request, it also reads the beginning of the answer. Otherwise it
// starts the upload of the rest.
func (t *relaying) begin(whole bool) (n int, err error) {
	switch {
	case !whole:
		if n, err = t.oc.write(t.head); err == nil {
			t.uploading = make(chan error, 1)
			go func() { t.uploading <- t.upload() }()
		}
		return n, err
	case !t.edit.Hasty():
		t.oc.wakeWithin(t.now, watchAfter)
		n, err = t.oc.ask(t.head, largeBuffer)
		if err == nil || 0 < n && n < len(t.head) || !IsTimeout(err) {
			return n, err
		}
		if n > 0 && time.Since(t.now) < watchAfter { // an earlier request had set the deadline
			t.oc.setReadDeadline(t.now, watchAfter)
			if err = t.oc.more(largeBuffer); err == nil || !IsTimeout(err) {
				return n, err
			}
		}
	}
	if n == 0 { // Hasty, or the deadline has passed before the write on a busy machine
		if n, err = t.oc.write(t.head); err != nil {
			return n, err
		}
	}
	return n, t.fill(true)
}

// fill reads more of the answer, until t.until unless that is zero. The origin's timeout begins when
// the whole request has been sent. When the origin has taken watchAfter, fill writes the answers to earlier pipelined
// requests, and begins to watch the client. waited is set if it has already taken that long.
func (t *relaying) fill(waited bool) error {
	oc := t.oc
	for ; ; waited = true {
		if waited {
			_ = t.c.flush() // the next write returns the same error
		}
		if t.joinUpload(); waited && t.uploading == nil {
			break
		}
		if t.uploading != nil && !t.until.IsZero() {
			t.until = time.Now().Add(t.o.timeout)
		}
		oc.setReadDeadline(time.Now(), watchAfter)
		err := oc.more(largeBuffer)
		switch {
		case err == nil || !errors.Is(err, os.ErrDeadlineExceeded): // a bridge returns timeouts of its transport, too
			return err
		case t.gone.Load():
			return errClosed
		case !t.until.IsZero() && time.Now().After(t.until):
			return err
		}
	}
	oc.readBy = t.until
	_ = oc.conn.SetReadDeadline(t.until)
	if !t.goesOn {
		t.watch()
		defer t.stopWatching()
	}
	if t.gone.Load() {
		return errClosed
	}
	return oc.more(largeBuffer)
}

// cutShort ends the request to the origin, because the client will not send the rest. An origin that has seen enough may
// still answer.
func (t *relaying) cutShort() {
	if !t.continues() {
		t.giveUp()
		return
	}
	_ = t.oc.flush()
	t.oc.closeWrite()
}

// continues reports whether the exchange continues after the client is gone.
func (t *relaying) continues() bool {
	t.goesOn = !t.begun.Load() && t.edit.Gone(t.giveUp)
	return t.goesOn
}

// giveUp ends the exchange. Any goroutine may call it.
func (t *relaying) giveUp() {
	t.gone.Store(true)
	if oc := t.c.upstream.Load(); oc != nil {
		oc.interrupt()
	}
}

// failed returns the *RelayError for an error that occurred before the answer.
func (t *relaying) failed(err error) error {
	t.endUpload()
	switch {
	case err == ErrWithheld:
		return &RelayError{false, err}
	case t.failure != nil && !t.x.body.ended && (t.goesOn || IsTimeout(err) || errors.Is(err, errClosed)):
		return &RelayError{true, t.failure}
	case t.goesOn, t.gone.Load(), t.c.state.Load() == ended:
		return &RelayError{true, errClosed}
	}
	return &RelayError{false, tooEarly(err)}
}

// tooEarly returns err, or io.ErrUnexpectedEOF if it is io.EOF.
func tooEarly(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
