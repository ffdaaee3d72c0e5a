package rule

import (
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/internal/strictyaml"
)

// A Response is what a refused request gets.
type Response struct {
	Status      int
	ContentType string
	Body        string

	Filled bool // the body has placeholders; see AppendBody
}

// The placeholders of a body.
const (
	placeID         = "id"
	placeRetryAfter = "retry_after"
)

// AppendBody appends the body to dst. It replaces {id} by id and {retry_after} by retryAfter, in seconds.
func (r *Response) AppendBody(dst, id []byte, retryAfter int64) []byte {
	rest := r.Body
	for {
		before, name, after := cutPlaceholder(rest)
		dst = append(dst, before...)
		switch name {
		case "":
			return dst
		case placeID:
			dst = append(dst, id...)
		case placeRetryAfter:
			dst = strconv.AppendInt(dst, retryAfter, 10)
		default:
			dst = append(append(append(dst, '{'), name...), '}')
		}
		rest = after
	}
}

// cutPlaceholder cuts text around the first name in braces. It ignores names in double braces, which
// templates use. If there is no name, before is text.
func cutPlaceholder(text string) (before, name, after string) {
	for at := 0; ; {
		open := strings.IndexByte(text[at:], '{')
		if open < 0 {
			return text, "", ""
		}
		open += at
		end := open + 1
		for end < len(text) && isNameByte(text[end]) {
			end++
		}
		doubled := open > 0 && text[open-1] == '{' && strings.HasPrefix(text[end:], "}}")
		if end > open+1 && end < len(text) && text[end] == '}' && !doubled {
			return text[:open], text[open+1 : end], text[end+1:]
		}
		at = end
	}
}

// isNameByte reports whether c can be part of a placeholder's name, or of a misspelled one.
func isNameByte(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// response reads a response into to. It returns the node of the body, or nil if there is none.
func (r *reader) response(n *yaml.Node, to *Response) (body *yaml.Node) {
	r.Mapping(n, "response", "write response: {status: 429, body: too many requests}", []strictyaml.Field{
		strictyaml.Whole(&r.Document, "status", "", &to.Status, MinStatus, MaxStatus),
		{Name: "content_type", Read: func(n *yaml.Node) {
			text, ok := r.Text(n, "content_type")
			if ok && !isContentType(text) {
				r.Fail(n, "write a type such as text/html or application/json", "content_type cannot be %s", strictyaml.Quote(text))
			}
			to.ContentType = text
		}},
		{Name: "body", Read: func(n *yaml.Node) {
			text, ok := r.Text(n, "body")
			if ok && len(text) > MaxBody {
				r.Fail(n, fmt.Sprintf("at most %d are allowed", MaxBody), "body has %d bytes", len(text))
			}
			to.Body, to.Filled, body = text, r.placeholders(n, text), n
		}},
	})
	if to.Body != "" && (to.Status == http.StatusNoContent || to.Status == http.StatusNotModified) {
		r.Fail(body, "leave the body out, or use another status", "a response of status %d has no body", to.Status)
	}
	return body
}

// placeholders reports whether a body has placeholders. Other names in braces, such as those in scripts,
// are text, unless they look like misspelled placeholders.
func (r *reader) placeholders(n *yaml.Node, body string) (some bool) {
	known := []string{placeID, placeRetryAfter}
	for _, name, rest := cutPlaceholder(body); name != ""; _, name, rest = cutPlaceholder(rest) {
		if slices.Contains(known, name) {
			some = true
		} else if meant := strictyaml.Guess(name, known); meant != "" {
			line, column := r.find(n, "{"+name+"}")
			r.FailAt(line, column, fmt.Sprintf("did you mean {%s}?", meant), "unknown placeholder {%s} in body", name)
		}
	}
	return some
}

// find returns the place of part in the text of n or, if it is not there, the place of n.
func (r *reader) find(n *yaml.Node, part string) (line, column int) {
	n = strictyaml.Resolve(n)
	from := n.Column - 1
	for i, text := range strings.Split(string(r.Bytes), "\n")[n.Line-1:] {
		letters := []rune(text)
		from = min(from, len(letters))
		if before, _, ok := strings.Cut(string(letters[from:]), part); ok {
			return n.Line + i, from + utf8.RuneCountInString(before) + 1
		}
		from = 0
	}
	return n.Line, n.Column
}

// isContentType reports whether s is a printable media type, with or without parameters.
func isContentType(s string) bool {
	kind, _, err := mime.ParseMediaType(s)
	return err == nil && strings.Contains(kind, "/") && s[0] != ' ' && !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' })
}

// complete returns r with defaults for what the file omits. hasBody says whether it has a body.
func (r Response) complete(action Action, hasBody bool) *Response {
	switch {
	case r.Status != 0:
	case action == ShadowBan:
		r.Status = http.StatusOK
	default:
		r.Status = http.StatusTooManyRequests
	}
	if r.ContentType == "" {
		r.ContentType = "text/plain; charset=utf-8"
		if !hasBody && r.Status == http.StatusTooManyRequests && action != ShadowBan {
			r.Body = "too many requests\n"
		}
	}
	return &r
}
