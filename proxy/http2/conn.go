package http2

import (
	"cmp"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/proxy/http1"
)

// Receive windows (RFC 9113, 6.9). They bound the memory for bodies that an origin is slow to accept.
const (
	streamWindow = 256 << 10
	connWindow   = 1 << 20
)

// kept is the maximum size of a header for which an idle connection keeps memory, in bytes.
const kept = 2 << 10

// A Conn is a client's connection.
type Conn struct {
	server *Server
	conn   net.Conn
	peer   netip.Addr
	secure bool
	held   *conns.Holder

	// Used by the reader:
	fr       *http2.Framer // writes only while mu is held
	hp       *hpack.Decoder
	in       []byte    // has room for any frame; nil while the connection is idle
	first    [256]byte // read buffer while in is nil; small requests fit
	r, w     int       // in[r:w] has been read but not used yet
	within   bool      // a frame, or a header block, has begun and not ended
	since    time.Time // when the reader first waited for the rest of it; zero if it has not
	data     bool      // the frame is DATA
	readBy   time.Time
	now      time.Time // of the last read
	opened   bool      // the client has sent its settings
	framed   int       // size of the Framer's buffer
	block    block
	parts    []byte  // of the block, if it comes in several frames
	next     *Stream // for the next request
	prepared preparedBlock

	mu       sync.Mutex // guards the fields below
	space    sync.Cond  // there may be room to write
	out      []byte     // nil if no output waits
	wrote    int        // length of the last output
	batch    bool       // the reader is handling frames, and writes all output afterwards
	writing  bool       // a goroutine is in conn.Write
	writeBy  time.Time
	err      error // of writing
	streams  map[uint32]*Stream
	newest   uint32    // the last stream that the client has opened
	working  int       // goroutines of requests, including reset but not abandoned ones
	idle     time.Time // when the last one ended
	refused  bool      // the last request was refused
	initial  int64     // initial send window of streams
	window   int64     // send window of the connection
	receive  int64     // receive window of the connection
	consumed int       // bytes that receive will grow by

	resets    [128]uint32 // the last streams that were reset; frames for them are ignored
	nextReset int
	overhead  Overhead
	tableless bool // the client knows that the dynamic table is not used

	askedToLeave bool // the client was told to open no more streams
	last         bool // the client was told which stream was the last
}

func newConn(s *Server, conn net.Conn, secure bool) *Conn {
	now := time.Now()
	c := &Conn{
		server: s, conn: conn, peer: conns.Peer(conn), secure: secure, streams: map[uint32]*Stream{},
		initial: 65535, window: 65535, receive: connWindow, now: now, idle: now,
		overhead: NewOverhead(s.o.MaxOverhead, now),
	}
	c.space.L = &c.mu
	c.fr = http2.NewFramer(c, c)
	c.fr.SetMaxReadFrameSize(maxFrame)
	c.hp = hpack.NewDecoder(4096, c.field)
	c.hp.SetMaxStringLength(2 * s.o.MaxHeaderBytes)
	// Nothing may be written before the settings (RFC 9113, 3.4), not even GOAWAY.
	_ = c.fr.WriteSettings(
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(s.o.MaxStreams)},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: streamWindow},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: uint32(s.o.MaxHeaderBytes)},
	)
	_ = c.fr.WriteWindowUpdate(0, connWindow-65535)
	return c
}

// serve reads frames until the connection ends.
func (c *Conn) serve() {
	defer c.end()
	defer conns.LogPanic(c.server.o.Logger, "panic while serving a connection")
	err := c.start()
	for err == nil {
		c.within, c.data = c.block.id != 0, false
		if !c.within {
			c.since = time.Time{}
		}
		var fh http2.FrameHeader
		fh, err = c.fr.ReadFrameHeader()
		if err == nil {
			err = c.frame(fh)
		}
		if broken, ok := err.(http2.StreamError); ok {
			err = c.streamError(broken.StreamID, broken.Code, 2*CostReset)
		}
	}
	c.fail(err)
}

// start reads the preface (RFC 9113, 3.4).
func (c *Conn) start() error {
	c.within = true
	begun, err := c.need(len(http2.ClientPreface))
	if err == nil && string(begun) != http2.ClientPreface {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return err
}

// fail ends the connection after err.
func (c *Conn) fail(err error) {
	code := http2.ErrCodeNo
	broken, ok := err.(http2.ConnectionError)
	switch {
	case ok:
		code = http2.ErrCode(broken)
	case errors.Is(err, http2.ErrFrameTooLarge):
		code = http2.ErrCodeFrameSize
	case http1.IsTimeout(err) && c.within:
		code = http2.ErrCodeEnhanceYourCalm
	case !http1.IsTimeout(err) && err != errEnds:
		return // the client is gone
	}
	if code != http2.ErrCodeNo {
		c.server.o.Handler.Malformed(c.peer, nil)
	}
	c.mu.Lock()
	if !c.last || code != http2.ErrCodeNo {
		_ = c.fr.WriteGoAway(c.newest, code, nil)
	}
	c.batch = false
	for (c.out != nil || c.writing) && c.err == nil {
		if !c.kick() {
			c.space.Wait() // another goroutine writes the last answer
		}
	}
	c.mu.Unlock()
	c.freeInput()
	c.parts, c.next = nil, nil
	c.held.Hold(conns.LingerSize)
	conns.Linger(c.conn, lingerTime)
}

// lingerTime is how long a client has to read the last output.
const lingerTime = 500 * time.Millisecond

// end closes c. Its requests end, except those that continue without their client.
func (c *Conn) end() {
	_ = c.conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batch = false
	if c.err == nil {
		c.err = net.ErrClosed
	}
	for _, s := range c.streams {
		c.lose(s)
	}
	c.freeInput()
}

func (c *Conn) freeInput() {
	conns.FreeBuffer(c.in)
	c.in = nil
}

// Read reads for the Framer.
func (c *Conn) Read(p []byte) (int, error) {
	if c.r == c.w {
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.in[c.r:c.w])
	c.r += n
	c.within = true
	return n, nil
}

// need reads and returns the next n bytes. They are valid until the next read.
func (c *Conn) need(n int) ([]byte, error) {
	for c.w-c.r < n {
		if err := c.fill(); err != nil {
			return nil, err
		}
	}
	c.r += n
	return c.in[c.r-n : c.r], nil
}

// fill writes pending output, then reads more, and begins a batch of output.
func (c *Conn) fill() error {
	if c.r == c.w {
		c.r, c.w = 0, 0
	} else if c.w == len(c.in) {
		c.w = copy(c.in, c.in[c.r:c.w])
		c.r = 0
	}
	for {
		idle, err := c.prepareRead()
		if err != nil {
			return err
		}
		n := 0
		if idle && c.w == 0 { // a connection that waits for a request reads into a small buffer of its own
			c.freeInput()
			if c.next != nil && cap(c.next.head) > kept {
				c.next = nil
			}
			if cap(c.block.cookies) > kept {
				c.block.cookies = nil
			}
			n, err = c.conn.Read(c.first[:])
			c.in = conns.NewBuffer(maxFrame)
			copy(c.in, c.first[:n])
		} else {
			n, err = c.conn.Read(c.in[c.w:])
		}
		c.w += n
		if again, err := c.hasRead(n, err); !again {
			return err
		}
	}
}

// hasRead begins a batch of output if n bytes were read. Otherwise, it returns why reading must end, or that the read
// has only reached a deadline that was set before the latest requests.
func (c *Conn) hasRead(n int, err error) (again bool, ends error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case n > 0:
		c.now = time.Now()
		c.batch = true
		return false, nil
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return false, cmp.Or(err, io.ErrNoProgress)
	case c.last && c.working == 0:
		return false, errEnds
	case c.within, c.working == 0 && time.Since(c.idle) >= c.server.o.Idle(c.refused):
		return false, err
	}
	c.readBy = time.Time{}
	return true, nil
}

// prepareRead writes pending output and sets the deadline of the next read. It reports whether the connection has no
// requests.
func (c *Conn) prepareRead() (idle bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batch = false
	c.kick()
	c.relieve()
	idle = c.working == 0
	c.held.Hold(c.memory(idle))
	switch {
	case c.err != nil:
		return false, c.err
	case c.last && idle:
		return false, errEnds
	}
	if c.within && c.since.IsZero() {
		c.since = time.Now()
	}
	var by time.Time
	switch o := &c.server.o; {
	case c.within && !c.data:
		by = c.since.Add(o.ReadHeaderTimeout)
	case c.within && o.BodyTimeout > 0:
		by = c.since.Add(o.BodyTimeout)
	case c.within:
	case idle:
		by = c.idle.Add(o.Idle(c.refused))
	default:
		by = time.Now().Add(o.Idle(c.refused)) // then hasRead looks whether requests have moved it
	}
	// Moving the deadline with every request would cost more than it is worth.
	if by.IsZero() != c.readBy.IsZero() || by.Before(c.readBy) || by.Sub(c.readBy) > c.server.o.IdleTimeout/8 || c.within {
		c.readBy = by
		_ = c.conn.SetReadDeadline(by)
	}
	return idle && !c.within, nil
}

// memory returns the number of bytes that the connection holds for an incomplete header or frame. DATA counts only
// while the connection has no requests.
func (c *Conn) memory(idle bool) (n int) {
	if c.framed > tiny {
		n = c.framed
	}
	if !c.within || c.data && !idle {
		return n
	}
	n += maxFrame + cap(c.block.cookies) + cap(c.parts)
	if c.next != nil {
		n += cap(c.next.head)
	}
	return n
}

var (
	errGone = errors.New("http2: the client has reset the stream or closed the connection")
	errEnds = errors.New("http2: the server ends the connection")
)

// Leave ends c when its requests are answered: see drain, which may wait until the client reads.
func (c *Conn) Leave(final bool) { go c.drain(final) }

// Cut closes c.
func (c *Conn) Cut() { _ = c.conn.Close() }

// drain sends a GOAWAY that asks the client to open no more streams, and a PING. The client's answer to the PING shows
// that it has seen the GOAWAY; the final GOAWAY follows, which ends the connection once its requests are answered. If
// the client has already been asked to open no more streams, or if final is set, drain sends the final GOAWAY at once.
// Unless final is set, it does nothing on a connection that had no request.
func (c *Conn) drain(final bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case final || c.askedToLeave:
		c.sendFinalGoAway()
	case c.newest > 0:
		c.leave()
		_ = c.fr.WritePing(false, leaving)
	}
	c.kick()
}

var leaving = [8]byte{'l', 'e', 'a', 'v', 'i', 'n', 'g'}

// leave tells the client to open no more streams. mu must be held.
func (c *Conn) leave() {
	c.askedToLeave = true
	_ = c.fr.WriteGoAway(1<<31-1, http2.ErrCodeNo, nil)
}

// sendFinalGoAway tells the client which stream was the last, and ends the connection after it. mu must be held.
func (c *Conn) sendFinalGoAway() {
	if !c.last {
		c.last = true
		_ = c.fr.WriteGoAway(c.newest, http2.ErrCodeNo, nil)
		c.endIdle()
	}
}

// endIdle interrupts the read if the connection is closing and has no requests. mu must be held.
func (c *Conn) endIdle() {
	if c.last && c.working == 0 && !c.batch {
		_ = c.conn.SetReadDeadline(conns.Past)
	}
}

// Overhead bounds the work that a client may cause in addition to its requests: settings, pings, priorities, empty
// data, unknown frames, windows that open bit by bit, header blocks that open no request, and streams that the client
// resets or makes the node reset. Each such frame has a cost. Requests, and data that the client accepts, earn the
// frames that they may need. A few more are earned as time passes.
type Overhead struct {
	left, most int
	at         time.Time
}

// NewOverhead returns the Overhead of a new connection. most is the number of frames that are left, and their maximum.
func NewOverhead(most int, now time.Time) Overhead { return Overhead{most, most, now} }

// earnTime is the time in which a connection earns a frame.
const earnTime = time.Second / 20

// tiny is the size of data below which a frame counts as overhead, in bytes.
const tiny = 1 << 10

// CostReset is the cost of a reset stream, in frames. It exceeds what the stream's request has earned.
const CostReset = 4

// Spend subtracts n, which may be negative, and reports whether enough was left.
func (o *Overhead) Spend(n int, now time.Time) bool {
	earned := now.Sub(o.at) / earnTime
	o.at = o.at.Add(earned * earnTime)
	o.left = int(min(time.Duration(o.left-n)+earned, time.Duration(o.most)))
	return o.left >= 0
}

// spend subtracts n from the overhead, and returns an error if not enough was left. Only the reader calls it. mu must
// be held.
func (c *Conn) spend(n int) error {
	if !c.overhead.Spend(n, c.now) {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	return nil
}

// pay is spend for callers that do not hold mu.
func (c *Conn) pay(n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spend(n)
}

// earn adds the window updates that a client may send for a frame with n bytes of data. If a window has cut the frame
// short, whole is false, and the frame earns by its size only. mu must be held.
func (c *Conn) earn(n int, whole bool) {
	earned := n >> 8
	if whole {
		earned = max(earned, 3)
	}
	c.overhead.left += earned // spend caps it
}
