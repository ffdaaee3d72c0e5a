package rule

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Response is what a refused request gets.
type Response struct {
	Status      int
	ContentType string
	Body        string

	Filled bool // the body has placeholders; see AppendBody

	// Fields are further header fields, as lines that end in CRLF. OriginFields are those with {origin}. See AppendFields.
	Fields, OriginFields string

	// Origins are the origins that may replace {origin}, in the form in which browsers send them. "*." at the beginning
	// of a host stands for one or more labels.
	Origins []string

	// MaxRetryAfter is the longest time that clients are told to wait, even if the mitigation lasts longer. 0 means any.
	MaxRetryAfter time.Duration
}

// DefaultResponse returns the response of rules with an action that have none of their own.
func DefaultResponse(action Action) *Response {
	r := &Response{Status: http.StatusTooManyRequests, ContentType: "text/plain; charset=utf-8",
		Body: "too many requests\n"}
	if action.Hides() {
		r.Status, r.Body = http.StatusOK, ""
	}
	return r
}

// AppendBody appends the body to dst. It replaces {id} with id and {retry_after} with retryAfter, in seconds.
func (r *Response) AppendBody(dst, id []byte, retryAfter int64) []byte {
	return fill(dst, r.Body, id, retryAfter, "")
}

// AppendFields appends the header fields to dst, and replaces placeholders as AppendBody does. Fields with {origin} are
// left out unless origin, the request's Origin, is one of Origins.
func (r *Response) AppendFields(dst, id []byte, retryAfter int64, origin string) []byte {
	dst = fill(dst, r.Fields, id, retryAfter, "")
	if slices.ContainsFunc(r.Origins, func(listed string) bool { return isOrigin(origin, listed) }) {
		dst = fill(dst, r.OriginFields, id, retryAfter, origin)
	}
	return dst
}

// fill appends text to dst with its placeholders replaced, {origin} only if origin is not empty.
func fill(dst []byte, text string, id []byte, retryAfter int64, origin string) []byte {
	for rest := text; ; {
		before, after, found := strings.Cut(rest, "{")
		dst = append(dst, before...)
		if !found {
			return dst
		}
		if more, ok := strings.CutPrefix(after, "id}"); ok {
			dst, rest = append(dst, id...), more
		} else if more, ok := strings.CutPrefix(after, "retry_after}"); ok {
			dst, rest = strconv.AppendInt(dst, retryAfter, 10), more
		} else if more, ok := strings.CutPrefix(after, "origin}"); ok && origin != "" {
			dst, rest = append(dst, origin...), more
		} else {
			dst, rest = append(dst, '{'), after
		}
	}
}

// isOrigin reports whether origin is listed. The "*" in listed matches only part of a host.
func isOrigin(origin, listed string) bool {
	scheme, domain, wild := strings.Cut(listed, "*")
	if !wild {
		return origin == listed
	}
	rest, ok := strings.CutPrefix(origin, scheme)
	labels, end := strings.CutSuffix(rest, domain)
	return ok && end && 0 < len(labels) && len(labels) < 254 && labels[0] != '.' &&
		strings.Trim(labels, "abcdefghijklmnopqrstuvwxyz0123456789.-") == ""
}

// NodeSets reports whether a node itself sets the field called name, or an engine or a proxy in front does, so that
// no response can have it as a further field.
func NodeSets(name string) bool {
	return slices.ContainsFunc(nodeFields, func(f string) bool {
		n := min(len(name), len(strings.TrimSuffix(f, "*")))
		return strings.EqualFold(name[:n], strings.TrimSuffix(f, "*")) && (n == len(name) || n < len(f))
	})
}

// nodeFields are the names, and with a "*" the beginnings of names.
var nodeFields = strings.Fields(`Cache-Control Connection Content-Length Content-Type Date Grpc-* HTTP2-Settings
	Keep-Alive Proxy-* RateLimit* Refusal-Id Retry-After TE Trailer Transfer-Encoding Upgrade X-Accel-* X-Edge-*
	X-RateLimit-*`)
