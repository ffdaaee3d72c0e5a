package accesslog

import "bytes"

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
		return r.unescape(v.text, '\\')
	}
	return v.text
}

// A scanner parses a JSON object and stores only the members of a shape. It accepts invalid
// JSON from servers that insert variables without encoding: \x22, and words that JSON does not
// have. The depth is limited, since the input is not trusted.
type scanner struct {
	s      []byte
	r      *record
	o      *objects
	slots  []value // of the members that o selects
	path   []byte  // of the current member, with a dot after each name
	listed bool    // header fields are objects with a name and a value, in an array
	name   []byte  // of such a field
}

const maxDepth = 64

// object parses an object after its opening brace. Only if it is wanted may it have members that o selects.
func (p *scanner) object(wanted bool, depth int) bool {
	if depth > maxDepth {
		return false
	}
	p.space()
	if p.accept('}') {
		return true
	}
	for length := len(p.path); ; {
		if p.space(); !p.accept('"') {
			return false
		}
		name, _, ok := p.text()
		if p.space(); !ok || !p.accept(':') {
			return false
		}
		slot, known, field := -1, false, false
		if wanted {
			p.path = append(append(p.path[:length], name...), '.')
			path := p.path[:len(p.path)-1]
			slot, known = p.o.members[string(path)]
			if field = len(p.o.headers) > 0 && bytes.HasPrefix(path, p.o.headers); field {
				name = name[max(0, len(p.o.headers)-length):]
			}
		}
		v, ok := p.value(known, depth)
		if !ok {
			return false
		}
		if known && slot >= 0 {
			p.slots[slot] = v
		}
		if field {
			p.header(name, v)
		}
		if p.space(); p.accept(',') {
			continue
		}
		return p.accept('}')
	}
}

// header sets a header field.
func (p *scanner) header(name []byte, v value) {
	switch {
	case p.listed && string(name) == "name":
		p.name = v.text
		return
	case p.listed:
		name = p.name
	}
	if len(name) == 0 {
		return
	}
	if len(name) == 4 && bytes.EqualFold(name, []byte("host")) {
		p.r.host = p.r.needed(Host, p.r.plainOf(v))
	} else if p.r.need&Header != 0 {
		p.r.set(headerName(name), p.r.plainOf(v))
	}
}

func (p *scanner) value(wanted bool, depth int) (v value, ok bool) {
	p.space()
	switch {
	case p.accept('"'):
		text, escaped, ok := p.text()
		return value{text, true, escaped}, ok
	case p.accept('{'):
		return value{}, p.object(wanted, depth+1)
	case p.accept('['):
		return p.array(wanted && bytes.Equal(p.path, p.o.headers), depth+1)
	}
	i := bytes.IndexAny(p.s, ",}] \t")
	if i <= 0 {
		return value{}, false
	}
	v.text, p.s = p.s[:i], p.s[i:]
	return v, !bytes.ContainsAny(v.text, "{[\"\\:")
}

// array parses an array, and returns its first element. If it is listed, its elements are header fields.
func (p *scanner) array(listed bool, depth int) (first value, ok bool) {
	if depth > maxDepth {
		return value{}, false
	}
	p.space()
	if p.accept(']') {
		return value{}, true
	}
	length := len(p.path)
	for n := 0; ; n++ {
		p.listed, p.name, p.path = listed, nil, p.path[:length]
		v, ok := p.value(listed, depth)
		if !ok {
			return value{}, false
		}
		if n == 0 {
			first = v
		}
		if p.space(); p.accept(',') {
			continue
		}
		p.listed = false
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

func (p *scanner) space() { p.s = trimSpaces(p.s) }

func (p *scanner) accept(c byte) bool {
	if len(p.s) == 0 || p.s[0] != c {
		return false
	}
	p.s = p.s[1:]
	return true
}
