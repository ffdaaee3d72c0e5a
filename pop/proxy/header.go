package proxy

import (
	"fmt"
	"strconv"
	"time"

	"github.com/edgelimit/edge/pop/limit"
	"github.com/edgelimit/edge/pop/rule"
)

// A HeaderStyle says which headers tell clients of their quota.
type HeaderStyle uint8

const (
	// Draft10 are RateLimit-Policy and RateLimit of
	// draft-ietf-httpapi-ratelimit-headers-10, structured fields.
	Draft10 HeaderStyle = iota

	// XRateLimit are the older X-RateLimit-Limit, -Remaining and -Reset, of the limit
	// with the least that remains; the latter in seconds from now.
	XRateLimit

	BothHeaders
	NoHeaders
)

var styleNames = [...]string{Draft10: "draft10", XRateLimit: "x-ratelimit", BothHeaders: "both", NoHeaders: "none"}

// String returns the style as settings write it.
func (s HeaderStyle) String() string { return styleNames[s] }

// ParseHeaderStyle reads draft10, x-ratelimit, both or none.
func ParseHeaderStyle(text string) (HeaderStyle, error) {
	for s, name := range styleNames {
		if name == text {
			return HeaderStyle(s), nil
		}
	}
	return 0, fmt.Errorf("proxy: no rate-limit headers are called %q; there are draft10, x-ratelimit, both and none", text)
}

// append appends what the client may know after d to dst, as lines of a header that end in CRLF.
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

// Header names are written as the draft and custom spell them, not as Go would.

// appendDraft10 appends lists of strings with parameters: the policies q in w seconds, and of
// those with a current estimate what remains, r, and for how long, t.
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

// appendName appends the name of q's policy: the rule's ID, and where the rule has several
// limits the period.
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

// appendXRateLimit tells of the limit with the least that remains.
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
