package proxy

import (
	"fmt"
	"net/http"
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

// write adds what the client may know after d to header.
func (s HeaderStyle) write(header http.Header, l *limit.Limiter, d *limit.Decision, now time.Time) {
	if s == NoHeaders {
		return
	}
	var buf [4]limit.Quota
	quotas := l.Quotas(buf[:0], d, now)
	if len(quotas) == 0 {
		return
	}
	if s != XRateLimit {
		writeDraft10(header, quotas)
	}
	if s != Draft10 {
		writeXRateLimit(header, quotas)
	}
}

// Header names are written as the draft and custom spell them, not as Go would.

// writeDraft10 writes lists of strings with parameters: the policies q in w seconds, and of
// those with a current estimate what remains, r, and for how long, t.
func writeDraft10(header http.Header, quotas []limit.Quota) {
	var policy, remaining []byte
	for _, q := range quotas {
		policy = appendName(policy, q)
		policy = append(policy, ";q="...)
		policy = strconv.AppendUint(policy, min(q.Limit.Threshold, maxInteger), 10)
		policy = append(policy, ";w="...)
		policy = strconv.AppendInt(policy, int64(q.Limit.Period/time.Second), 10)
		if !q.Known {
			continue
		}
		remaining = appendName(remaining, q)
		remaining = append(remaining, ";r="...)
		remaining = strconv.AppendUint(remaining, min(q.Remaining, maxInteger), 10)
		remaining = append(remaining, ";t="...)
		remaining = strconv.AppendInt(remaining, seconds(q.Reset), 10)
	}
	header["RateLimit-Policy"] = []string{string(policy)}
	if remaining != nil {
		header["RateLimit"] = []string{string(remaining)}
	}
}

// maxInteger is the greatest integer of a structured field (RFC 9651).
const maxInteger = 999_999_999_999_999

// appendName appends the name of q's policy: the rule's ID, and where the rule has several
// limits the period.
func appendName(dst []byte, q limit.Quota) []byte {
	if len(dst) > 0 {
		dst = append(dst, ", "...)
	}
	dst = append(append(dst, '"'), q.Rule.ID...) // an ID needs no escapes
	if len(q.Rule.Limits) > 1 {
		dst = append(append(dst, '/'), rule.FormatDuration(q.Limit.Period)...)
	}
	return append(dst, '"')
}

// writeXRateLimit tells of the limit with the least that remains.
func writeXRateLimit(header http.Header, quotas []limit.Quota) {
	var least *limit.Quota
	for i := range quotas {
		if q := &quotas[i]; q.Known && (least == nil || q.Remaining < least.Remaining) {
			least = q
		}
	}
	if least == nil {
		set(header, "X-RateLimit-Limit", quotas[0].Limit.Threshold)
		return
	}
	set(header, "X-RateLimit-Limit", least.Limit.Threshold)
	set(header, "X-RateLimit-Remaining", least.Remaining)
	set(header, "X-RateLimit-Reset", uint64(seconds(least.Reset)))
}

// set writes a header in its usual spelling.
func set(header http.Header, name string, value uint64) {
	header[name] = []string{strconv.FormatUint(value, 10)}
}
