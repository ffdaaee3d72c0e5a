package proxy

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A body is a request's body whose every read has a deadline, so that a client that sends
// a byte a minute holds neither the node nor the origin.
type body struct {
	io.ReadCloser
	control  *http.ResponseController
	timeout  time.Duration         // for a pause; 0: no limit
	rate     int                   // bytes that the client has to send each second; 0: any
	failed   atomic.Pointer[error] // what ended it before its end
	ended    atomic.Bool           // it was read to its end
	answered atomic.Bool           // the origin has begun its answer, and may wait for more
	left     atomic.Bool           // the handler has returned, or is about to
	reading  sync.Mutex            // held by Read; guards what follows
	credit   time.Duration         // for which the client may be silent before it falls below rate
}

// newBody returns the body of r, which is read as options say.
func newBody(r *http.Request, control *http.ResponseController, o *Options) *body {
	b := &body{ReadCloser: r.Body, control: control, timeout: o.BodyTimeout, rate: o.BodyRate}
	b.credit = b.grace()
	return b
}

// grace is how far a client may fall behind the rate.
func (b *body) grace() time.Duration {
	if b.timeout > 0 {
		return b.timeout
	}
	return time.Minute
}

// patience returns how long the next Read may take, 0 for no limit.
func (b *body) patience() time.Duration {
	if b.rate == 0 || b.answered.Load() {
		return b.timeout
	}
	return max(b.credit, 1) // at most timeout
}

func (b *body) Read(p []byte) (int, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	if b.left.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	start, patience := time.Now(), b.patience()
	if patience > 0 {
		_ = b.control.SetReadDeadline(start.Add(patience))
	}
	n, err := b.ReadCloser.Read(p)
	// Between reads it is the origin that takes its time. HTTP/2 would end the body, and
	// at its end HTTP/1 goes on reading, to learn whether the client is there.
	if patience > 0 && !b.left.Load() {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	if b.rate > 0 {
		earned := time.Duration(n) * time.Second / time.Duration(b.rate)
		b.credit = min(b.credit-time.Since(start)+earned, b.grace())
	}
	if err == io.EOF {
		b.ended.Store(true)
	}
	if err != nil && err != io.EOF {
		b.failed.Store(&err)
	}
	return n, err
}

// leave ends a Read that is under way, and bounds how long net/http reads what is left of
// b, which it does after the handler, without a deadline of its own.
func (b *body) leave() {
	if b.ended.Load() {
		return
	}
	b.left.Store(true)
	_ = b.control.SetReadDeadline(time.Unix(1, 0))
	b.reading.Lock()
	defer b.reading.Unlock()
	deadline := time.Time{}
	if b.timeout > 0 {
		deadline = time.Now().Add(b.timeout)
	}
	_ = b.control.SetReadDeadline(deadline)
}

// early prepares an answer of the node itself, which does not wait for the request's body.
// If all of that is there, the connection is kept; if not, it is closed after the answer.
func (p *Proxy) early(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 1 {
		return
	}
	control := http.NewResponseController(w)
	if p.o.BodyTimeout > 0 {
		_ = control.SetWriteDeadline(time.Now().Add(p.o.BodyTimeout))
	}
	if r.Body == http.NoBody {
		return
	}
	_ = control.SetReadDeadline(time.Unix(1, 0))
	if _, expects := r.Header["Expect"]; !expects { // reading would ask for the body
		if _, err := io.CopyN(io.Discard, r.Body, maxDiscarded); err == io.EOF {
			_ = control.SetReadDeadline(time.Time{})
			return
		}
	}
	w.Header().Set("Connection", "close")
	if c := connOf(r); c != nil {
		c.linger.Store(true)
	}
}

// maxDiscarded is how much of an unread body is discarded to keep the connection.
const maxDiscarded = 256 << 10

// err returns what ended b before its end, or nil. b may be nil.
func (b *body) err() error {
	if b == nil || b.failed.Load() == nil {
		return nil
	}
	return *b.failed.Load()
}

// A timedWriter writes an answer whose every write and flush has a deadline.
type timedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	http2   bool
}

func (w *timedWriter) Write(p []byte) (int, error) {
	defer w.within()()
	return w.ResponseWriter.Write(p)
}

// FlushError is what http.ResponseController flushes by.
func (w *timedWriter) FlushError() error {
	defer w.within()()
	return w.control.Flush()
}

// within sets the deadline, until what it returns is called. In HTTP/1 it stays, for what
// is buffered and written at the answer's end; in HTTP/2 it would end a stream that only
// has nothing to say.
func (w *timedWriter) within() func() {
	_ = w.control.SetWriteDeadline(time.Now().Add(w.timeout))
	return func() {
		if w.http2 {
			_ = w.control.SetWriteDeadline(time.Time{})
		}
	}
}

// Unwrap lets http.ResponseController find what the inner writer can.
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
