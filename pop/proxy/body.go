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
	control *http.ResponseController
	timeout time.Duration
	failed  atomic.Pointer[error] // what ended it before its end
	ended   atomic.Bool           // it was read to its end
	left    atomic.Bool           // the handler has returned, or is about to
	reading sync.Mutex            // held by Read
}

func (b *body) Read(p []byte) (int, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	if b.left.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	if b.timeout > 0 {
		_ = b.control.SetReadDeadline(time.Now().Add(b.timeout))
	}
	n, err := b.ReadCloser.Read(p)
	// Between reads it is the origin that takes its time. HTTP/2 would end the body, and
	// at its end HTTP/1 goes on reading, to learn whether the client is there.
	if b.timeout > 0 && !b.left.Load() {
		_ = b.control.SetReadDeadline(time.Time{})
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

// bound gives an answer of the node itself deadlines: net/http reads the request's body
// before it writes the answer.
func (p *Proxy) bound(w http.ResponseWriter, r *http.Request) {
	if p.o.BodyTimeout == 0 || r.ProtoMajor != 1 {
		return
	}
	control, deadline := http.NewResponseController(w), time.Now().Add(p.o.BodyTimeout)
	_ = control.SetWriteDeadline(deadline.Add(p.o.BodyTimeout))
	if r.Body != http.NoBody {
		_ = control.SetReadDeadline(deadline)
	}
}

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
