package http1

import (
	"bytes"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
)

// An Error says why a message is refused.
type Error struct {
	Status int    // of the answer
	Text   string // the reason, for the answer's body and the log
}

func (e *Error) Error() string { return e.Text }

// Errors in a head (RFC 9112, 2 to 6).
var (
	errLineEnd       = &Error{400, "a line does not end in CRLF"}
	errRequestLine   = &Error{400, "malformed request line"}
	errTarget        = &Error{400, "invalid request target"}
	errVersion       = &Error{505, "HTTP version not supported"}
	errStatusLine    = &Error{502, "malformed status line"}
	errField         = &Error{400, "malformed header field"}
	errFold          = &Error{400, "a header field is folded"}
	errOptions       = &Error{400, "too many elements in Connection or Upgrade"}
	errHost          = &Error{400, "a request needs exactly one Host"}
	errLength        = &Error{400, "invalid Content-Length"}
	errLengthTwice   = &Error{400, "several Content-Length fields"}
	errCoding        = &Error{501, "unsupported Transfer-Encoding"}
	errCodingTwice   = &Error{400, "several Transfer-Encoding fields"}
	errLengthCoding  = &Error{400, "both Content-Length and Transfer-Encoding"}
	errCodingVersion = &Error{400, "Transfer-Encoding in HTTP/1.0"}
	errHeadSize      = &Error{431, "header too large"}
	errTargetSize    = &Error{414, "request target too long"}
	errExpect        = &Error{417, "unsupported Expect"}
)

// A Name identifies a field that the engine itself reads or writes; Other stands for all other fields.
type Name uint8

const (
	Other Name = iota
	Connection
	ContentLength
	Cookie
	Date
	Expect
	Forwarded
	Host
	HTTP2Settings
	KeepAlive
	ProxyAuthenticate
	ProxyAuthorization
	ProxyConnection
	TE
	TransferEncoding
	Upgrade
	XForwardedFor
	XForwardedHost
	XForwardedProto
	names
)

var fieldNames = [names]string{
	Connection: "connection", ContentLength: "content-length", Cookie: "cookie", Date: "date", Expect: "expect",
	Forwarded: "forwarded", Host: "host", HTTP2Settings: "http2-settings", KeepAlive: "keep-alive",
	ProxyAuthenticate: "proxy-authenticate", ProxyAuthorization: "proxy-authorization",
	ProxyConnection: "proxy-connection", TE: "te",
	TransferEncoding: "transfer-encoding", Upgrade: "upgrade", XForwardedFor: "x-forwarded-for",
	XForwardedHost: "x-forwarded-host", XForwardedProto: "x-forwarded-proto",
}

// nameByShape finds names by length and first letter. No two names share both.
var nameByShape = func() (t [len("proxy-authorization") + 1][32]Name) {
	for n := Other + 1; n < names; n++ {
		t[len(fieldNames[n])][fieldNames[n][0]&31] = n
	}
	return t
}()

// nameOf returns the Name of the field name s, ignoring case.
func nameOf(s []byte) Name {
	if len(s) == 0 || len(s) >= len(nameByShape) {
		return Other
	}
	if n := nameByShape[len(s)][s[0]&31]; n != Other && equalFold(s, fieldNames[n]) {
		return n
	}
	return Other
}

// IsSpecial reports whether the engine itself reads or writes the field called name, ignoring case.
func IsSpecial(name []byte) bool { return nameOf(name) != Other }

// A Field is a line of a header. It holds the positions of its parts in the head.
type Field struct {
	Name               Name
	dropped            bool // not forwarded because it is connection-specific (RFC 9110, 7.6.1)
	start, colon       uint32
	valueAt, valueEnds uint32
}

// A Body says how a message's body ends (RFC 9112, 6.3).
type Body uint8

const (
	NoBody     Body = iota
	Sized           // Length bytes
	Chunked         // ends with an empty chunk
	UntilClose      // body of an answer that ends when the origin closes the connection
)

// A head is the common part of Request and Answer. Its bytes are in the buffer of a connection.
type head struct {
	raw    []byte // from the start line to the empty line
	Minor  int    // of the version: 1.Minor
	Length int64  // of a Sized body
	Body   Body
	Close  bool // the peer closes the connection after this message

	upgrade bool // Connection names Upgrade
	keep    bool // Connection names keep-alive

	begun             bool // the start line has been read
	bare              bool // lines may end in LF without CR; see nextLine
	start, line, seek int  // position of the scan, as offsets in the buffer

	fields   []Field
	known    []uint32 // indexes of the fields whose Name is not Other
	options  []uint64 // hashes of the names in Connection
	elements int      // number of elements of Connection and Upgrade
}

// nextLine returns the start and end of the next line in buf, without CRLF. If the line is incomplete, ok is false.
// If the start line ends in LF alone, other lines may, too: people and scripts write such requests (RFC 9112, 2.2). If
// it ends in CRLF, all others must: a proxy in front may have forwarded a bare LF as part of a value.
func (h *head) nextLine(buf []byte) (from, to int, ok bool, err error) {
	i := bytes.IndexByte(buf[h.seek:], '\n')
	if i < 0 {
		h.seek = len(buf)
		return 0, 0, false, nil
	}
	from, to = h.line, h.seek+i
	h.line, h.seek = to+1, to+1
	bare := to == from || buf[to-1] != '\r'
	switch {
	case !h.begun:
		h.bare = bare
	case bare && !h.bare:
		return 0, 0, false, errLineEnd
	}
	if !bare {
		to--
	}
	return from, to, true, nil
}

// MaxFields is the maximum number of fields of a request, as in Apache and Envoy.
const MaxFields = 100

// Bounds of a head.
const (
	fieldSize   = 32 // bytes that each field counts in addition to its line, as in HTTP/2 (RFC 9113, 6.5.2)
	maxElements = 16 // of Connection and Upgrade together
)

// scanFields reads the fields in buf, and reports whether it has reached the end of the head.
func (h *head) scanFields(buf []byte, maxBytes, maxFields int) (done bool, err error) {
	for {
		from, to, ok, err := h.nextLine(buf)
		if err != nil {
			return false, err
		}
		if h.seek-h.start+fieldSize*len(h.fields) > maxBytes || len(h.fields) > maxFields {
			return false, errHeadSize
		}
		if !ok {
			return false, nil
		}
		if from == to {
			h.raw = buf[h.start:h.line]
			return true, nil
		}
		h.fields = append(h.fields, Field{})
		last := len(h.fields) - 1
		if err := h.fields[last].scan(buf[from:to], from-h.start); err != nil {
			return false, err
		}
		if h.fields[last].Name != Other {
			h.known = append(h.known, uint32(last))
		}
	}
}

// scan reads a field line (RFC 9112, 5), which begins at start in the head. It sets f in place: copying a field just
// after its parts were written would stall the processor.
func (f *Field) scan(line []byte, start int) error {
	if line[0] == ' ' || line[0] == '\t' {
		return errFold
	}
	colon := 0
	for colon < len(line) && class[line[colon]]&tchar != 0 {
		colon++
	}
	if colon == 0 || colon == len(line) || line[colon] != ':' {
		return errField
	}
	from, to := colon+1, len(line)
	for from < to && (line[from] == ' ' || line[from] == '\t') {
		from++
	}
	for to > from && (line[to-1] == ' ' || line[to-1] == '\t') {
		to--
	}
	for _, b := range line[from:to] {
		if class[b]&text == 0 {
			return errField
		}
	}
	f.Name = nameOf(line[:colon])
	f.start, f.colon, f.valueAt, f.valueEnds = uint32(start), uint32(start+colon), uint32(start+from), uint32(start+to)
	return nil
}

// NameOf returns f's name as it was sent.
func (h *head) NameOf(f *Field) []byte { return h.raw[f.start:f.colon] }

// ValueOf returns f's value, trimmed.
func (h *head) ValueOf(f *Field) []byte { return h.raw[f.valueAt:f.valueEnds] }

// Fields yields the fields that are forwarded, in order.
func (h *head) Fields(yield func(*Field) bool) {
	for i := range h.fields {
		if f := &h.fields[i]; !f.dropped && !yield(f) {
			return
		}
	}
}

// frame determines how the body ends, and drops the connection-specific fields.
func (h *head) frame() error {
	h.Length = -1
	coded := false
	for _, i := range h.known {
		f := &h.fields[i]
		switch f.Name {
		case ContentLength:
			if h.Length >= 0 {
				return errLengthTwice
			}
			n, err := strconv.ParseUint(string(h.ValueOf(f)), 10, 63) // only digits (RFC 9110, 8.6)
			if err != nil {
				return errLength
			}
			h.Length = int64(n)
			for f.valueAt+1 < f.valueEnds && h.raw[f.valueAt] == '0' {
				h.raw[f.valueAt] = ' ' // some origins read 010 as octal
				f.valueAt++
			}
		case TransferEncoding:
			if coded {
				return errCodingTwice
			}
			if !equalFold(h.ValueOf(f), "chunked") {
				return errCoding
			}
			coded, f.dropped = true, true
		case HTTP2Settings, KeepAlive, ProxyConnection:
			f.dropped = true
		case TE:
			// TE: trailers is forwarded, transfer codings are not.
			f.dropped = !equalFold(h.ValueOf(f), "trailers")
		case Connection, Upgrade:
			f.dropped = true
			h.elements += 1 + bytes.Count(h.ValueOf(f), []byte(","))
			if h.elements > maxElements {
				return errOptions
			}
			if f.Name == Connection {
				h.readOptions(h.ValueOf(f))
			}
		}
	}
	if h.Minor == 0 && coded {
		return errCodingVersion
	}
	switch {
	case coded && h.Length >= 0:
		return errLengthCoding
	case coded:
		h.Body = Chunked
	case h.Length > 0:
		h.Body = Sized
	}
	if len(h.options) > 0 {
		h.dropNamed()
	}
	return nil
}

// reader returns a reader of the body.
func (h *head) reader() bodyReader {
	return bodyReader{kind: h.Body, left: uint64(max(h.Length, 0)), ended: h.Body == NoBody}
}

// readOptions reads a Connection field (RFC 9110, 7.6.1).
func (h *head) readOptions(value []byte) {
	for option := range elements(value) {
		switch {
		case equalFold(option, "close"):
			h.Close = true
		case equalFold(option, "keep-alive"):
			h.Close, h.keep = false, true
		case equalFold(option, "upgrade"):
			h.upgrade = true
		default:
			exact, _ := hashes(option)
			h.options = append(h.options, exact)
		}
	}
}

// dropNamed drops the fields that Connection names, and those that CGI cannot distinguish from them. It keeps the
// fields that determine the meaning of the message.
func (h *head) dropNamed() {
	for i := range h.fields {
		f := &h.fields[i]
		switch f.Name {
		case Host, ContentLength, TransferEncoding, Expect, XForwardedFor, XForwardedHost, XForwardedProto, Forwarded, Date:
			continue
		}
		exact, cgi := hashes(h.NameOf(f))
		f.dropped = f.dropped || slices.Contains(h.options, exact) || cgi != exact && slices.Contains(h.options, cgi)
	}
}

var hashSeed = rand.Uint64()

// hashes returns two hashes of name, ignoring case: of name itself, and of name with a hyphen for each byte that CGI
// treats like one. Both are FNV-1a with a secret initial value. Comparing each field with each option would take
// quadratic time.
func hashes(name []byte) (exact, cgi uint64) {
	exact, cgi = hashSeed, hashSeed
	for _, b := range name {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		exact = (exact ^ uint64(b)) * 1099511628211
		if class[b]&alphanumeric == 0 {
			b = '-'
		}
		cgi = (cgi ^ uint64(b)) * 1099511628211
	}
	return exact, cgi
}

// Classes of bytes, as bits of class.
const (
	tchar  = 1 << iota // of a token (RFC 9110, 5.6.2)
	text               // of a field value: visible, blank, or obs-text (RFC 9110, 5.5)
	target             // of a request target: visible except '#', and non-ASCII bytes, as in nginx
	digit
	alphanumeric
)

var class = func() (c [256]uint8) {
	for b := range 256 {
		switch {
		case b > ' ' && b != 0x7f:
			c[b] |= text | target
		case b == ' ' || b == '\t':
			c[b] |= text
		}
		switch {
		case '0' <= b && b <= '9':
			c[b] |= tchar | digit | alphanumeric
		case 'a' <= b|0x20 && b|0x20 <= 'z':
			c[b] |= tchar | alphanumeric
		}
	}
	c['#'] &^= target
	for _, b := range "!#$%&'*+-.^_`|~" {
		c[b] |= tchar
	}
	return c
}()

// all reports whether s is not empty and each byte is in one of the classes.
func all(s []byte, classes uint8) bool {
	for _, b := range s {
		if class[b]&classes == 0 {
			return false
		}
	}
	return len(s) > 0
}

// equalFold reports whether s in lower case equals lower, which is ASCII in lower case.
func equalFold(s []byte, lower string) bool {
	if len(s) != len(lower) {
		return false
	}
	for i, b := range s {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		if b != lower[i] {
			return false
		}
	}
	return true
}

// elements yields the non-empty elements of a comma-separated list (RFC 9110, 5.6.1).
func elements(list []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for e := range bytes.SplitSeq(list, []byte(",")) {
			if e = bytes.Trim(e, " \t"); len(e) > 0 && !yield(e) {
				return
			}
		}
	}
}
