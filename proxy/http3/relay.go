package http3

import (
	"context"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go/quicvarint"

	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/proxy/http1"
	"github.com/edgelimit/edge/proxy/http2"
)

func (s *Stream) RemoteAddr() netip.Addr          { return s.c.peer }
func (s *Stream) Secure() bool                    { return true }
func (s *Stream) Proto() string                   { return "HTTP/3.0" }
func (s *Stream) Sent() (status int, bytes int64) { return s.status, s.bytes }

func (s *Stream) Refuse(last bool) {
	s.c.mu.Lock()
	s.c.refused = true
	s.c.mu.Unlock()
	if last {
		s.c.Leave(false)
	}
}

// Drop closes the connection without an answer. If the request was relayed, it only resets the stream.
func (s *Stream) Drop() {
	s.cancel(codeExcessive)
	if !s.relayed {
		_ = s.c.Close()
	}
}

func (s *Stream) Answer(status int, fields []byte, body string) {
	s.lines = s.c.server.clock.AppendOwn(s.lines[:0], time.Now(), status, fields, len(body))
	if s.req.Head || http1.IsBodiless(status) {
		body = ""
	}
	s.begin(status, http2.AppendLines(appendStatus(s.block[:0], status), s.lines, appendField))
	if body != "" {
		s.out = appendFrame(s.out, frameData, body)
		s.bytes = int64(len(body))
	}
	s.whole = s.Flush() == nil
}

// begin appends the header of an answer.
func (s *Stream) begin(status int, block []byte) {
	if status >= http.StatusOK {
		s.status = status
		if s.c.server.Leaving.Load() {
			s.c.Leave(false)
		}
	}
	s.block = block
	s.out = appendFrame(s.out, frameHeaders, block)
}

func (s *Stream) Flush() error {
	if len(s.out) == 0 {
		return nil
	}
	if timeout := s.c.server.o.BodyTimeout; timeout > 0 {
		_ = s.qs.SetWriteDeadline(time.Now().Add(timeout))
	}
	_, err := s.qs.Write(s.out)
	s.out = s.out[:0]
	if err != nil {
		return errGone
	}
	return nil
}

// relay relays the request to o.
func (s *Stream) relay(o *http1.Origin, relay http1.Relay) {
	s.relayed = true
	s.call.Start(relay, &s.c.server.o.Options, time.Now())
	s.shared = true // also after a panic
	stop := context.AfterFunc(s.qs.Context(), func() {
		defer conns.LogPanic(s.c.server.o.Logger, "panic while a client leaves")
		if s.call.Leave() { // it no longer counts against MaxStreams: the handler bounds such exchanges
			s.release()
		}
	})
	err := s.call.Relay(s, &s.req, o)
	s.shared = !stop()
	relay.Relayed(err) // if the answer is broken, end resets the stream
}

func (s *Stream) Take() (data, trailers []byte, ended bool, err error) {
	if data, s.data = s.data, nil; data == nil {
		data, err = s.next()
	}
	if err != nil {
		return nil, nil, false, err
	}
	if ended = s.over(); !s.left.Subtract(0, ended) {
		return nil, nil, false, s.broken(codeMessage)
	}
	return data, s.trailers, ended, nil
}

func (s *Stream) Arrived() bool { return false }

func (s *Stream) Await(by time.Time, stop *atomic.Bool) (n int, err error) {
	_ = s.qs.SetReadDeadline(by)
	if stop.Load() {
		return 0, nil
	}
	return s.fill()
}

func (s *Stream) Wake() { _ = s.qs.SetReadDeadline(conns.Past) }

func (s *Stream) Watch(*http1.Call) (stop func()) { return nil } // not needed: relay watches the stream

func (s *Stream) Begin(a *http1.Answer, lines []byte, _ bool) error {
	s.begin(a.Status, http2.AppendHead(appendStatus(s.block[:0], a.Status), a, lines, appendField))
	if a.Body != http1.NoBody {
		return nil
	}
	err := s.Flush()
	s.whole = err == nil && a.Status >= http.StatusOK
	return err
}

func (s *Stream) Send(data []byte, ended bool, trailers []byte) error {
	if len(data) > 0 {
		s.out = appendFrame(s.out, frameData, data)
		s.bytes += int64(len(data))
	}
	if len(trailers) > 0 {
		s.block = http2.AppendLines(append(s.block[:0], 0, 0), trailers, appendField)
		s.out = appendFrame(s.out, frameHeaders, s.block)
	}
	if !ended && len(s.out) < outputSize {
		return nil
	}
	err := s.Flush()
	s.whole = ended && err == nil
	return err
}

// appendFrame appends a frame (RFC 9114, 7.1).
func appendFrame[T string | []byte](dst []byte, kind uint64, payload T) []byte {
	return append(quicvarint.Append(quicvarint.Append(dst, kind), uint64(len(payload))), payload...)
}

// appendStatus begins a header block that does not refer to the dynamic table (RFC 9204, 4.5.1) with a status.
func appendStatus(dst []byte, status int) []byte {
	dst = append(dst, 0, 0)
	if status == http.StatusOK {
		return append(dst, 0xc0|25) // in the static table
	}
	return strconv.AppendInt(append(dst, 0x5f, 24-15, 3), int64(status), 10)
}

// appendField appends a field as a literal (RFC 9204, 4.5.6), with its name in lower case.
func appendField(dst, name, value []byte) []byte {
	at := len(dst)
	dst = http2.AppendInteger(dst, 3, len(name))
	dst[at] |= 0x20
	dst = http2.AppendLower(dst, name)
	return append(http2.AppendInteger(dst, 7, len(value)), value...)
}
