package http3

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/quic-go/qpack"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/quicvarint"

	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/proxy/http1"
	"github.com/edgelimit/edge/proxy/http2"
)

// A Stream is a request and its answer. It is the Asker of the request, until Handler.Serve or Relay.Relayed returns,
// and the Client of its Call.
type Stream struct {
	c    *Conn
	qs   *quic.Stream
	req  http1.Request
	head []byte // of req, as HTTP/1.1
	call http1.Call

	in         []byte
	r, w       int        // in[r:w] has been read but not used yet
	ended      bool       // the client has sent everything
	within     bool       // a frame has begun and not ended
	kind, size uint64     // type of the frame, and how many bytes of it follow
	fields     http2.Head // for the next block, if another one may follow
	headed     bool       // the header has arrived
	trailed    bool       // the trailers have arrived
	trailers   []byte     // as lines
	data       []byte     // of the body: used from in, but not taken yet
	left       http2.Left // bytes of the body for which no DATA frame has begun
	held       int        // bytes that the stream adds to c.memory

	out      []byte // frames that are not written yet
	block    []byte // buffer for a header block of the answer
	lines    []byte // fields of an answer of the node's own
	relayed  bool
	whole    bool // the whole answer was written
	canceled bool // the stream was reset
	shared   bool // the function that notices a disconnect may still use the stream
	status   int
	bytes    int64

	released sync.Once // it no longer counts against MaxStreams
}

// Sizes of buffers, in bytes.
const (
	inputSize  = 4 << 10       // of a new stream's input
	bodySize   = 16 << 10      // of the input for a body that does not arrive with its header
	outputSize = 32 << 10      // at which output is written
	keptSize   = 64 << 10      // maximum of a stream that another request reuses
	freeHeads  = 4 * inputSize // up to which incomplete heads of a connection do not count
)

var streams = sync.Pool{New: func() any { return &Stream{in: make([]byte, inputSize)} }}

func newStream(c *Conn, qs *quic.Stream) *Stream {
	s := streams.Get().(*Stream)
	s.c, s.qs = c, qs
	return s
}

// run serves the request. It counts an incomplete one as malformed unless the client has reset the stream or the
// connection has ended.
func (s *Stream) run() {
	c := s.c
	defer s.end()
	defer conns.LogPanic(c.server.o.Logger, "panic while serving a request")
	_ = s.qs.SetReadDeadline(time.Now().Add(c.server.o.ReadHeaderTimeout))
	s.hold(len(s.in))
	err := s.readUntil(func() bool { return s.headed })
	var bad *http1.Error
	if h := s.fields; err == nil && !h.Bad {
		s.fields = http2.Head{Trailers: true}
		_ = c.pay(h.Fields>>6 - 3) // as in HTTP/2
		if bad = h.Parse(&s.req, s.head); bad != nil {
			s.req = h.Refused()
		} else {
			s.left = http2.Left(s.req.Length)
			err = s.awaitEnd()
		}
	}
	s.hold(0)
	_, reset := errors.AsType[*quic.StreamError](err)
	switch {
	case err == io.ErrUnexpectedEOF, errors.Is(err, os.ErrDeadlineExceeded):
		s.malformed(codeIncomplete, nil)
	case reset:
		_ = s.broken(codeIncomplete)
	case err != nil:
	case bad != nil, s.fields.Bad, !s.req.Framed(s.over() && s.data == nil):
		s.malformed(codeMessage, bad)
	default:
		if o, relay := c.server.o.Handler.Serve(s, &s.req); o != nil {
			s.relay(o, relay)
		}
	}
}

// readUntil reads until done returns true, which is before any byte of the body is taken.
func (s *Stream) readUntil(done func() bool) (err error) {
	for {
		if s.data, err = s.next(); err != nil || done() {
			return err
		}
		if _, err = s.fill(); err != nil {
			return err
		}
	}
}

// awaitEnd waits for the end of a request that seems to have no body: the end may arrive in a packet of its own, and
// some origins refuse an empty chunked body.
func (s *Stream) awaitEnd() error {
	switch string(s.req.Method()) {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodConnect:
		return nil // the client may wait for an answer first
	}
	if s.req.Length >= 0 {
		return nil
	}
	s.hold(len(s.in) + cap(s.head))
	return s.readUntil(func() bool { return s.data != nil || s.over() })
}

// malformed counts a malformed request, and answers it or resets its stream. bad is nil unless the request is invalid
// in HTTP/1.1.
func (s *Stream) malformed(code quic.StreamErrorCode, bad *http1.Error) {
	fields, status, body, end := s.c.server.o.Handler.Malformed(s.c.peer, bad)
	switch {
	case end:
		_ = s.c.Close()
	case status == 0:
		_ = s.broken(code)
	default:
		s.Answer(status, fields, body)
		_ = s.c.pay(http2.CostReset)
	}
}

var errGone = errors.New("http3: the client has reset the stream or closed the connection")

// broken resets the stream of a malformed request.
func (s *Stream) broken(code quic.StreamErrorCode) error {
	s.cancel(code)
	_ = s.c.pay(2 * http2.CostReset)
	return errGone
}

// cancel resets the stream.
func (s *Stream) cancel(code quic.StreamErrorCode) {
	s.canceled = true
	cancel(s.qs, code)
}

func cancel(qs *quic.Stream, code quic.StreamErrorCode) {
	qs.CancelRead(code)
	qs.CancelWrite(code)
}

// over reports whether the whole request was read and used.
func (s *Stream) over() bool { return s.ended && s.r == s.w && !s.within }

// fill reads more bytes, and returns their number.
func (s *Stream) fill() (n int, err error) {
	switch {
	case s.ended && (s.within || s.r < s.w):
		return 0, s.c.violated(codeFrame) // RFC 9114, 7.1
	case s.ended:
		return 0, io.ErrUnexpectedEOF
	}
	s.w = copy(s.in, s.in[s.r:s.w])
	s.r = 0
	switch {
	case s.w == len(s.in): // a header
		s.in = append(s.in, make([]byte, len(s.in))...)
		s.hold(len(s.in))
	case s.req.Body != http1.NoBody && len(s.in) < bodySize:
		s.in = append(s.in, make([]byte, bodySize-len(s.in))...)
	}
	n, err = s.qs.Read(s.in[s.w:])
	s.w += n
	if err == io.EOF {
		s.ended, err = true, nil
	}
	return n, err
}

// hold records how many bytes the incomplete head holds.
func (s *Stream) hold(bytes int) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memory += bytes - s.held
	s.held = bytes
	if !c.ended {
		c.held.Hold(max(0, c.memory-freeHeads))
	}
}

// next handles the bytes that were read, up to the end of the header or the next bytes of the body. If it reaches
// neither, the caller must read more, or the request is over.
func (s *Stream) next() (data []byte, err error) {
	for {
		if !s.within {
			kind, n, err := quicvarint.Parse(s.in[s.r:s.w])
			if err != nil {
				return nil, nil
			}
			size, m, err := quicvarint.Parse(s.in[s.r+n : s.w])
			if err != nil {
				return nil, nil
			}
			s.r += n + m
			s.within, s.kind, s.size = true, kind, size
			switch {
			case kind == frameHeaders && !s.trailed && size <= 2*uint64(s.c.server.o.MaxHeaderBytes):
			case kind == frameHeaders && !s.trailed:
				return nil, s.c.violated(codeExcessive)
			case kind == frameData && s.headed && !s.trailed && size > 0:
				if !s.left.Subtract(int(size), false) {
					return nil, s.broken(codeMessage)
				}
			case kind == frameMaxPush, kind <= lastReserved && (kind != frameData || !s.headed || s.trailed):
				return nil, s.c.violated(codeUnexpected)
			default:
				if err := s.c.pay(1); err != nil {
					return nil, err
				}
			}
		}
		n := int(min(s.size, uint64(s.w-s.r)))
		if s.kind == frameHeaders && uint64(n) < s.size {
			return nil, nil
		}
		part := s.in[s.r : s.r+n]
		s.r += n
		s.size -= uint64(n)
		s.within = s.size > 0
		switch {
		case s.kind == frameHeaders:
			if err := s.decode(part); err != nil || !s.trailed {
				return nil, err
			}
		case s.kind == frameData && n > 0:
			return part, nil
		case s.within:
			return nil, nil
		}
	}
}

var decoder = qpack.NewDecoder() // has no state

// decode decodes a block: the header, or trailers. It stops where the block is too large.
func (s *Stream) decode(block []byte) error {
	c, h := s.c, &s.fields
	var lines []byte
	if !s.headed {
		lines = s.head
	}
	end := 1 // of the prefix (RFC 9204, 4.5.1)
	for more := byte(0x7f); end < len(block) && block[end] >= more; end++ {
		more = 0x80
	}
	if end >= len(block) || block[0] != 0 || block[1] >= 0x80 { // it refers to the dynamic table, or its Base is negative
		return c.violated(codeCompression)
	}
	block[end-1], block[end] = 0, 0 // the Base does not matter, but the decoder accepts no other one
	for next := decoder.Decode(block[end-1:]); ; {
		f, err := next()
		if err == io.EOF {
			break
		} else if err != nil {
			return c.violated(codeCompression)
		}
		lines = h.Append(lines, f.Name, f.Value, c.server.o.MaxHeaderBytes)
		if h.TooLarge {
			break
		}
	}
	if !s.headed {
		s.headed, s.head = true, h.End(lines)
		return nil
	}
	s.trailed, s.trailers = true, lines
	if h.Bad || h.TooLarge {
		return s.broken(codeMessage)
	}
	return nil
}

// end ends the stream after its answer.
func (s *Stream) end() {
	switch {
	case s.canceled:
	case s.whole:
		_ = s.qs.Close()
		if !s.ended {
			s.qs.CancelRead(codeNone) // RFC 9114, 4.1
		}
	default:
		s.cancel(codeInternal)
	}
	s.hold(0)
	s.release()
	if s.shared || max(cap(s.in), cap(s.head), cap(s.out), cap(s.block)) > keptSize {
		return
	}
	in, head, out, block, lines := s.in, s.head[:0], s.out[:0], s.block[:0], s.lines[:0]
	*s = Stream{} // cleared in place, without a copy on the stack
	s.in, s.head, s.out, s.block, s.lines = in, head, out, block, lines
	streams.Put(s)
}

// release makes room for another request: s no longer counts against MaxStreams.
func (s *Stream) release() {
	s.released.Do(func() {
		s.c.mu.Lock()
		s.c.done()
		s.c.mu.Unlock()
		s.qs.ReleaseStreamCredit()
	})
}
