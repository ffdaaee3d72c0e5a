package proxy

import (
	"net/http"
	"strconv"
	"time"

	"github.com/edgelimit/edge/limit"
)

// drops reports whether the refused client gets no answer. A trusted proxy always gets one: it would treat
// a closed connection as a failure of the node.
func (x *arrival) drops() bool { return x.decision.Verdict.Action().Closes() && !x.trusted }

const (
	plain     = "text/plain; charset=utf-8"
	plainText = "Content-Type: " + plain + "\r\n"
)

// refusal returns the answer to a refused request: dst with the fields appended as lines that end in CRLF, the status
// and the body. A body with placeholders uses text as its buffer.
func (p *Proxy) refusal(dst []byte, text *[]byte, x *arrival, now time.Time) (fields []byte, status int, body string) {
	d, kind := &x.decision, plain
	id := p.o.Limiter.ID(d, x.client)
	switch d.Verdict {
	case limit.Denied:
		dst, status, body = appendID(dst, id), http.StatusForbidden, "forbidden\n"
	case limit.Malformed:
		status, body = http.StatusBadRequest, "bad request target\n"
	case limit.Unavailable:
		dst, status, body = append(dst, comeBack...), http.StatusServiceUnavailable, "temporarily unavailable\n"
	default:
		response, wait := d.Rule.Response, seconds(d.RetryAfter(now))
		if !d.Verdict.Action().Hides() {
			dst = append(dst, "Retry-After: "...)
			dst = strconv.AppendInt(dst, wait, 10)
			dst = append(appendID(append(dst, "\r\n"...), id), "Cache-Control: no-store\r\n"...)
			dst = p.o.Headers.append(dst, p.o.Limiter, d, now)
		}
		dst = response.AppendFields(dst, id[:], wait, x.from)
		kind, status, body = response.ContentType, response.Status, response.Body
		if response.Filled {
			*text = response.AppendBody((*text)[:0], id[:], wait)
			body = borrow(*text)
		}
	}
	if x.grpc != "" && !d.Verdict.Action().Hides() {
		return x.appendGRPC(dst, status, now), http.StatusOK, ""
	}
	return append(append(append(dst, "Content-Type: "...), kind...), "\r\n"...), status, body
}

// appendID appends the field that identifies a refusal. Its name is in Go's canonical form, so that handlers of
// net/http find it.
func appendID(dst []byte, id limit.ID) []byte {
	if id == (limit.ID{}) {
		return dst
	}
	return append(append(append(dst, "Refusal-Id: "...), id[:]...), "\r\n"...)
}

// comeBack asks the client to retry after a second: within that time, the node notices that a shard has recovered.
const comeBack = "Retry-After: 1\r\nCache-Control: no-store\r\n"

// seconds rounds d up to whole seconds, and to at least 1.
func seconds(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}
