package accesslog

import "bytes"

// A scanner parses a JSON object, and stores the members that o uses. It accepts invalid JSON from servers that
// insert variables without encoding them: escapes such as \x22, and words that JSON does not have. It limits the
// depth, since the input is not trusted.
type scanner struct {
	s      []byte
	r      *record
	o      *objects
	path   []byte // of the current member, with a dot after each name
	listed bool   // header fields are objects with a name and a value, in an array
	name   []byte // of such a field
}

const maxDepth = 64

// list parses an object or an array after its opening bracket, and returns its first value. If an object is wanted,
// list stores the members that o uses. If an array is wanted, its elements are header fields.
func (p *scanner) list(closing byte, wanted bool, depth int) (first value, ok bool) {
	if p.space(); depth > maxDepth || p.accept(closing) {
		return value{}, depth <= maxDepth
	}
	isArray := closing == ']'
	for n, length := 0, len(p.path); ; n++ {
		var name []byte
		var uses []use
		field := false
		if isArray {
			p.listed, p.name, p.path = wanted, nil, p.path[:length]
		} else if name, ok = p.member(); !ok {
			return value{}, false
		} else if wanted {
			p.path = append(append(p.path[:length], name...), '.')
			path := p.path[:len(p.path)-1]
			uses = p.o.fields.uses[string(path)]
			if field = len(p.o.headers) > 0 && bytes.HasPrefix(path, p.o.headers); field {
				name = name[max(0, len(p.o.headers)-length):]
			}
		}
		v, ok := p.value(wanted, depth)
		if !ok {
			return value{}, false
		}
		p.r.put(uses, v)
		if field {
			p.header(name, v)
		}
		if n == 0 {
			first = v
		}
		if p.space(); !p.accept(',') {
			p.listed = p.listed && !isArray
			return first, p.accept(closing)
		}
	}
}

// member parses the name of a member and the colon after it.
func (p *scanner) member() (name []byte, ok bool) {
	if p.space(); !p.accept('"') {
		return nil, false
	}
	v, ok := p.text()
	p.space()
	return v.text, ok && p.accept(':')
}

// header sets a header field.
func (p *scanner) header(name []byte, v value) {
	if p.listed {
		if string(name) == "name" {
			p.name = v.text
			return
		}
		name = p.name
	}
	switch {
	case missing(v.text) || len(name) == 0:
	case len(name) == 4 && bytes.EqualFold(name, []byte("host")):
		p.r.values[host] = v // takes precedence, since its rank is 0
	case p.r.need&Header != 0:
		p.r.header = append(p.r.header, line{headerName(name), p.r.unescape(v)})
	}
}

func (p *scanner) value(wanted bool, depth int) (v value, ok bool) {
	p.space()
	switch {
	case p.accept('"'):
		return p.text()
	case p.accept('{'):
		_, ok := p.list('}', wanted && p.o.outer[string(p.path)], depth+1)
		return value{}, ok
	case p.accept('['):
		return p.list(']', wanted && bytes.Equal(p.path, p.o.headers), depth+1)
	}
	i := bytes.IndexAny(p.s, ",}] \t")
	if i <= 0 {
		return value{}, false
	}
	v.text, p.s = p.s[:i], p.s[i:]
	if string(v.text) == "null" {
		return value{text: v.text[:0]}, true
	}
	return v, !bytes.ContainsAny(v.text, "{[\"\\:")
}

// text parses a string after its opening quote.
func (p *scanner) text() (v value, ok bool) {
	end := nextQuote(p.s, 0)
	if end < 0 {
		return value{}, false
	}
	v, p.s = value{text: p.s[:end], escape: '\\'}, p.s[end+1:]
	return v, true
}

func (p *scanner) space() { p.s = trimSpaces(p.s) }

func (p *scanner) accept(c byte) bool {
	if len(p.s) == 0 || p.s[0] != c {
		return false
	}
	p.s = p.s[1:]
	return true
}

// pairs parses text such as method=GET path="/a b", and puts the values into r.
// Words that are not pairs are skipped.
func (o *objects) pairs(s []byte, r *record) {
	for {
		end := bytes.IndexByte(s, '=')
		if end < 0 {
			return
		}
		uses := o.fields.uses[string(s[bytes.LastIndexAny(s[:end], " \t")+1:end])]
		var v value
		if s = s[end+1:]; len(s) > 0 && s[0] == '"' {
			p := scanner{s: s[1:]}
			ok := false
			if v, ok = p.text(); !ok {
				return // cut off
			}
			s = p.s
		} else {
			v.text, s = cutSpace(s)
		}
		r.put(uses, v)
	}
}

// leadingTime sets r.time to the time in a prefix of syslog or Heroku, and reports whether it found one. A length,
// and a priority with a version, may precede the time.
func (r *record) leadingTime(s []byte) bool {
	for range 3 {
		t, n, ok := r.clock.stamp(s)
		if ok && n < len(s) && (s[n] == ' ' || s[n] == '\t') {
			r.time = t
			return true
		}
		if s = skipWords(s, 1); len(s) == 0 {
			return false
		}
	}
	return false
}
