package proxy

import (
	"net/http"
	"strconv"
	"time"

	"github.com/edgelimit/edge/limit"
)

// drops reports whether the refused client gets no answer. A trusted proxy always gets one: it would treat
// a closed connection as a failure of the node.
func (x *arrival) drops() bool { return x.decision.Verdict == limit.Closed && !x.trusted }

const plainText = "Content-Type: text/plain; charset=utf-8\r\n"

// refusal returns the answer to a refused request: fields, which it appends to dst as lines that end in
// CRLF, the status and the body. A body with placeholders uses text as its buffer.
func (p *Proxy) refusal(dst []byte, text *[]byte, x *arrival, now time.Time) (fields []byte, status int, body string) {
	d := &x.decision
	id := p.o.Limiter.ID(d, x.client)
	switch d.Verdict {
	case limit.Denied:
		return append(appendID(dst, id), plainText...), http.StatusForbidden, "forbidden\n"
	case limit.Malformed:
		return append(dst, plainText...), http.StatusBadRequest, "bad request target\n"
	case limit.Unavailable:
		return append(dst, comeBack...), http.StatusServiceUnavailable, unavailable
	case limit.ShadowBanned:
	default:
		dst = append(dst, "Retry-After: "...)
		dst = strconv.AppendInt(dst, retryAfter(d, now), 10)
		dst = append(appendID(append(dst, "\r\n"...), id), "Cache-Control: no-store\r\n"...)
		dst = p.o.Headers.append(dst, p.o.Limiter, d, now)
	}
	response := d.Rule.Response
	dst = append(append(dst, "Content-Type: "...), response.ContentType...)
	body = response.Body
	if response.Filled {
		*text = response.AppendBody((*text)[:0], id[:], retryAfter(d, now))
		body = borrow(*text)
	}
	return append(dst, "\r\n"...), response.Status, body
}

// appendID appends the field that identifies a refusal. Its name is in Go's canonical form, so that
// handlers of net/http find it.
func appendID(dst []byte, id limit.ID) []byte {
	if id == (limit.ID{}) {
		return dst
	}
	return append(append(append(dst, "Refusal-Id: "...), id[:]...), "\r\n"...)
}

// The answer to a client that may succeed in a second: within that time, a shard that has recovered is noticed.
const (
	comeBack    = "Retry-After: 1\r\nCache-Control: no-store\r\n" + plainText
	unavailable = "temporarily unavailable\n"
)

// retryAfter returns the seconds until the mitigation ends on this node, rounded up. It is never 0.
func retryAfter(d *limit.Decision, now time.Time) int64 {
	return seconds(d.Deadline().Sub(now))
}

// seconds rounds d up to whole seconds, and to at least 1.
func seconds(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}
