package accesslog

import (
	"bytes"
	"strings"
)

// A shape selects members of a JSON object and assigns them to slots.
type shape struct {
	members map[string]*member
	collect func(r *record, name []byte, v value) // if not nil, called for every member
}

type member struct {
	slot  int // or -1
	shape *shape
}

// unwanted is a member that a shape does not select.
var unwanted = member{slot: -1, shape: new(shape)}

// want assigns the member path to slot. If path has dots, it also means a member of nested
// objects.
func (s *shape) want(path string, slot int) {
	for nested := true; nested; {
		s.member(path).slot = slot
		var name string
		if name, path, nested = strings.Cut(path, "."); nested {
			s = s.inner(name)
		}
	}
}

// inner returns the shape of the member name, an object.
func (s *shape) inner(name string) *shape {
	m := s.member(name)
	if m.shape == unwanted.shape {
		m.shape = &shape{members: map[string]*member{}}
	}
	return m.shape
}

func (s *shape) member(name string) *member {
	m := s.members[name]
	if m == nil {
		m = new(unwanted)
		s.members[name] = m
	}
	return m
}

// A value is the text of a string without its quotes, a number, or a word such as null. The
// value of an array is its first element.
type value struct {
	text    []byte
	quoted  bool
	escaped bool
}

// present reports whether the value is present, even if empty or null.
func (v value) present() bool { return v.text != nil || v.quoted }

func (v value) missing() bool {
	return missing(v.text) || !v.quoted && string(v.text) == "null"
}

// plainOf returns the unescaped text of v.
func (r *record) plainOf(v value) []byte {
	if v.escaped {
		return r.unescape(v.text)
	}
	return v.text
}

// A scanner parses a JSON object and stores only the members of a shape. It accepts invalid
// JSON from servers that insert variables without encoding: \x22, and words that JSON does not
// have. The depth is limited, since the input is not trusted.
type scanner struct {
	s []byte
	r *record
}

const maxDepth = 64

// object parses an object after its opening brace.
func (p *scanner) object(want *shape, slots []value, depth int) bool {
	if depth > maxDepth {
		return false
	}
	p.space()
	if p.accept('}') {
		return true
	}
	for {
		if p.space(); !p.accept('"') {
			return false
		}
		name, _, ok := p.text()
		if p.space(); !ok || !p.accept(':') {
			return false
		}
		m := want.members[string(name)]
		if m == nil {
			m = &unwanted
		}
		v, ok := p.value(m.shape, slots, depth)
		if !ok {
			return false
		}
		if m.slot >= 0 {
			slots[m.slot] = v
		}
		if want.collect != nil {
			want.collect(p.r, name, v)
		}
		if p.space(); p.accept(',') {
			continue
		}
		return p.accept('}')
	}
}

func (p *scanner) value(want *shape, slots []value, depth int) (v value, ok bool) {
	p.space()
	switch {
	case p.accept('"'):
		text, escaped, ok := p.text()
		return value{text, true, escaped}, ok
	case p.accept('{'):
		return value{}, p.object(want, slots, depth+1)
	case p.accept('['):
		return p.array(want, depth+1)
	}
	i := bytes.IndexAny(p.s, ",}] \t")
	if i <= 0 {
		return value{}, false
	}
	v.text, p.s = p.s[:i], p.s[i:]
	return v, !bytes.ContainsAny(v.text, "{[\"\\:")
}

// pair is the shape of a header field in an array of header fields.
var pair = &shape{members: map[string]*member{"name": {0, unwanted.shape}, "value": {1, unwanted.shape}}}

// array parses an array after its opening bracket, and returns its first element. If want
// collects members, array calls want.collect for each element that is an object with a name
// and a value.
func (p *scanner) array(want *shape, depth int) (first value, ok bool) {
	if depth > maxDepth {
		return value{}, false
	}
	inner, slots := unwanted.shape, []value(nil)
	if want.collect != nil {
		inner, slots = pair, p.r.pair[:]
	}
	p.space()
	if p.accept(']') {
		return value{}, true
	}
	for n := 0; ; n++ {
		clear(slots)
		v, ok := p.value(inner, slots, depth)
		if !ok {
			return value{}, false
		}
		if inner == pair && slots[0].present() {
			want.collect(p.r, slots[0].text, slots[1])
		}
		if n == 0 {
			first = v
		}
		if p.space(); p.accept(',') {
			continue
		}
		return first, p.accept(']')
	}
}

// text parses a string after its opening quote.
func (p *scanner) text() (text []byte, escaped, ok bool) {
	quote := -1 // the index of the first quote from i on, once found; text takes time linear in its length
	for i := 0; ; {
		if quote < i {
			j := bytes.IndexByte(p.s[i:], '"')
			if j < 0 {
				return nil, false, false
			}
			quote = i + j
		}
		k := bytes.IndexByte(p.s[i:quote], '\\')
		if k < 0 {
			text, p.s = p.s[:quote], p.s[quote+1:]
			return text, escaped, true
		}
		escaped = true
		i += k + 2
	}
}

func (p *scanner) space() {
	for len(p.s) > 0 && (p.s[0] == ' ' || p.s[0] == '\t') {
		p.s = p.s[1:]
	}
}

func (p *scanner) accept(c byte) bool {
	if len(p.s) == 0 || p.s[0] != c {
		return false
	}
	p.s = p.s[1:]
	return true
}
