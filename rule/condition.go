package rule

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// MaxPattern is the maximum size of a [Pattern] in bytes.
const MaxPattern = 256

// maxReadings is the maximum number of distinct values that a condition compares, which only headers reach.
const maxReadings = 8 * maxPairs

// A Condition is met by requests with certain values of a header, cookie or query parameter. Values are read as those of the
// characteristic are. The condition of a match is met if one of them matches a pattern, and that of an exception only if
// all of them do. If there are more than nodes read, so that the missing ones might decide, a match applies and an exception
// does not.
type Condition struct {
	Characteristic Characteristic // of a kind whose values clients choose
	Patterns       []Pattern      // if there are none, any value does
	Absent         bool           // the request has no value
}

// String returns the condition as spelled in rules files, such as header:accept absent.
func (c *Condition) String() string {
	switch {
	case c.Absent:
		return c.Characteristic.String() + " absent"
	case len(c.Patterns) == 0:
		return c.Characteristic.String() + " present"
	}
	return fmt.Sprint(c.Characteristic, " ", c.Patterns)
}

// holds reports whether req meets c, the condition of a match or an exception.
func (c *Condition) holds(req *Request, except bool) bool {
	if req.partial {
		return !except
	}
	var room [256]byte
	l := list{most: maxReadings}
	b := c.Characteristic.collect(room[:0], &l, req)
	several := l.n > l.most
	switch {
	case several && (l.pairs == 0 || len(c.Patterns) > 0):
		return !except
	case c.Absent || l.n == 0:
		return c.Absent == (l.n == 0)
	case len(c.Patterns) == 0:
		return true
	}
	for len(b) > 0 {
		end := 4 + binary.BigEndian.Uint32(b)
		if c.matches(b[4:end]) != except {
			return !except
		}
		b = b[end:]
	}
	return except
}

// matches reports whether value matches one of c's patterns. It brings the value of a header into lower case.
func (c *Condition) matches(value []byte) bool {
	if c.Characteristic.Kind == Header {
		for i, b := range value {
			value[i] = lowerByte(b)
		}
	}
	for i := range c.Patterns {
		p := &c.Patterns[i]
		if p.expression != nil && p.searches(value) || p.expression == nil && like(p.text, value, "") {
			return true
		}
	}
	return false
}

// scratch has buffers for values, since those that package regexp searches escape to the heap.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

// searches reports whether p's expression matches a part of value.
func (p *Pattern) searches(value []byte) bool {
	buf := scratch.Get().(*[]byte)
	defer scratch.Put(buf)
	*buf = append((*buf)[:0], value...)
	return p.expression.Match(*buf)
}

// hasValues reports whether req meets the conditions of m, which belongs to an exception or not.
func (m *Match) hasValues(req *Request, except bool) bool {
	for i := range m.Conditions {
		if !m.Conditions[i].holds(req, except) {
			return false
		}
	}
	return true
}

// AllConditions returns all conditions of r and of its exceptions.
func (r *Rule) AllConditions() []Condition {
	all := slices.Clip(r.Conditions)
	for i := range r.Except {
		all = append(all, r.Except[i].Conditions...)
	}
	return all
}

// A Pattern is a text in which * stands for anything, or an RE2 expression after a ~, which may match any part of a value.
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
	switch expression, ok := strings.CutPrefix(text, "~"); {
	case ok && expression == "":
		err = errors.New("the expression is empty")
	case ok:
		if p.expression, err = regexp.Compile(expression); err == nil && kind == Header {
			p.expression, err = regexp.Compile("(?i)" + expression)
		}
	case kind == Header:
		p.text = lower(text)
	}
	return p, err
}

// String returns the pattern as spelled in rules files, that of a header in lower case.
func (p Pattern) String() string { return p.text }

// Equal reports whether p and o are the same pattern.
func (p Pattern) Equal(o Pattern) bool { return p.text == o.text }

// like reports whether s is like pattern, in which a * stands for any bytes but those of stops, and one at the end for anything.
func like(pattern string, s []byte, stops string) bool {
	star, from, i := -1, 0, 0 // the last star that was passed, and where the bytes after it may begin in s
	for j := 0; j < len(s); {
		switch {
		case i < len(pattern) && pattern[i] == '*':
			if i++; i == len(pattern) {
				return true
			}
			star, from = i-1, j
		case i < len(pattern) && pattern[i] == s[j]:
			i, j = i+1, j+1
		case star < 0:
			return false
		default:
			skipped := 1 + bytes.IndexByte(s[from+1:], pattern[star+1])
			if skipped == 0 || bytes.ContainsAny(s[from:from+skipped], stops) {
				return false
			}
			from += skipped
			i, j = star+1, from
		}
	}
	return strings.Trim(pattern[i:], "*") == ""
}
