package proxy

import (
	"io"
	"net/http"
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
}

func (b *body) Read(p []byte) (int, error) {
	_ = b.control.SetReadDeadline(time.Now().Add(b.timeout))
	n, err := b.ReadCloser.Read(p)
	// Between reads it is the origin that takes its time. HTTP/2 would end the body, and
	// at its end HTTP/1 goes on reading, to learn whether the client is there.
	_ = b.control.SetReadDeadline(time.Time{})
	if err != nil && err != io.EOF {
		b.failed.Store(&err)
	}
	return n, err
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
