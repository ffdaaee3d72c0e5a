package http2

import (
	"bytes"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/edgelimit/edge/proxy/http1"
)

// A block is a header block that is being read (RFC 9113, 4.3): a request's header or trailers.
type block struct {
	id       uint32 // stream; 0 between blocks
	trailers bool   // follows a body
	ignored  bool   // its stream came after the last one that is served
	end      bool   // the stream ends with it
	size     int    // as SETTINGS_MAX_HEADER_LIST_SIZE counts it
	encoded  int    // bytes received
	fields   int    // that were decoded
	begun    bool   // a regular field has been received
	tooLarge bool
	parsed   bool          // it was a valid request in HTTP/1.1
	bad      http2.ErrCode // why it is malformed; 0 if it is not

	pseudo  [pseudos]string
	has     [pseudos]bool
	cookies []byte
	hosted  bool // a Host was compared with :authority
}

// Pseudo-header fields of requests (RFC 9113, 8.3.1).
const (
	method = iota
	scheme
	authority
	path
	pseudos
)

var pseudoNames = [pseudos]string{":method", ":scheme", ":authority", ":path"}

// maxFields is the maximum number of fields in a block. Clients split cookies, of which browsers keep 180 for a site, so
// it exceeds that of a request.
const maxFields = 256

// bomb reports whether b exceeds its maximum size by so much that the connection must be closed.
func (b *block) bomb(most int) bool { return b.size > 2*most || b.encoded > 2*most+maxFrame }

// cost returns what b costs if it opens no request, in frames: its larger size counts.
func (b *block) cost() int { return 1 + max(b.encoded, b.size)/tiny }

func (b *block) refuse(code http2.ErrCode) {
	if b.bad == 0 {
		b.bad = code
	}
}

// beginBlock determines what a HEADERS frame begins (RFC 9113, 5.1).
func (c *Conn) beginBlock(fh http2.FrameHeader) error {
	c.block = block{id: fh.StreamID, end: fh.Flags.Has(http2.FlagHeadersEndStream), cookies: c.block.cookies[:0]}
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
		if b.ignored = c.last; !b.ignored {
			c.newest = fh.StreamID
		}
		return nil
	}
	switch s := c.streams[fh.StreamID]; {
	case s != nil && !s.ended, s == nil && c.wasReset(fh.StreamID):
		b.trailers = true
		if !b.end {
			b.refuse(http2.ErrCodeProtocol)
		}
	default:
		return http2.ConnectionError(http2.ErrCodeStreamClosed)
	}
	return nil
}

// readBlock reads a fragment of the block, and decodes the block when it is complete: a decoder that gets
// fragments retains memory for the largest one. A head that is too large is decoded, too, because it
// changes the decoder's table. Much larger blocks end the connection, and so do many small fragments and
// large blocks that are not requests.
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
	if !last && c.parts == nil {
		c.parts = newBuffer()
	}
	if c.parts != nil {
		c.parts.b = append(c.parts.b, p...)
		p = c.parts.b
	}
	if !last {
		return nil
	}
	err := c.decode(p)
	b.pseudo = [pseudos]string{} // may be long
	if c.parts != nil {
		// The decoder refers to a block until it gets another one. GET does not change the table.
		c.hp.SetEmitEnabled(false)
		_, _ = c.hp.Write(getMethod)
		_ = c.hp.Close()
		c.parts.free()
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
	if !b.trailers && !b.ignored && len(p) > 0 && bytes.Equal(p, c.next.block) {
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
	case b.trailers:
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

// repeats reports whether block, which was decoded, would mean the same if it came again next: it does not
// change the dynamic table. The requests of a flood are mostly alike: the second one need not be decoded,
// converted and parsed.
func repeats(block []byte) bool {
	for len(block) > 0 {
		bits, strings := 4, 2
		switch b := block[0]; {
		case b >= 0x80: // RFC 7541, 6.1
			bits, strings = 7, 0
		case b >= 0x20: // 6.2.1, 6.3
			return false
		case b&0x0f > 0: // 6.2.2, 6.2.3
			strings = 1
		}
		for _, block = integer(block, bits); strings > 0; strings-- {
			var n int
			n, block = integer(block, 7)
			block = block[n:]
		}
	}
	return true
}

// integer reads an integer with a prefix of this many bits from a block that is not empty (RFC 7541, 5.1).
func integer(block []byte, bits int) (n int, rest []byte) {
	most := 1<<bits - 1
	if n = int(block[0]) & most; n < most {
		return n, block[1:]
	}
	for i, b := range block[1:] {
		if n += int(b&0x7f) << (7 * i); b < 0x80 {
			return n, block[i+2:]
		}
	}
	return n, nil
}

// field handles a decoded field. It appends fields as lines of HTTP/1.1 after the request line.
func (c *Conn) field(f hpack.HeaderField) {
	b := &c.block
	b.fields++
	b.size += int(f.Size())
	many := b.fields > maxFields
	b.tooLarge = b.size > c.server.o.MaxHeaderBytes || many
	c.hp.SetEmitEnabled(!many && !b.bomb(c.server.o.MaxHeaderBytes))
	if b.bad != 0 || b.tooLarge || b.ignored {
		return
	}
	if !httpguts.ValidHeaderFieldValue(f.Value) {
		b.refuse(http2.ErrCodeProtocol)
		return
	}
	if strings.HasPrefix(f.Name, ":") {
		b.pseudoHeader(f)
		return
	}
	if !validName(f.Name) {
		b.refuse(http2.ErrCodeProtocol)
		return
	}
	s := c.next
	if !b.begun && !b.trailers {
		s.head = b.appendRequestLine(s.head)
	}
	b.begun = true
	switch f.Name {
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade": // RFC 9113, 8.2.2
		b.refuse(http2.ErrCodeProtocol)
		return
	case "te":
		if f.Value != "trailers" {
			b.refuse(http2.ErrCodeProtocol)
			return
		}
	case "host":
		if b.has[authority] {
			if b.hosted || !strings.EqualFold(f.Value, b.pseudo[authority]) {
				b.refuse(http2.ErrCodeProtocol)
			}
			b.hosted = true
			return
		}
	case "cookie": // may be split (RFC 9113, 8.2.3)
		if !b.trailers {
			if len(b.cookies) > 0 {
				b.cookies = append(b.cookies, "; "...)
			}
			b.cookies = append(b.cookies, f.Value...)
			return
		}
	}
	if !b.trailers || !http1.IsSpecial([]byte(f.Name)) {
		s.head = appendLine(s.head, f.Name, f.Value)
	}
}

func appendLine(dst []byte, name, value string) []byte {
	dst = append(append(dst, name...), ": "...)
	return append(append(dst, value...), "\r\n"...)
}

// validName reports whether name is a token in lower case (RFC 9113, 8.2.1).
func validName(name string) bool {
	for i := range len(name) {
		if 'A' <= name[i] && name[i] <= 'Z' {
			return false
		}
	}
	return httpguts.ValidHeaderFieldName(name)
}

// pseudoHeader handles a pseudo-header field. Each occurs at most once, before regular fields, in requests only.
func (b *block) pseudoHeader(f hpack.HeaderField) {
	n := slices.Index(pseudoNames[:], f.Name)
	if n < 0 || b.begun || b.trailers || b.has[n] || f.Value == "" {
		b.refuse(http2.ErrCodeProtocol)
		return
	}
	b.has[n], b.pseudo[n] = true, f.Value
}

// appendRequestLine checks the pseudo-header fields and appends them as a request line. The path begins with
// a slash, is * for OPTIONS, or is missing for CONNECT (RFC 9113, 8.3.1 and 8.5).
func (b *block) appendRequestLine(dst []byte) []byte {
	target := b.pseudo[path]
	switch connect := b.pseudo[method] == "CONNECT"; {
	case connect && b.has[authority] && !b.has[scheme] && !b.has[path]:
		target = b.pseudo[authority]
	case connect || !b.has[method] || !b.has[scheme] || !b.has[path],
		target[0] != '/' && (target != "*" || b.pseudo[method] != "OPTIONS"):
		b.refuse(http2.ErrCodeProtocol)
	}
	dst = append(append(dst, b.pseudo[method]...), ' ')
	dst = append(append(dst, target...), " HTTP/1.1\r\n"...)
	if b.has[authority] {
		dst = appendLine(dst, "host", b.pseudo[authority])
	}
	return dst
}

var errTooLarge = &http1.Error{Status: 431, Text: "header too large"}

// request answers or relays a request whose header is complete. If again is set, the header is that of the
// last request, and was parsed.
func (c *Conn) request(id uint32, b *block, again bool) error {
	s := c.next
	if !b.begun && !again {
		s.head = b.appendRequestLine(s.head)
	}
	c.mu.Lock()
	c.idle, c.refused = c.now, false
	refused := max(c.working, len(c.streams)) >= c.server.o.MaxStreams
	calm := c.spend(b.fields>>6 - 3) // many short fields cost; a window update, a priority and so on are free
	c.mu.Unlock()
	switch {
	case calm != nil:
		return calm
	case refused:
		return c.streamError(id, http2.ErrCodeRefusedStream, costReset-1+b.cost())
	case b.bad != 0:
		return c.invalid(id, b)
	}
	s.begin(id, b.end)
	if !again {
		if len(b.cookies) > 0 {
			s.head = append(append(append(s.head, "cookie: "...), b.cookies...), "\r\n"...)
		}
		s.head = append(s.head, "\r\n"...)
		err := error(errTooLarge)
		if !b.tooLarge {
			err = s.req.Parse(s.head)
		}
		if err != nil {
			return c.malformed(s, err.(*http1.Error))
		}
		b.parsed = true
	}
	if !s.frame() {
		b.refuse(http2.ErrCodeProtocol)
		return c.invalid(id, b)
	}
	if p := c.server.o.Handler.ServeHTTP2(s, &s.req); p != nil {
		s.start(p)
	}
	return nil
}

// invalid resets the stream of a malformed request (RFC 9113, 8.1.1).
func (c *Conn) invalid(id uint32, b *block) error {
	if _, end := c.server.o.Handler.MalformedHTTP2(c.peer); end {
		return errEnds
	}
	return c.streamError(id, b.bad, 2*costReset+b.cost())
}

// malformed answers a request that is invalid in HTTP/1.1.
func (c *Conn) malformed(s *Stream, err *http1.Error) error {
	fields, end := c.server.o.Handler.MalformedHTTP2(c.peer)
	if end {
		return errEnds
	}
	s.req = http1.Request{}
	s.Answer(nil, err.Status, append(fields, "Content-Type: text/plain; charset=utf-8\r\n"...), err.Text+"\n")
	return c.pay(costReset + c.block.cost())
}

// trailers ends a request's body.
func (c *Conn) trailers(id uint32, b *block) error {
	c.mu.Lock()
	s := c.streams[id] // nil if it was reset
	bad := b.bad != 0 || b.tooLarge || s != nil && !s.measure(0, true)
	if s != nil && !bad {
		if s.answered {
			c.lose(s)
		}
		s.ended = true
		s.trailers = append(s.trailers, c.next.head...)
		s.more.Broadcast()
	}
	c.mu.Unlock()
	if bad {
		return c.streamError(id, http2.ErrCodeProtocol, 2*costReset+b.cost())
	}
	return c.pay(b.cost())
}
