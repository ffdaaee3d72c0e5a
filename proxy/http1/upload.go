package http1

import (
	"bytes"
	"cmp"
	"errors"
	"time"

	"github.com/edgelimit/edge/proxy/conns"
)

// take takes bytes of the request's body. With the last of them, it sets c.trailers to the forwarded trailers.
func (c *Call) take() (data []byte, err error) {
	data, trailers, ended, err := c.client.Take()
	c.taken.Store(ended)
	c.left -= int64(len(data))
	for line := range bytes.Lines(trailers) {
		if name, _, _ := bytes.Cut(line, []byte(":")); ended && c.relay.KeepsTrailer(name) {
			c.trailers = append(c.trailers, line...)
		}
	}
	return data, err
}

var errPanic = errors.New("http1: sending the request has panicked")

// runUpload runs upload, and sends its result to c.uploading. If upload panics, the exchange ends.
func (c *Call) runUpload(oc *originConn) {
	err := errPanic
	defer func() {
		if err == errPanic {
			c.end()
		}
		c.uploading <- err
	}()
	defer conns.LogPanic(c.options.Logger, "panic while sending a request")
	err = c.upload(oc)
}

// upload sends the rest of the body, in its own goroutine. It returns an error only if the client fails. It returns nil
// if the body is sent, the origin accepts no more, or stopUpload was called: the origin may still answer.
func (c *Call) upload(oc *originConn) error {
	for data := c.rest; ; {
		err := oc.sendChunk(data, c.chunks)
		taken := c.taken.Load()
		if taken && c.chunks {
			oc.out = appendLastChunk(oc.room(), c.trailers)
		}
		if err == nil && (taken || len(data) == 0) {
			err = oc.flush()
		}
		c.sent = taken && err == nil
		if taken || err != nil {
			return nil
		}
		if len(data) == 0 {
			c.whole.Store(c.left == 0)
			err = c.await()
		}
		if c.stop.Load() {
			return nil
		}
		if err == nil {
			data, err = c.take()
		}
		if err != nil {
			if c.Leave() { // an origin that has seen enough may still answer
				_ = oc.flush()
				oc.closeWrite()
			}
			return tooEarly(err)
		}
	}
}

// await waits for more of the request's body. Once the origin has begun to answer, BodyRate does not apply: the client
// may be waiting for the answer.
func (c *Call) await() error {
	var by time.Time
	start, l := time.Now(), &c.options.Limits
	switch {
	case l.BodyRate > 0 && c.state.Load() != answered:
		by = start.Add(max(cmp.Or(l.BodyTimeout, time.Minute)-c.behind, 1))
	case l.BodyTimeout > 0:
		by = start.Add(l.BodyTimeout)
	}
	n, err := c.client.Await(by, &c.stop)
	if l.BodyRate > 0 {
		earned := time.Duration(n) * time.Second / time.Duration(l.BodyRate)
		c.behind = max(c.behind+time.Since(start)-earned, 0)
	}
	return err
}

// joinUpload records the result of an upload that has ended, and reports whether no upload is running.
func (c *Call) joinUpload() bool {
	select {
	case c.failure = <-c.uploading:
		c.uploading = nil
	default:
	}
	return c.uploading == nil
}

// stopUpload stops a running upload. If all but the end of the client's stream was sent, the request counts as sent;
// otherwise, stopUpload closes the connection to the origin. It does not wake a client that has sent everything, and
// may send another request.
func (c *Call) stopUpload() {
	if c.joinUpload() {
		return
	}
	c.stop.Store(true)
	if !c.taken.Load() {
		c.client.Wake()
	}
	whole := c.whole.Load()
	if !whole {
		_ = c.oc.conn.Close()
	}
	c.failure = <-c.uploading
	c.uploading, c.sent = nil, whole && c.failure == nil
}
