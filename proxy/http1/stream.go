package http1

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// answer reads the origin's answer and sends it to the client.
func (t *relaying) answer(r *Request) error {
	a := &t.x.answer
	for {
		if err := t.readHead(a); err != nil {
			return t.failed(err)
		}
		if a.Status >= http.StatusOK {
			break
		}
		if a.Status == http.StatusSwitchingProtocols {
			if !r.Upgrade {
				return t.failed(ErrSwitched)
			}
			return t.switchProtocols(a)
		}
		t.interim(a)
	}
	err := t.final(r, a)
	if err == ErrWithheld {
		return t.failed(err)
	}
	if err != nil {
		t.c.closing = true // a part of the answer was sent
		_ = t.c.flush()
		t.c.out = t.c.out[:0]
		if t.minor == 0 && a.Length < 0 {
			t.c.abort() // or the answer would seem whole
		}
	}
	return nil
}

// ErrSwitched is the error for an unexpected 101 of an origin.
var ErrSwitched = &Error{502, "the origin switched protocols without being asked to"}

// readHead reads the head of the next answer.
func (t *relaying) readHead(a *Answer) error {
	for a.reset(); ; {
		done, err := a.scan(t.oc.buffered(), t.toHead)
		if done || err != nil {
			return err
		}
		if err := t.fill(t.edit.Hasty()); err != nil {
			return err
		}
	}
}

// maxAnswerHead is the maximum size of an answer's head, in bytes.
const maxAnswerHead = 256 << 10

// interim forwards an interim answer, but not to HTTP/1.0 clients (RFC 9110, 15.2).
func (t *relaying) interim(a *Answer) {
	if t.minor > 0 {
		out := t.appendHead(t.c.room(), a)
		t.c.out = append(out, "\r\n"...)
		_ = t.c.flush() // the next write returns the same error
	}
	t.oc.use(len(a.raw))
}

// appendHead appends the status line and the forwarded fields.
func (t *relaying) appendHead(dst []byte, a *Answer) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(a.Status), 10)
	dst = append(dst, ' ')
	dst = append(append(dst, a.raw[a.reason[0]:a.reason[1]]...), "\r\n"...)
	for f := range a.Fields {
		if f.Name == ContentLength && (a.Status < http.StatusOK || a.Status == http.StatusNoContent) {
			continue
		}
		dst = append(append(dst, a.raw[f.start:f.valueEnds]...), "\r\n"...)
	}
	return dst
}

// final sends the last answer.
func (t *relaying) final(r *Request, a *Answer) error {
	c, oc := t.c, t.oc
	t.begun.Store(true)
	t.until = time.Time{}
	t.joinUpload()
	if t.uploading != nil || !t.x.body.ended {
		c.closing = true
	}
	b := newBodyReader(a.Body, a.Length)
	chunked := (b.kind == Chunked || b.kind == UntilClose) && t.minor > 0
	out := t.appendHead(c.room(), a)
	out, deliver := t.edit.Answered(out, a)
	if !deliver {
		return ErrWithheld
	}
	c.sentStatus = a.Status
	if chunked {
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	}
	framed := chunked || b.kind == Sized || b.kind == NoBody
	c.out = append(c.appendConnection(out, r, framed), "\r\n"...)
	oc.use(len(a.raw))
	kept := !a.Close && !r.hostless
	if err := t.stream(&b, chunked); err != nil {
		return err
	}
	t.endUpload()
	c.upstream.Store(nil)
	c.now = time.Now()
	if kept && t.uploading == nil && t.x.body.ended && oc.r == oc.w && !t.gone.Load() {
		t.o.put(oc, c.now)
		t.oc = nil
	}
	return nil
}

// stream sends the body b of the answer.
func (t *relaying) stream(b *bodyReader, chunked bool) error {
	c, oc := t.c, t.oc
	for !b.ended {
		data, n, err := b.next(oc.buffered())
		if err != nil {
			return err
		}
		if len(data) > 0 {
			c.sentBytes += int64(len(data))
			if err := c.sendChunk(data, chunked); err != nil {
				return err
			}
		}
		oc.use(n)
		if n > 0 || b.ended {
			continue
		}
		if err := c.flush(); err != nil {
			return err
		}
		if err := t.fill(false); err == io.EOF && b.kind == UntilClose {
			t.endUpload()
			if err := oc.closed(); err != nil {
				return err
			}
			b.ended = true
		} else if err != nil {
			return err
		}
	}
	if chunked {
		c.out = AppendLastChunk(c.room(), b.trailers)
	}
	return nil
}

// joinUpload records the result of the upload if it has ended.
func (t *relaying) joinUpload() {
	select {
	case t.failure = <-t.uploading:
		t.c.readBy, t.uploading = time.Time{}, nil
	default:
	}
}

// endUpload stops the upload if it is running.
func (t *relaying) endUpload() {
	if t.joinUpload(); t.uploading == nil {
		return
	}
	t.stop.Store(true)
	t.c.interrupt()
	_ = t.oc.conn.Close()
	t.failure = <-t.uploading
	t.c.readBy, t.uploading = time.Time{}, nil
}

// watch starts a goroutine that notices when the client disconnects. A client that has only shut down its
// side may still read: the exchange continues if the origin sends something within abandonAfter.
func (t *relaying) watch() {
	t.c.resetAwaitEnd()
	t.watching, t.over = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(t.watching)
		half, gone := t.c.awaitEnd()
		if !gone {
			return
		}
		if t.continues() {
			return
		}
		if half {
			select {
			case <-t.over:
				return
			case <-time.After(abandonAfter):
			}
		}
		t.giveUp()
	}()
}

// stopWatching ends the goroutine of watch.
func (t *relaying) stopWatching() {
	close(t.over)
	t.c.endAwait()
	<-t.watching
	t.c.resetAwaitEnd()
	t.watching = nil
}

// end releases the resources of the exchange. It closes the connection to the origin unless final has made
// it available to others.
func (t *relaying) end() {
	t.endUpload()
	t.c.upstream.Store(nil)
	if t.oc != nil {
		t.oc.close()
	}
	freeBuffer(t.head)
}

// switchProtocols forwards the 101 answer, then bytes in both directions until both sides have
// ended.
func (t *relaying) switchProtocols(a *Answer) error {
	c, oc := t.c, t.oc
	t.endUpload()
	c.closing = true
	out := t.appendHead(c.room(), a)
	out, deliver := t.edit.Answered(out, a)
	if !deliver {
		return t.failed(ErrWithheld)
	}
	c.sentStatus = a.Status
	out = append(out, "Connection: upgrade\r\n\r\n"...)
	oc.use(len(a.raw))
	c.out = append(out, oc.buffered()...)
	if c.flush() != nil {
		return nil
	}
	for _, conn := range []net.Conn{c.conn, oc.conn} {
		_ = conn.SetDeadline(time.Time{})
	}
	if _, err := oc.conn.Write(c.buffered()); err != nil {
		return nil
	}
	c.r, c.w, oc.r, oc.w = 0, 0, 0, 0
	c.release()
	oc.release()
	c.server.Forget(c)
	defer context.AfterFunc(c.server.o.Tunnels, func() {
		_ = c.conn.Close()
		_ = oc.conn.Close()
	})()
	done := make(chan struct{})
	go func() {
		defer close(done)
		tunnel(oc.conn, c.conn)
	}()
	tunnel(c.conn, oc.conn)
	<-done
	return nil
}

// tunnel copies from one connection to the other until from ends.
func tunnel(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil && half.CloseWrite() == nil {
		return
	}
	_ = to.Close()
	_ = from.Close()
}
