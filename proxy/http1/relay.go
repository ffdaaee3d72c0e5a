package http1

import (
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/proxy/conns"
)

// abandonAfter is how long the node waits for the origin after the client has shut down its side of the connection.
// Such a client may still read the answer.
const abandonAfter = 5 * time.Second

// relay relays the current request to o. In a loop, it returns before o has answered: see suspend.
func (c *Conn) relay(o *Origin, relay Relay) {
	call := &c.x.call
	call.Start(relay, &c.server.o, c.clock())
	c.now = time.Time{}
	err := call.prepare(c, &c.x.req, o)
	if err == nil {
		if c.suspend() {
			return
		}
		err = call.repeat(call.try(false))
	}
	c.finishRelay(err)
}

// suspend sends the request over an idle connection that the loop of c watches, and reports whether it did. If so, c
// continues when the origin answers: see resume. Otherwise, c has left its loop.
func (c *Conn) suspend() bool {
	call := &c.x.call
	var oc *originConn
	// Without edge, the client may have ended its side. Answers to earlier requests must not wait for a slow origin.
	if c.loop != nil && c.edge && len(c.out) == 0 && len(call.head) <= smallBuffer {
		oc = c.loop.take(call.o, call.now)
	}
	if oc == nil {
		c.leave()
		return false
	}
	call.use(oc)
	call.blocks = c.blocks
	oc.data = call.head
	_ = oc.raw.Control(oc.writes) // the next read returns an error
	c.awaits(oc)
	return true
}

// resume continues an exchange that suspend has begun. It waits for the answer if c has left its loop. Otherwise, done
// is false if the answer has not begun.
func (c *Conn) resume() (done bool) {
	call, oc := &c.x.call, c.awaited
	sent, n, err := len(call.head)-len(oc.data), 0, error(nil)
	switch {
	case c.loop == nil:
		if n, err = oc.write(oc.data); err == nil { // nothing is left unless the kernel is out of memory
			err = call.fill(true)
		}
	case oc.raw.Control(oc.polls) == nil && !oc.polled:
		return false
	case oc.err != nil:
		err = oc.err
		c.leave()
	}
	c.awaits(nil)
	sent += n
	call.sent = sent == len(call.head)
	c.finishRelay(call.repeat(sent, err))
	c.x.answered = true
	return true
}

// finishRelay relays the answer and ends the exchange: see Call.finish. Then it calls Relayed.
func (c *Conn) finishRelay(err error) {
	x := c.x
	call, relay := &x.call, x.call.relay
	oc := call.oc
	err = call.finish(&x.req, err)
	c.now = call.now
	c.light++
	if call.waited || oc == nil || oc.raw == nil {
		c.light = 0
	}
	if !x.body.ended {
		c.closing = true // the rest of the body would be read as a request
	}
	if call.broken {
		err, c.closing = nil, true
		_ = c.flush()
		c.out = c.out[:0]
		if x.req.Minor == 0 && call.a.Length < 0 {
			c.abort() // otherwise, the answer would seem whole
		}
	}
	relay.Relayed(err)
}

func (c *Conn) Take() (data, trailers []byte, ended bool, err error) {
	b := &c.x.body
	c.useHead()
	data, n, err := b.next(c.buffered())
	c.use(n)
	if b.ended && len(data) == 0 {
		c.releaseIn() // other requests use the buffer while this one waits for the origin
	}
	return data, b.trailers, b.ended, err
}

// Arrived also reads the socket once: a short body that has arrived just after the head is then sent to the origin with
// the head, and needs no goroutine.
func (c *Conn) Arrived() bool {
	b := &c.x.body
	if b.kind == Sized {
		if b.left > largeBuffer {
			return false
		}
		c.grow(largeBuffer)
	}
	return c.moreNow()
}

func (c *Conn) Await(by time.Time, stop *atomic.Bool) (n int, err error) {
	c.readBy = time.Time{}
	_ = c.conn.SetReadDeadline(by)
	if stop.Load() {
		return 0, nil
	}
	before := c.w - c.r
	err = c.fill(largeBuffer)
	return c.w - c.r - before, err
}

func (c *Conn) Wake()        { c.interrupt() }
func (c *Conn) Flush() error { return c.flush() }

// Watch ends the exchange abandonAfter later if the client has only shut down its side: it may still read.
func (c *Conn) Watch(call *Call) (stop func()) {
	c.limitAwaitEnd(time.Time{})
	watching, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watching)
		defer conns.LogPanic(c.server.o.Logger, "panic while a client leaves")
		half, gone := c.awaitEnd()
		if !gone || call.continues() {
			return
		}
		if half {
			select {
			case <-stopped:
				return
			case <-time.After(abandonAfter):
			}
		}
		call.end()
	}()
	return func() {
		close(stopped)
		c.limitAwaitEnd(conns.Past)
		<-watching
		c.limitAwaitEnd(time.Time{})
	}
}

func (c *Conn) Begin(a *Answer, lines []byte, taken bool) error {
	if a.interim() {
		if c.x.req.Minor == 0 {
			return nil // RFC 9110, 15.2
		}
		c.out = append(a.appendHead(c.room()), "\r\n"...)
		return c.flush()
	}
	c.closing = c.closing || !taken || a.Status == http.StatusSwitchingProtocols
	c.sentStatus = a.Status
	c.out = append(a.appendHead(c.room()), lines...)
	if a.Status == http.StatusSwitchingProtocols {
		c.out = append(c.out, "Connection: upgrade\r\n\r\n"...)
		return nil
	}
	c.x.chunks = (a.Body == Chunked || a.Body == UntilClose) && c.x.req.Minor > 0
	if c.x.chunks {
		c.out = append(c.out, "Transfer-Encoding: chunked\r\n"...)
	}
	framed := c.x.chunks || a.Body == Sized || a.Body == NoBody
	c.out = append(c.appendConnection(c.out, framed), "\r\n"...)
	return nil
}

func (c *Conn) Send(data []byte, ended bool, trailers []byte) error {
	c.sentBytes += int64(len(data))
	if err := c.sendChunk(data, c.x.chunks); err != nil {
		return err
	}
	if ended && c.x.chunks {
		c.out = appendLastChunk(c.room(), trailers)
	}
	return nil
}

// tunnel forwards bytes in both directions until both sides have ended.
func (c *Conn) tunnel(oc *originConn) {
	c.out = append(c.out, oc.buffered()...)
	if c.flush() != nil {
		return
	}
	for _, conn := range []net.Conn{c.conn, oc.conn} {
		_ = conn.SetDeadline(time.Time{})
	}
	if _, err := oc.conn.Write(c.buffered()); err != nil {
		return
	}
	c.r, c.w, oc.r, oc.w = 0, 0, 0, 0
	c.release()
	oc.release()
	tunnels := c.server.o.Tunnels
	if !tunnels.Add(c) {
		return
	}
	defer tunnels.Remove(c)
	c.server.Forget(c)
	var back sync.WaitGroup
	back.Go(func() { copyAll(c.conn, oc.conn) })
	copyAll(oc.conn, c.conn)
	back.Wait()
}

// EndTunnel closes c and the connection to its origin. Only Options.Tunnels may call it: c keeps its turn while it is
// in that set.
func (c *Conn) EndTunnel() {
	oc := c.x.call.oc
	go func() { // with TLS, closing may block
		_ = c.conn.Close()
		_ = oc.conn.Close()
	}()
}

// copyAll copies from one connection to the other until from ends.
func copyAll(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil && half.CloseWrite() == nil {
		return
	}
	_ = to.Close()
	_ = from.Close()
}
