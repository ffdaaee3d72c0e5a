package rule

import (
	"net/http"
	"strconv"
	"strings"
)

// A Response is what a refused request gets.
type Response struct {
	Status      int
	ContentType string
	Body        string

	Filled bool // the body has placeholders; see AppendBody
}

// DefaultResponse returns the response of rules with an action that have none of their own.
func DefaultResponse(action Action) Response {
	r := Response{Status: http.StatusTooManyRequests, ContentType: "text/plain; charset=utf-8", Body: "too many requests\n"}
	if action == ShadowBan {
		r.Status, r.Body = http.StatusOK, ""
	}
	return r
}

// The placeholders of a body.
const (
	PlaceID         = "id"
	PlaceRetryAfter = "retry_after"
)

// AppendBody appends the body to dst. It replaces {id} with id and {retry_after} with retryAfter, in seconds.
func (r *Response) AppendBody(dst, id []byte, retryAfter int64) []byte {
	rest := r.Body
	for {
		before, name, after := CutPlaceholder(rest)
		dst = append(dst, before...)
		switch name {
		case "":
			return dst
		case PlaceID:
			dst = append(dst, id...)
		case PlaceRetryAfter:
			dst = strconv.AppendInt(dst, retryAfter, 10)
		default:
			dst = append(append(append(dst, '{'), name...), '}')
		}
		rest = after
	}
}

// CutPlaceholder cuts text around the first name in braces. It ignores names in double braces, which
// templates use. If there is no name, before is text.
func CutPlaceholder(text string) (before, name, after string) {
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
