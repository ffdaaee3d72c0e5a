package http2

import (
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/proxy/http1"
)

// A Stream is a request and its answer. A Handler may call its methods until it has answered, a
// Passing until Pass returns.
type Stream struct {
	c     *Conn
	id    uint32
	req   http1.Request
	head  []byte // of req, as HTTP/1.1
	block []byte // from which head was decoded, if it may be recognized: see repeats
	out   []byte // header block of the answer

	call    http1.Call
	running bool // in its own goroutine

	sentStatus int
	sentBytes  int64 // guarded by mu while it runs

	// Guarded by c.mu, if it runs:
	dead      bool      // over for the client
	closed    bool      // the whole answer was written
	ended     bool      // the client has sent everything
	more      sync.Cond // body, ended or window has changed, or the stream is over
	body      *part     // nil if all received data was sent
	trailers  []byte    // as lines
	left      int64     // bytes of the body, by Content-Length; -1 if that is unknown
	window    int64     // for what is sent
	receive   int64     // for what is received
	consumed  int       // bytes that receive will grow by
	answering bool      // the origin has begun its answer
	stopped   bool      // the upload must end
	abandoned bool      // the client is gone or does not send the rest; the exchange continues
	answered  bool      // the rest of the body is not needed
}

var streams = sync.Pool{New: func() any { return new(Stream) }}

func newStream(c *Conn) *Stream {
	s := streams.Get().(*Stream)
	s.c, s.block = c, s.block[:0]
	s.more.L = &c.mu
	return s
}

// begin makes s the stream with this id. ended is set if the request has no body.
func (s *Stream) begin(id uint32, ended bool) {
	s.id, s.ended = id, ended
	s.sentStatus, s.sentBytes = 0, 0
	s.dead, s.closed, s.answering, s.stopped = false, false, false, false
	s.call.Reset()
	s.body, s.trailers = nil, s.trailers[:0]
	s.receive, s.consumed = streamWindow, 0
}

// frame determines the length of the body, and reports whether the declared length is possible.
func (s *Stream) frame() bool {
	r := &s.req
	s.left = r.Length
	switch {
	case s.ended || r.Length == 0:
		r.Body = http1.NoBody
	case r.Length > 0:
		r.Body = http1.Sized
	default:
		r.Body = http1.Chunked
	}
	return !s.ended || r.Length <= 0
}

// measure reports whether n more bytes of the body, and its end, agree with Content-Length.
func (s *Stream) measure(n int, end bool) bool {
	if s.left < 0 {
		return true
	}
	s.left -= int64(n)
	return s.left == 0 || s.left > 0 && !end
}

// RemoteAddr returns the address of the client, or that of a PROXY protocol header.
func (s *Stream) RemoteAddr() netip.AddrPort { return s.c.peer }

// Secure reports whether the client uses TLS.
func (s *Stream) Secure() bool { return s.c.secure }

// Sent returns the status of the answer and the number of bytes of its body.
func (s *Stream) Sent() (status int, bytes int64) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.sentStatus, s.sentBytes
}

// Refuse marks the request as refused. If last is set, the client is asked to open no more streams.
// Otherwise the connection waits for the next request for at most ReadHeaderTimeout.
func (s *Stream) Refuse(last bool) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused = true; last && !c.askedToLeave {
		c.leave()
	}
}

// Drop resets the stream without an answer.
func (s *Stream) Drop() {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.running {
		c.reset(s, s.id, http2.ErrCodeEnhanceYourCalm)
		return
	}
	c.reset(nil, s.id, http2.ErrCodeEnhanceYourCalm)
}

// Gone records a status for the access log. The client gets no answer.
func (s *Stream) Gone(status int) {
	s.Drop()
	s.sentStatus = status
}

// Answer answers r, or a malformed request if r is nil. fields are lines that end in CRLF. Answer adds Date
// and Content-Length. It does not wait for the rest of the request's body.
func (s *Stream) Answer(r *http1.Request, status int, fields []byte, body string) {
	c := s.c
	bodiless := status == http.StatusNoContent || status == http.StatusNotModified
	length := len(body)
	if bodiless {
		length = -1
	}
	out := c.prepared.block
	if s.running {
		s.out = appendAnswer(s.out[:0], status, c.server.clock.Date(time.Now()), fields, length)
		out = s.out
	} else if date := c.server.clock.Date(c.now); !c.prepared.is(status, date, fields, length) {
		out = c.prepared.set(status, date, fields, length)
	}
	if bodiless || r != nil && r.Head {
		body = ""
	}
	c.mu.Lock()
	s.sentStatus = status
	if s.running && s.dead {
		c.mu.Unlock()
		return
	}
	s.writeAnswerHead(out, body == "")
	n := int64(len(body))
	switch {
	case n == 0:
	case !s.running && n <= min(c.initial, c.window, maxFrame) && c.waiting() < maxWaiting:
		c.writeData(s.id, []byte(body), true)
		s.closed, s.sentBytes = true, n
	case !s.running: // the client must make room, and the reader cannot wait for that
		c.mu.Unlock()
		s.start(rest{s, strings.Clone(body)}) // the caller may reuse the memory of body
		return
	default:
		c.mu.Unlock()
		if s.send([]byte(body), true) != nil {
			return
		}
		c.mu.Lock()
		s.closed = true
	}
	if !s.running {
		s.close()
		c.relieve()
	}
	c.mu.Unlock()
}

// writeAnswerHead writes the header of the final answer. mu is held.
func (s *Stream) writeAnswerHead(block []byte, end bool) {
	c := s.c
	if c.server.IsLeaving() && !c.askedToLeave {
		c.leave()
	}
	c.writeHead(s.id, block, end)
	s.closed = end
}

// close ends the stream after its answer. If the request was relayed, the rest of its body is read as far as
// its window reaches, so that a malformed body is noticed even after an early answer. mu is held.
func (s *Stream) close() {
	c := s.c
	c.consume(nil, s.body.size()) // nobody takes it any more
	s.body.free()
	s.body = nil
	switch {
	case s.dead:
	case !s.closed:
		c.reset(s, s.id, http2.ErrCodeInternal)
	case !s.ended && s.running:
		s.answered = true
	case !s.ended:
		c.reset(nil, s.id, http2.ErrCodeNo) // RFC 9113, 8.1
	case s.running:
		c.lose(s)
	}
}

// A rest is the body of one of the node's own answers that waits for room.
type rest struct {
	s    *Stream
	body string
}

func (r rest) Pass() {
	err := r.s.send([]byte(r.body), true)
	r.s.c.mu.Lock()
	defer r.s.c.mu.Unlock()
	r.s.closed = err == nil
}

// start runs p in a goroutine. After that, the reader uses s only for frames of its stream.
func (s *Stream) start(p Passing) {
	c := s.c
	c.next = nil
	s.running = true
	c.mu.Lock()
	s.window = c.initial
	c.streams[s.id] = s
	c.working++
	c.mu.Unlock()
	go func() {
		growStack(0)
		s.run(p)
	}()
}

// done records that the goroutine of a request has ended. mu is held.
func (c *Conn) done() {
	if c.working--; c.working == 0 {
		c.idle = time.Now()
		c.endIdle()
	}
}

// growStack grows the goroutine's stack to the size that an exchange needs. Growing it in deep calls would
// copy all frames several times, which is a sixth of the cost of a request.
//
//go:noinline
func growStack(i int) byte {
	var room [10 << 10]byte
	return room[i]
}

func (s *Stream) run(p Passing) {
	c := s.c
	defer func() {
		c.mu.Lock()
		s.close()
		if !s.abandoned {
			c.done()
		}
		answered := s.answered
		c.kick()
		c.mu.Unlock()
		if !s.abandoned && !answered { // otherwise it may still be in use
			s.running, s.c = false, nil
			streams.Put(s)
		}
	}()
	defer conns.LogPanic(c.server.o.Logger, "panic while serving a request")
	p.Pass()
}
