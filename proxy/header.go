package proxy

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/rule"
)

// A HeaderStyle says which headers tell clients their quota.
type HeaderStyle uint8

const (
	// Draft10 means RateLimit-Policy and RateLimit, as in draft-ietf-httpapi-ratelimit-headers-10.
	Draft10 HeaderStyle = iota

	// XRateLimit means X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset, for the limit with the fewest
	// remaining requests. X-RateLimit-Reset is in seconds from now.
	XRateLimit

	BothHeaders // Draft10 and XRateLimit
	NoHeaders
)

var styleNames = [...]string{Draft10: "draft10", XRateLimit: "x-ratelimit", BothHeaders: "both", NoHeaders: "none"}

// String returns the style as written in settings.
func (s HeaderStyle) String() string { return styleNames[s] }

// ParseHeaderStyle reads a style as settings write it.
func ParseHeaderStyle(text string) (HeaderStyle, error) {
	if i := slices.Index(styleNames[:], text); i >= 0 {
		return HeaderStyle(i), nil
	}
	return 0, errors.New("must be draft10, x-ratelimit, both or none")
}

// append appends the quota fields for d to dst, as lines that end in CRLF.
func (s HeaderStyle) append(dst []byte, l *limit.Limiter, d *limit.Decision, now time.Time) []byte {
	if s == NoHeaders {
		return dst
	}
	var buf [4]limit.Quota
	quotas := l.Quotas(buf[:0], d, now)
	if len(quotas) == 0 {
		return dst
	}
	if s != XRateLimit {
		dst = appendDraft10(dst, quotas)
	}
	if s != Draft10 {
		dst = appendXRateLimit(dst, quotas)
	}
	return dst
}

// The following functions spell field names as the draft and custom do, not in Go's canonical form.

// appendDraft10 appends RateLimit-Policy with quota q and window w for each limit, and RateLimit with the remaining
// requests r and the time to the reset t for each limit with a known estimate. w and t are in seconds.
func appendDraft10(dst []byte, quotas []limit.Quota) []byte {
	dst = append(dst, "RateLimit-Policy: "...)
	for i, q := range quotas {
		dst = appendName(dst, q, i == 0)
		dst = append(dst, ";q="...)
		dst = strconv.AppendUint(dst, min(q.Limit.Threshold, maxInteger), 10)
		dst = append(dst, ";w="...)
		dst = strconv.AppendInt(dst, int64(q.Limit.Period/time.Second), 10)
	}
	dst = append(dst, "\r\n"...)
	known := 0
	for _, q := range quotas {
		if !q.Known {
			continue
		}
		if known == 0 {
			dst = append(dst, "RateLimit: "...)
		}
		dst = appendName(dst, q, known == 0)
		dst = append(dst, ";r="...)
		dst = strconv.AppendUint(dst, min(q.Remaining, maxInteger), 10)
		dst = append(dst, ";t="...)
		dst = strconv.AppendInt(dst, seconds(q.Reset), 10)
		known++
	}
	if known > 0 {
		dst = append(dst, "\r\n"...)
	}
	return dst
}

// maxInteger is the greatest integer of a structured field (RFC 9651).
const maxInteger = 999_999_999_999_999

// appendName appends the name of q's policy: the rule's ID, followed by the period if the rule has several limits.
func appendName(dst []byte, q limit.Quota, first bool) []byte {
	if !first {
		dst = append(dst, ", "...)
	}
	dst = append(append(dst, '"'), q.Rule.ID...) // an ID needs no escapes
	if len(q.Rule.Limits) > 1 {
		dst = rule.AppendDuration(append(dst, '/'), q.Limit.Period)
	}
	return append(dst, '"')
}

// appendXRateLimit appends the fields for the limit with the fewest remaining requests.
func appendXRateLimit(dst []byte, quotas []limit.Quota) []byte {
	var least *limit.Quota
	for i := range quotas {
		if q := &quotas[i]; q.Known && (least == nil || q.Remaining < least.Remaining) {
			least = q
		}
	}
	if least == nil {
		return appendField(dst, "X-RateLimit-Limit", quotas[0].Limit.Threshold)
	}
	dst = appendField(dst, "X-RateLimit-Limit", least.Limit.Threshold)
	dst = appendField(dst, "X-RateLimit-Remaining", least.Remaining)
	return appendField(dst, "X-RateLimit-Reset", uint64(seconds(least.Reset)))
}

func appendField(dst []byte, name string, value uint64) []byte {
	dst = append(append(dst, name...), ": "...)
	return append(strconv.AppendUint(dst, value, 10), "\r\n"...)
}

// drops reports whether the refused client gets no answer. A trusted proxy always gets one: it would treat
// a closed connection as a failure of the node.
func (x *arrival) drops() bool { return x.decision.Verdict == limit.Closed && !x.trusted }

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
		status, body = http.StatusBadRequest, "malformed request\n"
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
func seconds(d time.Duration) int64 { return max(1, int64((d+time.Second-1)/time.Second)) }
