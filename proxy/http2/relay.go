package http2

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/edgelimit/edge/proxy/http1"
)

// A relaying is one exchange with an origin.
type relaying struct {
	s         *Stream
	edit      http1.Relay
	uploading chan error // of upload; nil unless it runs
	whole     bool       // all of the request was sent
	broken    bool       // a part of it was not sent completely
	failure   error      // of the upload, caused by the client
	part      *part      // the part of the body that is being sent
}

// Relay sends r to o, and o's answer to the client. If it returns a *http1.RelayError, no part of an answer
// was sent, and the caller must answer. It is called by a Passing.
func (s *Stream) Relay(r *http1.Request, o *http1.Origin, edit http1.Relay) error {
	t := relaying{s: s, edit: edit}
	begin := newBuffer()
	defer begin.free()
	begin.b = r.AppendHead(begin.b, edit)
	request, dead := t.takeBody(begin.b)
	if dead && (!t.whole || !edit.Hasty()) {
		return &http1.RelayError{Client: true, Err: errGone}
	}
	err := s.call.Ask(o, r, request, t.whole)
	if err == http1.ErrInterrupted {
		err = t.goOn()
	}
	t.sent()
	if err == nil && !t.whole {
		t.uploading = make(chan error, 1)
		go func() { t.uploading <- t.upload() }()
	}
	if err == nil {
		err = t.answer(r)
	}
	t.endUpload()
	s.call.End(t.whole && err == nil)
	switch {
	case err == nil:
		return nil
	case err == http1.ErrWithheld:
		return &http1.RelayError{Err: err}
	case t.failure != nil:
		return &http1.RelayError{Client: true, Err: t.failure}
	case s.abandoned || err == http1.ErrInterrupted || errors.Is(err, errGone):
		return &http1.RelayError{Client: true, Err: errGone}
	}
	return &http1.RelayError{Err: err}
}

// takeBody returns head followed by the part of the body that has arrived, as the origin gets it, and whether
// the client is gone. request is valid until sent is called.
func (t *relaying) takeBody(head []byte) (request []byte, dead bool) {
	s, c := t.s, t.s.c
	c.mu.Lock()
	n := s.body.size()
	t.part, s.body = s.body, nil
	t.whole, dead = s.ended, s.dead
	if n > 0 {
		c.consume(s, n)
		c.kick() // the client may wait for its windows
	}
	c.mu.Unlock()
	if s.req.Body != http1.Chunked {
		return t.part.behind(head), dead
	}
	if n > 0 {
		head = http1.AppendChunkSize(head, n)
		t.part.b = append(t.part.b, crlf...)
	}
	request = t.part.behind(head)
	if t.whole {
		request = http1.AppendLastChunk(request, s.trailers)
	}
	return request, dead
}

// sent frees the result of takeBody.
func (t *relaying) sent() {
	t.part.free()
	t.part = nil
}

// upload sends the rest of the body, in its own goroutine. It returns an error only if the client has failed.
// It returns nil if the body was sent, the origin does not accept more, or endUpload was called: the origin
// may still answer.
func (t *relaying) upload() error {
	s, c := t.s, t.s.c
	pace := http1.NewPace(c.server.o.BodyTimeout, c.server.o.BodyRate)
	for {
		start := time.Now()
		c.mu.Lock()
		var err error
		for s.body == nil && !s.ended && !s.dead && !s.stopped && err == nil {
			if !c.wait(&s.more, pace.Deadline(start, s.answering)) {
				err = os.ErrDeadlineExceeded
			}
		}
		n, stopped := s.body.size(), s.stopped
		if s.dead && !s.ended {
			err = errGone
		}
		c.mu.Unlock()
		if stopped {
			return nil
		}
		if err != nil {
			s.call.Interrupt()
			return err
		}
		pace.Read(n, time.Since(start))
		data, _ := t.takeBody(nil)
		if len(data) > 0 {
			err = s.call.Send(data)
		}
		t.sent()
		t.whole, t.broken = t.whole && err == nil, err != nil
		if t.whole || err != nil {
			s.call.Sent()
			return nil
		}
	}
}

// endUpload stops the upload if it is running.
func (t *relaying) endUpload() {
	if t.uploading == nil {
		return
	}
	s, c := t.s, t.s.c
	c.mu.Lock()
	s.stopped = true
	s.more.Broadcast()
	c.mu.Unlock()
	select {
	case t.failure = <-t.uploading:
	default:
		s.call.Cut()
		t.failure = <-t.uploading
	}
	t.uploading = nil
}

// goOn continues an interrupted exchange without its client if a rule depends on the answer, even if the request is
// incomplete. Otherwise it returns http1.ErrInterrupted.
func (t *relaying) goOn() error {
	s, c := t.s, t.s.c
	c.mu.Lock()
	abandoned, cutShort := s.abandoned, !s.ended
	c.mu.Unlock()
	if abandoned {
		return http1.ErrInterrupted
	}
	if cutShort {
		t.endUpload() // it interrupts the call
	}
	s.call.Clear()
	if !t.edit.Gone(s.call.Interrupt) {
		return http1.ErrInterrupted
	}
	if cutShort && !t.broken { // the origin gets all that has arrived
		if data, _ := t.takeBody(nil); len(data) > 0 {
			_ = s.call.Send(data) // it may answer without reading that
		}
		t.sent()
	}
	c.mu.Lock()
	s.abandoned = true
	c.done() // others may take its place: the handler bounds how many continue
	c.mu.Unlock()
	return s.call.Resume(cutShort)
}

// answer reads the origin's answer and sends it to the client.
func (t *relaying) answer(r *http1.Request) error {
	s, c := t.s, t.s.c
	var a *http1.Answer
	for {
		var err error
		a, err = s.call.Answer(r.Head)
		if err == http1.ErrInterrupted {
			if err = t.goOn(); err == nil {
				continue
			}
		}
		switch {
		case err != nil:
			return err
		case a.Status == http.StatusSwitchingProtocols:
			return http1.ErrSwitched
		}
		if a.Status >= http.StatusOK {
			break
		}
		c.mu.Lock()
		if !s.dead {
			c.writeHead(s.id, t.block(a), false)
			c.kick()
		}
		c.mu.Unlock()
	}
	var buf [512]byte
	lines, deliver := t.edit.Answered(buf[:0], a)
	if !deliver {
		return http1.ErrWithheld
	}
	out := appendLines(t.block(a), lines)
	s.out = out
	c.mu.Lock()
	s.answering, s.sentStatus = true, a.Status
	if s.dead {
		c.mu.Unlock()
		return nil // the rules have seen the answer
	}
	s.writeAnswerHead(out, a.Body == http1.NoBody)
	c.mu.Unlock()
	if a.Body != http1.NoBody {
		t.stream()
	}
	return nil
}

// block returns the header block of an answer, without fields about the origin's connection.
func (t *relaying) block(a *http1.Answer) []byte {
	out := appendStatus(t.s.out[:0], a.Status)
	for f := range a.Fields {
		switch {
		case f.Name == http1.TE || f.Name == http1.Upgrade,
			f.Name == http1.ContentLength && (a.Status < http.StatusOK || a.Status == http.StatusNoContent):
			continue
		}
		out = appendField(out, a.NameOf(f), a.ValueOf(f))
	}
	t.s.out = out
	return out
}

// stream sends the body of the answer. If it fails, close resets the stream: a part of the answer was
// sent.
func (t *relaying) stream() {
	s, c := t.s, t.s.c
	for {
		data, ended, err := s.call.Data()
		trailers := s.call.Trailers()
		last := ended && len(trailers) == 0
		if err == nil && (len(data) > 0 || last) {
			err = s.send(data, last)
		}
		switch {
		case err != nil:
			return
		case ended:
			c.mu.Lock()
			if !last && !s.dead {
				c.writeHead(s.id, appendLines(s.out[:0], trailers), true)
			}
			s.closed = true
			c.mu.Unlock()
			return
		case len(data) > 0:
			continue
		}
		c.mu.Lock()
		c.kick()
		c.mu.Unlock()
		if err = s.call.Wait(); err == io.EOF {
			t.endUpload()
			err = s.call.Closed()
		}
		if err != nil {
			return
		}
	}
}
