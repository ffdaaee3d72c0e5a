package http2

import (
	"cmp"
	"encoding/binary"
	"slices"

	"golang.org/x/net/http2"

	"github.com/edgelimit/edge/proxy/conns"
)

// frame handles the frame whose header was read (RFC 9113, 6).
func (c *Conn) frame(fh http2.FrameHeader) error {
	if !c.opened && (fh.Type != http2.FrameSettings || fh.Flags.Has(http2.FlagSettingsAck)) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	c.opened = true
	switch fh.Type {
	case http2.FrameHeaders, http2.FrameContinuation:
		return c.readHeaders(fh)
	case http2.FrameData:
		c.data = true
		return c.readData(fh)
	case http2.FramePushPromise:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	c.framed = max(c.framed, int(fh.Length))
	f, err := c.fr.ReadFrameForHeader(fh)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err = cmp.Or(err, c.spend(1)); err != nil {
		return err
	}
	switch f := f.(type) {
	case *http2.SettingsFrame:
		return c.settings(f)
	case *http2.PingFrame:
		if !f.IsAck() {
			return c.fr.WritePing(true, f.Data)
		}
		if c.askedToLeave && f.Data == leaving {
			c.sendFinalGoAway()
		}
	case *http2.WindowUpdateFrame:
		return c.widen(f)
	case *http2.RSTStreamFrame:
		if f.StreamID > c.newest || f.StreamID == 0 {
			return c.unopened()
		}
		if s := c.streams[f.StreamID]; s != nil {
			c.lose(s)
			return c.spend(CostReset)
		}
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
		}
	}
	return nil
}

// settings applies the client's settings (RFC 9113, 6.5). mu must be held.
func (c *Conn) settings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	if err := c.spend(f.NumSettings() * c.wakes()); err != nil {
		return err
	}
	for i := range f.NumSettings() {
		setting := f.Setting(i)
		if err := setting.Valid(); err != nil {
			return err
		}
		if setting.ID == http2.SettingInitialWindowSize {
			more := int64(setting.Val) - c.initial
			c.initial = int64(setting.Val)
			for _, s := range c.streams {
				if s.window += more; s.window > maxWindow {
					return http2.ConnectionError(http2.ErrCodeFlowControl)
				}
				s.more.Broadcast()
			}
		}
	}
	return c.fr.WriteSettingsAck()
}

const maxWindow = 1<<31 - 1

// widen enlarges a send window (RFC 9113, 6.9). mu must be held.
func (c *Conn) widen(f *http2.WindowUpdateFrame) error {
	if f.StreamID == 0 {
		if c.window += int64(f.Increment); c.window > maxWindow {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		c.space.Broadcast()
		if f.Increment < tiny {
			return c.spend(c.wakes())
		}
		return nil
	}
	if f.StreamID > c.newest {
		return c.unopened()
	}
	s := c.streams[f.StreamID]
	if s == nil {
		return nil // the stream was reset or has ended
	}
	if s.window += int64(f.Increment); s.window > maxWindow {
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeFlowControl}
	}
	s.more.Broadcast()
	return nil
}

// wakes returns the cost of a frame that may wake all streams. mu must be held.
func (c *Conn) wakes() int { return 1 + len(c.streams)/16 }

// payload reads the payload of fh without its padding.
func (c *Conn) payload(fh http2.FrameHeader) ([]byte, error) {
	p, err := c.need(int(fh.Length))
	if err != nil || !fh.Flags.Has(http2.FlagDataPadded) { // the flag is the same for all kinds of frames
		return p, err
	}
	if len(p) == 0 {
		return nil, http2.ConnectionError(http2.ErrCodeFrameSize)
	}
	padding := int(p[0])
	p = p[1:]
	if padding > len(p) {
		return nil, http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return p[:len(p)-padding], nil
}

// readHeaders reads HEADERS or CONTINUATION (RFC 9113, 6.2 and 6.10).
func (c *Conn) readHeaders(fh http2.FrameHeader) error {
	if fh.StreamID == 0 {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if fh.Type == http2.FrameContinuation {
		fh.Flags &^= http2.FlagHeadersPadded | http2.FlagHeadersPriority
	}
	p, err := c.payload(fh)
	if err != nil {
		return err
	}
	if fh.Type == http2.FrameHeaders {
		if err := c.beginBlock(fh); err != nil {
			return err
		}
		if fh.Flags.Has(http2.FlagHeadersPriority) {
			if len(p) < 5 {
				return http2.ConnectionError(http2.ErrCodeFrameSize)
			}
			if binary.BigEndian.Uint32(p)&maxWindow == fh.StreamID {
				c.block.Bad = true // the stream depends on itself
			}
			p = p[5:]
		}
	}
	return c.readBlock(p, fh.Flags.Has(http2.FlagHeadersEndHeaders))
}

// readData reads DATA (RFC 9113, 6.1).
func (c *Conn) readData(fh http2.FrameHeader) error {
	if fh.StreamID == 0 {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	data, err := c.payload(fh)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if fh.StreamID > c.newest {
		return c.unopened()
	}
	if c.receive -= int64(fh.Length); c.receive < 0 {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	end := fh.Flags.Has(http2.FlagDataEndStream)
	s := c.streams[fh.StreamID]
	late := s == nil || s.ended || s.life == draining
	if len(data) == 0 && !end || len(data) < tiny && late {
		if err := c.spend(1); err != nil {
			return err
		}
	}
	if s == nil || s.ended {
		c.consume(nil, int(fh.Length))
		if s != nil || !c.wasReset(fh.StreamID) {
			return http2.StreamError{StreamID: fh.StreamID, Code: http2.ErrCodeStreamClosed}
		}
		return nil // the client may have sent it before it knew of the reset
	}
	if s.receive -= int64(fh.Length); s.receive < 0 {
		c.consume(nil, int(fh.Length))
		return http2.StreamError{StreamID: fh.StreamID, Code: http2.ErrCodeFlowControl}
	}
	c.consume(s, int(fh.Length)-len(data))
	if !s.left.Subtract(len(data), end) {
		c.consume(nil, len(data))
		return http2.StreamError{StreamID: fh.StreamID, Code: http2.ErrCodeProtocol}
	}
	if s.life == draining {
		c.consume(nil, len(data))
		switch {
		case end:
			c.lose(s)
		case s.receive < maxFrame:
			c.reset(s.id, http2.ErrCodeNo) // RFC 9113, 8.1
		}
		return nil
	}
	s.body = append(conns.Grow(s.body, len(data)), data...)
	s.ended = end
	s.more.Broadcast()
	return nil
}

// unopened returns the error for a frame of a stream that the client has not opened. After the final GOAWAY, it returns
// nil: the node ignores streams that the client has opened since.
func (c *Conn) unopened() error {
	if c.last {
		return nil
	}
	return http2.ConnectionError(http2.ErrCodeProtocol)
}

func (c *Conn) wasReset(id uint32) bool { return slices.Contains(c.resets[:], id) }

// consume lets the client send n more bytes on the connection, and on s unless s is nil. It tells the client once that
// is worth a frame. mu must be held.
func (c *Conn) consume(s *Stream, n int) {
	if c.consumed += n; c.consumed >= connWindow/4 {
		_ = c.fr.WriteWindowUpdate(0, uint32(c.consumed))
		c.receive += int64(c.consumed)
		c.consumed = 0
	}
	if s == nil || s.ended || s.life == dead {
		return
	}
	if s.consumed += n; s.consumed >= streamWindow/4 {
		_ = c.fr.WriteWindowUpdate(s.id, uint32(s.consumed))
		s.receive += int64(s.consumed)
		s.consumed = 0
	}
}

// streamError resets a stream after an error of the client, which costs n (RFC 9113, 5.4.2).
func (c *Conn) streamError(id uint32, code http2.ErrCode, n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reset(id, code)
	return c.spend(n)
}
