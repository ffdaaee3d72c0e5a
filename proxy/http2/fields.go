package http2

import (
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/edgelimit/edge/proxy/http1"
)

// A Head turns the fields of a header block into the head of a request in HTTP/1.1, or into trailers. HTTP/3 uses it,
// too: its fields are the same (RFC 9114, 4.3).
type Head struct {
	Trailers bool // the block follows a body
	Size     int  // as SETTINGS_MAX_HEADER_LIST_SIZE counts it
	Fields   int  // number of decoded fields
	TooLarge bool
	Bad      bool // malformed

	begun   bool            // a regular field has been received
	pseudo  [pseudos]string // empty if missing
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

// maxFields is the maximum number of fields in a block. It exceeds [http1.MaxFields] because clients may send each
// cookie in a field of its own, and browsers keep 180 cookies for a site.
const maxFields = 256

// Append appends a field as a line of HTTP/1.1, and the request line before the first one. most is the maximum size of
// all fields, in bytes.
func (h *Head) Append(dst []byte, name, value string, most int) []byte {
	h.Fields++
	h.Size += len(name) + len(value) + 32 // RFC 9113, 6.5.2
	h.TooLarge = h.Size > most || h.Fields > maxFields
	switch {
	case h.Bad || h.TooLarge:
		return dst
	case !httpguts.ValidHeaderFieldValue(value):
		h.Bad = true
		return dst
	case strings.HasPrefix(name, ":"):
		h.pseudoHeader(name, value)
		return dst
	case !httpguts.ValidHeaderFieldName(name), name != strings.ToLower(name): // RFC 9113, 8.2.1
		h.Bad = true
		return dst
	}
	if !h.begun && !h.Trailers {
		dst = h.appendRequestLine(dst)
	}
	h.begun = true
	switch name {
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade": // RFC 9113, 8.2.2
		h.Bad = true
		return dst
	case "te":
		if value != "trailers" {
			h.Bad = true
			return dst
		}
	case "host":
		if h.pseudo[authority] != "" {
			h.Bad = h.Bad || h.hosted || !strings.EqualFold(value, h.pseudo[authority])
			h.hosted = true
			return dst
		}
	case "cookie": // may be split into several fields (RFC 9113, 8.2.3)
		if !h.Trailers {
			if len(h.cookies) > 0 {
				h.cookies = append(h.cookies, "; "...)
			}
			h.cookies = append(h.cookies, value...)
			return dst
		}
	}
	return appendLine(dst, name, value)
}

// End appends the end of a request's head.
func (h *Head) End(dst []byte) []byte {
	if !h.begun {
		dst = h.appendRequestLine(dst)
	}
	if len(h.cookies) > 0 {
		dst = append(append(append(dst, "cookie: "...), h.cookies...), "\r\n"...)
	}
	return append(dst, "\r\n"...)
}

var errTooLarge = &http1.Error{Status: 431, Text: "header too large"}

// Parse parses a head that Append and End have written.
func (h *Head) Parse(r *http1.Request, head []byte) *http1.Error {
	if h.TooLarge {
		return errTooLarge
	}
	err, _ := r.Parse(head).(*http1.Error)
	return err
}

// Refused returns the part of a request that its answer needs, if the request cannot be parsed.
func (h *Head) Refused() http1.Request { return http1.Request{Head: h.pseudo[method] == "HEAD"} }

// Left is how many bytes of a body follow, by Content-Length. It is -1 if that is unknown.
type Left int64

// Subtract subtracts n bytes, and reports whether they agree with Content-Length. end says that they are the last.
func (l *Left) Subtract(n int, end bool) bool {
	if *l < 0 {
		return true
	}
	*l -= Left(n)
	return *l == 0 || *l > 0 && !end
}

func appendLine(dst []byte, name, value string) []byte {
	dst = append(append(dst, name...), ": "...)
	return append(append(dst, value...), "\r\n"...)
}

// pseudoHeader notes a pseudo-header field. Each may occur once, before regular fields, in requests only.
func (h *Head) pseudoHeader(name, value string) {
	n := slices.Index(pseudoNames[:], name)
	if n < 0 || h.begun || h.Trailers || h.pseudo[n] != "" || value == "" {
		h.Bad = true
		return
	}
	h.pseudo[n] = value
}

// appendRequestLine checks the pseudo-header fields and appends them as a request line. The path must begin with a
// slash, be * (for OPTIONS), or be missing (for CONNECT): RFC 9113, 8.3.1 and 8.5.
func (h *Head) appendRequestLine(dst []byte) []byte {
	verb, host, target := h.pseudo[method], h.pseudo[authority], h.pseudo[path]
	switch connect := verb == "CONNECT"; {
	case connect && host != "" && h.pseudo[scheme] == "" && target == "":
		target = host
	case connect || verb == "" || h.pseudo[scheme] == "" || target == "",
		target[0] != '/' && (target != "*" || verb != "OPTIONS"):
		h.Bad = true
	}
	dst = append(append(dst, verb...), ' ')
	dst = append(append(dst, target...), " HTTP/1.1\r\n"...)
	if host != "" {
		dst = appendLine(dst, "host", host)
	}
	return dst
}
