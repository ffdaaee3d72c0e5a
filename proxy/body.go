package proxy

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/proxy/http1"
)

// A body is the body of a request that net/http serves. Each read has a deadline: a client that sends
// a byte a minute must tie up neither the node nor the origin.
type body struct {
	io.ReadCloser
	control  *http.ResponseController
	timeout  time.Duration
	failed   atomic.Pointer[error] // why it ended early
	ended    atomic.Bool           // it was read to its end
	answered atomic.Bool           // the origin has begun its answer, and may wait for more
	left     atomic.Bool           // the handler has returned, or is about to
	reading  sync.Mutex            // held by Read; guards pace
	pace     http1.Pace
}

func newBody(r io.ReadCloser, control *http.ResponseController, o *Options) *body {
	return &body{ReadCloser: r, control: control, timeout: o.BodyTimeout, pace: http1.NewPace(o.BodyTimeout, o.BodyRate)}
}

// Read reads from the client.
func (b *body) Read(p []byte) (int, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	if b.left.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	start := time.Now()
	deadline := b.pace.Deadline(start, b.answered.Load())
	if !deadline.IsZero() {
		_ = b.control.SetReadDeadline(deadline)
	}
	n, err := b.ReadCloser.Read(p)
	// Between reads the node waits for the origin. In HTTP/2, a deadline would end the body. HTTP/1 keeps
	// reading after the body, to notice when the client disconnects.
	if !deadline.IsZero() && !b.left.Load() {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	b.pace.Read(n, time.Since(start))
	if err == io.EOF {
		b.ended.Store(true)
	} else if err != nil && !b.left.Load() {
		b.failed.Store(&err)
	}
	return n, err
}

// leave ends a Read that is running, and makes further ones fail: after the handler, control must not be used. It
// limits how long net/http reads the rest of an HTTP/1 body after the handler: net/http sets no deadline itself.
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

// err returns why b ended early, or nil. b may be nil.
func (b *body) err() error {
	if b == nil || b.failed.Load() == nil {
		return nil
	}
	return *b.failed.Load()
}
