package http2

import (
	"bytes"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/proxy/http1"
)

// A block is a header block that is being read (RFC 9113, 4.3): a request's header or trailers.
type block struct {
	Head

	id      uint32 // stream; 0 between blocks
	ignored bool   // its stream was opened after the last one that the node serves
	end     bool   // the block ends its stream
	encoded int    // bytes received
	parsed  bool   // the block was a valid request in HTTP/1.1
}

// bomb reports whether b exceeds its maximum size by so much that the connection must be closed.
func (b *block) bomb(most int) bool { return b.Size > 2*most || b.encoded > 2*most+maxFrame }

// cost returns the cost of a block that opens no request, in frames. The larger of its two sizes counts.
func (b *block) cost() int { return 1 + max(b.encoded, b.Size)/tiny }

// beginBlock determines whether a HEADERS frame begins a request or trailers (RFC 9113, 5.1).
func (c *Conn) beginBlock(fh http2.FrameHeader) error {
	c.block = block{Head: Head{cookies: c.block.cookies[:0]}, id: fh.StreamID}
	c.block.end = fh.Flags.Has(http2.FlagHeadersEndStream)
	b := &c.block
	if fh.StreamID%2 == 0 {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if c.next == nil {
		c.next = newStream(c)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if fh.StreamID > c.newest {
		b.ignored = c.last
		if !b.ignored {
			c.newest = fh.StreamID
		}
		return nil
	}
	switch s := c.streams[fh.StreamID]; {
	case s != nil && !s.ended, s == nil && c.wasReset(fh.StreamID):
		b.Trailers = true
		b.Bad = !b.end
	default:
		return http2.ConnectionError(http2.ErrCodeStreamClosed)
	}
	return nil
}

// readBlock reads a fragment of the block. It decodes only complete blocks, because a decoder that gets fragments
// retains memory for the largest one. It also decodes a head that is too large, because that changes the decoder's
// table. Much larger blocks end the connection, and so do many small fragments and large blocks that are not requests.
func (c *Conn) readBlock(p []byte, last bool) error {
	b := &c.block
	if b.encoded > 0 || len(p) == 0 {
		if err := c.pay(1); err != nil {
			return err
		}
	}
	b.encoded += len(p)
	if b.bomb(c.server.o.MaxHeaderBytes) {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	if !last || c.parts != nil {
		c.parts = append(conns.Grow(c.parts, len(p)), p...)
		p = c.parts
	}
	if !last {
		return nil
	}
	err := c.decode(p)
	b.pseudo = [pseudos]string{} // free the strings, which may be long
	if c.parts != nil {
		// The decoder retains a block until it gets another one: getMethod, which does not change the table.
		c.hp.SetEmitEnabled(false)
		_, _ = c.hp.Write(getMethod)
		_ = c.hp.Close()
		conns.FreeBuffer(c.parts)
		c.parts = nil
	}
	return err
}

var getMethod = []byte{0x82} // :method: GET, from the static table

// decode decodes a whole block and serves it.
func (c *Conn) decode(p []byte) error {
	b := &c.block
	id := b.id
	b.id = 0
	if !b.Trailers && !b.ignored && len(p) > 0 && bytes.Equal(p, c.next.block) {
		return c.request(id, b, true)
	}
	for sizes, rest := 0, p; len(rest) > 0 && rest[0]>>5 == 1; sizes++ {
		if sizes == 2 { // no encoder needs more (RFC 7541, 4.2)
			return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
		}
		_, rest = integer(rest, 5)
	}
	c.next.head, c.next.block = c.next.head[:0], c.next.block[:0]
	c.hp.SetEmitEnabled(true)
	if _, err := c.hp.Write(p); err != nil || c.hp.Close() != nil {
		return http2.ConnectionError(http2.ErrCodeCompression)
	}
	switch {
	case b.bomb(c.server.o.MaxHeaderBytes):
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	case b.Trailers:
		return c.trailers(id, b)
	case b.ignored:
		return c.pay(b.cost())
	}
	err := c.request(id, b, false)
	if b.parsed && c.next != nil && len(p) <= kept && repeats(p) {
		c.next.block = append(c.next.block, p...)
	}
	return err
}

// integer reads an integer with a prefix of this many bits from a block that is not empty (RFC 7541, 5.1).
func integer(block []byte, bits int) (n int, rest []byte) {
	most := 1<<bits - 1
	if n = int(block[0]) & most; n < most {
		return n, block[1:]
	}
	for i, b := range block[1:] {
		n += int(b&0x7f) << (7 * i)
		if b < 0x80 {
			return n, block[i+2:]
		}
	}
	return n, nil
}

// field handles a decoded field.
func (c *Conn) field(f hpack.HeaderField) {
	b, most := &c.block, c.server.o.MaxHeaderBytes
	c.next.head = b.Append(c.next.head, f.Name, f.Value, most)
	c.hp.SetEmitEnabled(b.Fields <= maxFields && !b.bomb(most))
}

// request answers or relays a request whose header is complete. again says that the header is that of the last request,
// which was parsed.
func (c *Conn) request(id uint32, b *block, again bool) error {
	s := c.next
	s.begin(id, b.end)
	if !again {
		s.head = b.End(s.head)
	}
	c.mu.Lock()
	c.idle, c.refused = c.now, false
	refused := max(c.working, len(c.streams)) >= c.server.o.MaxStreams
	calm := c.spend(b.Fields>>6 - 3) // many short fields cost; a window update, a priority and so on are free
	c.mu.Unlock()
	switch {
	case calm != nil:
		return calm
	case refused:
		return c.streamError(id, http2.ErrCodeRefusedStream, CostReset-1+b.cost())
	case b.Bad:
		return c.malformed(id, b, nil)
	}
	if !again {
		if err := b.Parse(&s.req, s.head); err != nil {
			return c.malformed(id, b, err)
		}
		b.parsed = true
	}
	s.left = Left(s.req.Length)
	if !s.req.Framed(s.ended) {
		return c.malformed(id, b, nil)
	}
	if o, relay := c.server.o.Handler.Serve(s, &s.req); o != nil {
		s.start(o, relay)
	}
	return nil
}

// malformed counts a malformed request, and answers it or resets its stream (RFC 9113, 8.1.1). err is nil unless the
// request is invalid in HTTP/1.1.
func (c *Conn) malformed(id uint32, b *block, err *http1.Error) error {
	fields, status, body, end := c.server.o.Handler.Malformed(c.peer, err)
	switch {
	case end:
		return errEnds
	case status == 0:
		return c.streamError(id, http2.ErrCodeProtocol, 2*CostReset+b.cost())
	}
	s := c.next
	s.req = b.Refused()
	s.Answer(status, fields, body)
	return c.pay(CostReset + b.cost())
}

// trailers ends a request's body.
func (c *Conn) trailers(id uint32, b *block) error {
	c.mu.Lock()
	s := c.streams[id] // nil if it was reset
	bad := b.Bad || b.TooLarge || s != nil && !s.left.Subtract(0, true)
	if s != nil && !bad {
		if s.life == draining {
			c.lose(s)
		}
		s.ended = true
		s.trailers = append(s.trailers, c.next.head...)
		s.more.Broadcast()
	}
	c.mu.Unlock()
	if bad {
		return c.streamError(id, http2.ErrCodeProtocol, 2*CostReset+b.cost())
	}
	return c.pay(b.cost())
}
