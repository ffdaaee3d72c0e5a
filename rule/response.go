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

// AppendBody appends the body to dst. It replaces {id} with id and {retry_after} with retryAfter, in seconds.
func (r *Response) AppendBody(dst, id []byte, retryAfter int64) []byte {
	for rest := r.Body; ; {
		before, after, found := strings.Cut(rest, "{")
		dst = append(dst, before...)
		if !found {
			return dst
		}
		if more, ok := strings.CutPrefix(after, "id}"); ok {
			dst, rest = append(dst, id...), more
		} else if more, ok := strings.CutPrefix(after, "retry_after}"); ok {
			dst, rest = strconv.AppendInt(dst, retryAfter, 10), more
		} else {
			dst, rest = append(dst, '{'), after
		}
	}
}
