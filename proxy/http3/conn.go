package http3

import (
	"context"
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/quicvarint"

	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/proxy/http2"
)

// Types of frames (RFC 9114, 7.2).
const (
	frameData       = 0x0
	frameHeaders    = 0x1
	frameCancelPush = 0x3
	frameSettings   = 0x4
	frameGoAway     = 0x7
	lastReserved    = 0x9 // all types up to here are defined, or reserved because HTTP/2 has them
	frameMaxPush    = 0xd
)

// Types of unidirectional streams (RFC 9114, 6.2).
const (
	streamControl = 0x0
	streamPush    = 0x1
	streamDecoder = 0x3 // the last type that is defined
)

// Codes of errors (RFC 9114, 8.1, and RFC 9204, 6).
const (
	codeNone        = 0x100
	codeInternal    = 0x102
	codeCreation    = 0x103
	codeClosed      = 0x104
	codeUnexpected  = 0x105
	codeFrame       = 0x106
	codeExcessive   = 0x107
	codeID          = 0x108
	codeSettings    = 0x109
	codeMissing     = 0x10a
	codeRejected    = 0x10b
	codeIncomplete  = 0x10d
	codeMessage     = 0x10e
	codeCompression = 0x200
)

// A Conn is a client's connection.
type Conn struct {
	server  *Server
	qc      *quic.Conn
	peer    netip.Addr // at which the client has opened the connection, even if it has moved
	held    *conns.Holder
	control *quic.SendStream
	timer   *time.Timer // closes the connection when it is idle

	mu       sync.Mutex    // guards the fields below
	next     quic.StreamID // the first stream that was not accepted yet
	working  int           // requests, including reset but not abandoned ones
	memory   int           // of incomplete heads
	refused  bool          // the last request was refused
	overhead http2.Overhead
	ended    bool // the connection's memory no longer counts as held
	left     bool // the client was told to open no more streams
	last     bool // the client was told which stream was the last
}

// open serves a connection whose handshake has ended.
func (s *Server) open(qc *quic.Conn) {
	qc.Context().Value(handshakeEnd{}).(func())()
	peer := conns.Peer(qc)
	c := &Conn{server: s, qc: qc, peer: peer, overhead: http2.NewOverhead(s.o.MaxOverhead, time.Now())}
	c.timer = time.AfterFunc(s.o.IdleTimeout, func() { c.close(codeNone) })
	var ended func()
	c.held, ended = s.o.Add(c, peer)
	settings := quicvarint.Append([]byte{0x6}, uint64(s.o.MaxHeaderBytes)) // SETTINGS_MAX_FIELD_SECTION_SIZE
	control, err := qc.OpenUniStream()
	if err == nil {
		c.control = control
		err = control.TryWriteAll(appendFrame([]byte{0}, frameSettings, settings)) // 0: the control stream
	}
	if err != nil {
		c.close(codeCreation)
	}
	if done := s.Begin(c, c, ended); done != nil {
		go c.serve(done)
	}
}

// Close closes the connection at once.
func (c *Conn) Close() error { return c.close(codeExcessive) }

// Cut is Close without waiting.
func (c *Conn) Cut() { go c.Close() }

func (c *Conn) close(code quic.ApplicationErrorCode) error { return c.qc.CloseWithError(code, "") }

// serve accepts streams until the connection ends. Then it calls done.
func (c *Conn) serve(done func()) {
	defer done()
	defer c.end()
	defer conns.LogPanic(c.server.o.Logger, "panic while serving a connection")
	go c.acceptUni()
	for {
		qs, err := c.qc.AcceptStream(context.Background())
		if err != nil {
			return
		}
		c.mu.Lock()
		rejected := c.last
		if !rejected {
			c.next = qs.StreamID() + 4
			c.timer.Stop()
			c.working++
			c.refused = false
		}
		c.mu.Unlock()
		if rejected {
			cancel(qs, codeRejected)
			qs.ReleaseStreamCredit()
			_ = c.pay(1)
			continue
		}
		go newStream(c, qs).run()
	}
}

// end stops the timer and the accounting of memory of an ended connection.
func (c *Conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.timer.Stop()
}

// done records that a request has ended. mu must be held.
func (c *Conn) done() {
	if c.working--; c.working > 0 || c.ended {
		return
	}
	wait := c.server.o.Idle(c.refused)
	if c.last {
		wait = lingerTime
	}
	c.timer.Reset(wait)
}

// lingerTime is how long a client has to receive the last output.
const lingerTime = 500 * time.Millisecond

// Leave tells the client to open no more streams. If last is set, it also says which stream was the last, and ends the
// connection after that stream (RFC 9114, 5.2).
func (c *Conn) Leave(last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last || c.left && !last || c.control == nil {
		return
	}
	id := quic.StreamID(1<<62 - 4)
	if last {
		id = c.next
	}
	c.left, c.last = true, last
	_ = c.control.TryWriteAll(appendFrame(nil, frameGoAway, quicvarint.Append(nil, uint64(id))))
	if last && c.working == 0 {
		c.timer.Reset(lingerTime)
	}
}

// pay subtracts n from the overhead. If not enough was left, it closes the connection and returns an error.
func (c *Conn) pay(n int) error {
	c.mu.Lock()
	calm := c.overhead.Spend(n, time.Now())
	c.mu.Unlock()
	if !calm {
		return c.violated(codeExcessive)
	}
	return nil
}

// violated counts a violation of the protocol and closes the connection.
func (c *Conn) violated(code quic.ApplicationErrorCode) error {
	c.server.o.Handler.Malformed(c.peer, nil)
	_ = c.close(code)
	return errGone
}

// controlSize is the maximum size of a frame that RFC 9114 defines for the control stream, in bytes.
const controlSize = 1 << 10

// acceptUni accepts the client's unidirectional streams (RFC 9114, 6.2). It does not read those of QPACK, which their
// windows bound: without a dynamic table, only their end matters (RFC 9204, 4.2).
func (c *Conn) acceptUni() {
	defer conns.LogPanic(c.server.o.Logger, "panic while serving a connection")
	for refused := 1 << streamPush; ; {
		qs, err := c.qc.AcceptUniStream(context.Background())
		if err != nil {
			return
		}
		r := quicvarint.NewReader(qs)
		kind, err := quicvarint.Read(r)
		switch {
		case err != nil || kind > streamDecoder:
			qs.CancelRead(codeCreation)
			continue
		case refused>>kind&1 != 0:
			_ = c.violated(codeCreation)
		case kind == streamControl:
			go c.readControl(r)
		default:
			qs.SetReceiveFinalSizeCallback(func(int64) { go c.close(codeClosed) })
		}
		refused |= 1 << kind
	}
}

// readControl reads the client's control stream until it ends or violates the protocol. Then it closes the connection.
func (c *Conn) readControl(r quicvarint.Reader) {
	defer conns.LogPanic(c.server.o.Logger, "panic while serving a connection")
	defer c.close(codeClosed)
	if code := c.checkControl(r); code != codeClosed {
		_ = c.violated(code)
	}
}

// checkControl reads frames, which do not matter to the node, until they end or violate RFC 9114, 7.2.
func (c *Conn) checkControl(r quicvarint.Reader) quic.ApplicationErrorCode {
	refused := uint64(0b111100) // settings: those of HTTP/2 (7.2.4.1), and those below 64 that have occurred
	goAway, maxPush := uint64(1<<62), uint64(0)
	for first := true; ; first = false {
		kind, _ := quicvarint.Read(r) // the next read returns the same error
		size, err := quicvarint.Read(r)
		switch {
		case err != nil || c.pay(1) != nil:
			return codeClosed
		case first && kind != frameSettings:
			return codeMissing
		case kind == frameCancelPush: // nothing was pushed
			return codeID
		case !first && kind <= lastReserved && kind != frameGoAway:
			return codeUnexpected
		case kind <= frameMaxPush && size > controlSize:
			return codeExcessive
		}
		part := make([]byte, min(size, controlSize))
		for ; size > 0; size -= uint64(len(part)) {
			part = part[:min(size, controlSize)]
			if _, err = io.ReadFull(r, part); err != nil || c.pay(len(part)>>8) != nil {
				return codeClosed
			}
		}
		switch id, n, err := quicvarint.Parse(part); {
		case kind == frameSettings:
			for len(part) > 0 {
				id, n, _ := quicvarint.Parse(part) // the next call returns the same error
				_, m, err := quicvarint.Parse(part[n:])
				if err != nil {
					return codeFrame
				} else if refused>>id&1 != 0 {
					return codeSettings
				}
				refused |= 1 << id
				part = part[n+m:]
			}
		case kind != frameGoAway && kind != frameMaxPush:
		case err != nil || n < len(part):
			return codeFrame
		case kind == frameGoAway && id > goAway, kind == frameMaxPush && id < maxPush:
			return codeID
		case kind == frameGoAway:
			goAway = id
		default:
			maxPush = id
		}
	}
}
