package http2

import (
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/edgelimit/edge/pop/http1"
)

// A block is a header block that is being read (RFC 9113, 4.3): a request's header or trailers.
type block struct {
	id       uint32 // stream; 0 between blocks
	trailers bool   // behind a body
	ignored  bool   // the client was told that its stream is not served
	end      bool   // the stream ends with it
	size     int    // as SETTINGS_MAX_HEADER_LIST_SIZE counts it
	encoded  int    // bytes that came
	begun    bool   // a field has come that is no pseudo-header
	tooLarge bool
	bad      http2.ErrCode // why it is malformed

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

func (b *block) refuse(code http2.ErrCode) {
	if b.bad == 0 {
		b.bad = code
	}
}

// beginBlock finds out what HEADERS are for (RFC 9113, 5.1).
func (c *Conn) beginBlock(fh http2.FrameHeader) error {
	c.block = block{id: fh.StreamID, end: fh.Flags.Has(http2.FlagHeadersEndStream), cookies: c.block.cookies[:0]}
	b := &c.block
	if fh.StreamID%2 == 0 {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if c.next == nil {
		c.next = newStream(c)
	}
	c.next.head = c.next.head[:0]
	c.hp.SetEmitEnabled(true)
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

// readBlock decodes a part of the block. What is too large is decoded all the same: the decoder's table
// changes with it. A block that is much larger ends the connection, and so do many small parts.
func (c *Conn) readBlock(p []byte, last bool) error {
	b := &c.block
	if b.encoded > 0 || len(p) == 0 {
		c.mu.Lock()
		err := c.spend(1)
		c.mu.Unlock()
		if err != nil {
			return err
		}
	}
	if b.encoded += len(p); b.encoded > 2*c.server.o.MaxHeaderBytes+maxFrame {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	if _, err := c.hp.Write(p); err != nil {
		return http2.ConnectionError(http2.ErrCodeCompression)
	}
	if !last {
		return nil
	}
	if c.hp.Close() != nil {
		return http2.ConnectionError(http2.ErrCodeCompression)
	}
	id := b.id
	b.id = 0
	switch {
	case b.ignored:
		return nil
	case b.trailers:
		return c.trailers(id, b)
	}
	return c.request(id, b)
}

// field takes a field that was decoded. Fields are rendered as lines of HTTP/1.1, behind the request
// line.
func (c *Conn) field(f hpack.HeaderField) {
	b := &c.block
	if b.size += int(f.Size()); b.size > c.server.o.MaxHeaderBytes {
		b.tooLarge = true
		c.hp.SetEmitEnabled(false)
	}
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
	case "cookie": // which may come in crumbs (RFC 9113, 8.2.3)
		if !b.trailers {
			if len(b.cookies) > 0 {
				b.cookies = append(b.cookies, "; "...)
			}
			b.cookies = append(b.cookies, f.Value...)
			return
		}
	}
	if !b.trailers || http1.ForwardsTrailer([]byte(f.Name)) {
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

// pseudoHeader takes a pseudo-header field. Each comes once, before all others, in requests only.
func (b *block) pseudoHeader(f hpack.HeaderField) {
	var n int
	switch f.Name {
	case ":method":
		n = method
	case ":scheme":
		n = scheme
	case ":authority":
		n = authority
	case ":path":
		n = path
	default:
		b.refuse(http2.ErrCodeProtocol)
		return
	}
	if b.begun || b.trailers || b.has[n] || f.Value == "" {
		b.refuse(http2.ErrCodeProtocol)
		return
	}
	b.has[n], b.pseudo[n] = true, f.Value
}

// appendRequestLine appends what the pseudo-header fields say, and checks them: a path is one of the
// node's own, * for OPTIONS, or missing for CONNECT (RFC 9113, 8.3.1 and 8.5).
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

// request has a request whose header is complete answered or relayed.
func (c *Conn) request(id uint32, b *block) error {
	s := c.next
	if !b.begun {
		s.head = b.appendRequestLine(s.head)
	}
	c.mu.Lock()
	c.idle, c.refused = c.now, false
	refused := max(c.working, len(c.streams)) >= c.server.o.MaxStreams
	c.overhead.left = min(c.overhead.left+3, c.overhead.most) // for a window update, a priority and so on
	c.mu.Unlock()
	switch {
	case refused:
		return c.streamError(id, http2.ErrCodeRefusedStream)
	case b.bad != 0:
		if _, end := c.server.o.Handler.MalformedHTTP2(c.peer); end {
			return errEnds
		}
		return c.streamError(id, b.bad)
	}
	s.begin(id, b.end)
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
	if !s.frame() {
		if _, end := c.server.o.Handler.MalformedHTTP2(c.peer); end {
			return errEnds
		}
		return c.streamError(id, http2.ErrCodeProtocol)
	}
	if p := c.server.o.Handler.ServeHTTP2(s, &s.req); p != nil {
		s.start(p)
	}
	return nil
}

// malformed answers a request that HTTP/1.1 could not carry.
func (c *Conn) malformed(s *Stream, err *http1.Error) error {
	fields, end := c.server.o.Handler.MalformedHTTP2(c.peer)
	if end {
		return errEnds
	}
	s.req = http1.Request{}
	s.Answer(nil, err.Status, append(fields, "Content-Type: text/plain; charset=utf-8\r\n"...), err.Text+"\n")
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spend(costReset)
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
		return c.streamError(id, http2.ErrCodeProtocol)
	}
	return nil
}
