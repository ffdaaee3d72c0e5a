package http2

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/proxy/http1"
)

// A Stream is a request and its answer. It is the Asker of the request: a Handler may call its methods until it has
// answered, a Relay until Relayed returns. It is also the Client of its Call.
type Stream struct {
	c     *Conn
	id    uint32
	req   http1.Request
	head  []byte // of req, as HTTP/1.1
	block []byte // head was decoded from it; empty unless repeats reports true for it
	out   []byte // header block of the answer
	lines []byte // fields of an answer of the node's own; then its body, if it has to wait

	call    http1.Call
	running bool // the stream has its own goroutine

	sentStatus int
	sentBytes  int64 // guarded by c.mu while running is set

	// Guarded by c.mu while running is set:
	life      life
	ended     bool      // the client has sent everything
	more      sync.Cond // body, ended or window has changed, or the stream is over
	body      []byte    // nil if all received data was taken
	taken     []byte    // data that Take has returned last
	trailers  []byte    // as lines
	left      Left      // bytes of the body that have not arrived
	window    int64     // send window
	receive   int64     // receive window
	consumed  int       // bytes that receive will grow by
	abandoned bool      // the client is gone; the exchange continues
}

// A life is the state of a stream. It only increases.
type life uint8

const (
	open     life = iota
	written       // the whole answer was written
	draining      // written, and the node reads and drops the rest of the request's body
	dead          // the stream is over for the client
)

var streams = sync.Pool{New: func() any { return new(Stream) }}

func newStream(c *Conn) *Stream {
	s := streams.Get().(*Stream)
	s.c, s.block = c, s.block[:0]
	s.more.L = &c.mu
	return s
}

// begin makes s the stream with this id. ended says that the request has no body.
func (s *Stream) begin(id uint32, ended bool) {
	s.id, s.ended = id, ended
	s.sentStatus, s.sentBytes = 0, 0
	s.life = open
	s.body, s.trailers = nil, s.trailers[:0]
	s.receive, s.consumed = streamWindow, 0
}

func (s *Stream) RemoteAddr() netip.Addr { return s.c.peer }
func (s *Stream) Secure() bool           { return s.c.secure }
func (s *Stream) Proto() string          { return "HTTP/2.0" }

func (s *Stream) Sent() (status int, bytes int64) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.sentStatus, s.sentBytes
}

func (s *Stream) Refuse(last bool) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = true
	if last && !c.askedToLeave {
		c.leave()
	}
}

// Drop resets the stream without an answer.
func (s *Stream) Drop() {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.life != dead {
		c.reset(s.id, http2.ErrCodeEnhanceYourCalm)
	}
}

func (s *Stream) Answer(status int, fields []byte, body string) {
	c := s.c
	clock, block := &c.server.clock, c.prepared.block
	if s.running {
		s.lines = clock.AppendOwn(s.lines[:0], time.Now(), status, fields, len(body))
		s.out = AppendLines(appendStatus(s.out[:0], status), s.lines, appendField)
		block = s.out
	} else if date := clock.Date(c.now); !c.prepared.is(status, date, fields, len(body)) {
		s.lines = clock.AppendOwn(s.lines[:0], c.now, status, fields, len(body))
		block = c.prepared.set(status, date, fields, len(body), s.lines)
	}
	if s.req.Head || http1.IsBodiless(status) {
		body = ""
	}
	c.mu.Lock()
	s.sentStatus = status
	if s.running && s.life == dead {
		c.mu.Unlock()
		return
	}
	s.writeAnswerHead(block, body == "")
	switch {
	case body == "":
	case s.running:
		c.mu.Unlock()
		_ = s.Send([]byte(body), true, nil)
		return
	case int64(len(body)) <= min(c.initial, c.window, maxFrame) && len(c.out) < maxWaiting:
		s.writeData([]byte(body), true)
	default: // the reader cannot wait until the client makes room
		c.mu.Unlock()
		s.lines = append(s.lines[:0], body...) // the caller may reuse the memory of body
		s.start(nil, nil)
		return
	}
	if !s.running {
		s.close()
		c.relieve()
	}
	c.mu.Unlock()
}

// writeAnswerHead writes the header of the final answer. mu must be held.
func (s *Stream) writeAnswerHead(block []byte, end bool) {
	c := s.c
	if c.server.Leaving.Load() && !c.askedToLeave {
		c.leave()
	}
	s.writeHead(block, end)
}

// close ends the stream after its answer. If the request was relayed, the connection's reader reads the rest of its
// body as far as the window reaches, to notice a malformed body even after an early answer. mu must be held.
func (s *Stream) close() {
	c := s.c
	c.consume(nil, len(s.body)) // nobody will take this data
	conns.FreeBuffer(s.body)
	s.body = nil
	switch {
	case s.life == dead:
	case s.life == open:
		c.reset(s.id, http2.ErrCodeInternal)
	case !s.ended && s.running:
		s.life = draining
	case !s.ended:
		c.reset(s.id, http2.ErrCodeNo) // RFC 9113, 8.1
	case s.running:
		c.lose(s)
	}
}

// start relays the request to o in a goroutine. If o is nil, it sends s.lines as the body of an answer of the node's
// own, which waits for room in the client's windows. Afterwards, the reader uses s only for frames of its stream.
func (s *Stream) start(o *http1.Origin, relay http1.Relay) {
	c := s.c
	c.next = nil
	s.running = true
	c.mu.Lock()
	s.window = c.initial
	c.streams[s.id] = s
	c.working++
	c.mu.Unlock()
	go s.run(o, relay)
}

// done records that the goroutine of a request has ended. mu must be held.
func (c *Conn) done() {
	if c.working--; c.working == 0 {
		c.idle = time.Now()
		c.endIdle()
	}
}

func (s *Stream) run(o *http1.Origin, relay http1.Relay) {
	growStack(0)
	c := s.c
	defer func() {
		c.mu.Lock()
		s.close()
		if !s.abandoned {
			c.done()
		}
		over := s.life != draining && !s.abandoned
		c.kick()
		c.mu.Unlock()
		if over { // otherwise, the reader may still use s
			s.running, s.c = false, nil
			streams.Put(s)
		}
	}()
	defer conns.LogPanic(c.server.o.Logger, "panic while serving a request")
	if o == nil {
		_ = s.Send(s.lines, true, nil)
	} else {
		s.relay(o, relay)
	}
}
