package rule

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// MaxPattern is the maximum size of a [Pattern] in bytes.
const MaxPattern = 256

// maxReadings is the maximum number of distinct values that a condition compares: a cookie has up to eight readings.
const maxReadings = 8 * maxPairs

// A Condition is met by requests with certain values of a header, cookie or query parameter, read like those of the
// characteristic. In a match, one value must match a pattern; in an exception, all must. If values that nodes do not
// read might decide, a condition of a match is met, and one of an exception is not.
type Condition struct {
	Characteristic Characteristic // of a kind whose values clients choose
	Patterns       []Pattern      // if empty, any value matches
	Absent         bool           // the request has no value
}

// MaxSearched is the maximum number of bytes that the expressions of all rules read of a request, beyond the first
// ordinaryValue bytes of each value. A value counts as often as it is read. So only requests with long values reach the
// maximum, however many rules there are. An expression takes about 60 ns for a byte, another pattern 1 ns.
const (
	MaxSearched   = 4096
	ordinaryValue = 256
)

// scratch has buffers for values, since those that package regexp searches escape to the heap.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

// holds reports whether req meets c, the condition of a match or an exception.
func (c *Condition) holds(req *Request, except bool) bool {
	if req.partial {
		return !except
	}
	buf := scratch.Get().(*[]byte)
	defer scratch.Put(buf)
	l := list{most: maxReadings, long: maxValue}
	*buf = c.Characteristic.collect((*buf)[:0], &l, req)
	switch {
	case l.n > l.most && (l.pairs == 0 || len(c.Patterns) > 0):
		return !except
	case len(c.Patterns) == 0:
		return c.Absent == (l.n == 0)
	}
	for b, end := *buf, uint32(0); len(b) > 0; b = b[end:] {
		end = 4 + binary.BigEndian.Uint32(b)
		value := b[4:end]
		if c.Characteristic.Kind == Header {
			for i := range value {
				value[i] = lowerByte(value[i])
			}
		}
		unread := false
		matches := func(p Pattern) bool {
			if p.expression == nil {
				return like(p.text, value, "")
			}
			req.searched += max(0, len(value)-ordinaryValue)
			unread = req.searched > MaxSearched
			return !unread && p.expression.Match(value)
		}
		if slices.ContainsFunc(c.Patterns, matches) != except || unread {
			return !except
		}
	}
	return except && l.n > 0
}

// A Pattern is a text in which * stands for anything, or an RE2 expression after a ~, which may match part of a value.
type Pattern struct {
	text       string // in lower case for a header, where letter case does not count
	expression *regexp.Regexp
}

// NewPattern returns a pattern for values of characteristics of a kind.
func NewPattern(kind Kind, text string) (p Pattern, err error) {
	if len(text) > MaxPattern {
		return p, fmt.Errorf("the pattern has %d bytes, more than %d", len(text), MaxPattern)
	}
	p.text = text
	expression, ok := strings.CutPrefix(text, "~")
	if kind == Header && ok {
		expression = "(?i)" + expression
	} else if kind == Header {
		p.text = lower(text)
	}
	if ok {
		p.expression, err = regexp.Compile(expression)
	}
	return p, err
}

// String returns the pattern as spelled in rules files, that of a header in lower case.
func (p Pattern) String() string { return p.text }

// Equal reports whether p and o are the same pattern.
func (p Pattern) Equal(o Pattern) bool { return p.text == o.text }

// like reports whether s matches pattern. A * matches bytes that are not in stops; at the end of pattern, any bytes.
func like(pattern string, s []byte, stops string) bool {
	text, rest, star := strings.Cut(pattern, "*")
	if !star {
		return string(s) == pattern
	}
	if len(s) < len(text) || string(s[:len(text)]) != text {
		return false
	}
	s = s[len(text):]
	for rest != "" {
		text, rest, star = strings.Cut(rest, "*")
		skipped := len(s) - len(text)
		if star {
			var room [MaxPattern]byte
			skipped = bytes.Index(s, append(room[:0], text...))
		} else if skipped >= 0 && string(s[skipped:]) != text {
			return false
		}
		if skipped < 0 || bytes.ContainsAny(s[:skipped], stops) {
			return false
		}
		s = s[skipped+len(text):]
	}
	return true
}
