package accesslog

import (
	"bytes"
	"net/textproto"
	"slices"
	"strings"
)

// names are where a format that writes an object a line has what is wanted, the best
// first.
type names struct {
	time    []string // or one has the day and one the time of day
	client  []string
	request []string // the request line
	method  []string
	host    []string
	path    []string // with the query or without it
	query   []string
	status  []string
	attack  []string            // true or 1 for requests that are part of an attack
	header  map[string][]string // by the header's name
	headers string              // an object of header lines
	prefix  string              // of members that are header lines
	mark    []string            // one of these has to be there
	is      [2]string           // a member, and what it has to be
	http    bool                // a request line, a method or a path has to be there
	answer  bool                // a status has to be there
	logfmt  bool                // lines may be pairs such as method=GET
}

// answered returns n, but for entries with a status only: what has a method and a path may
// also be what an application says of a request.
func (n names) answered() names {
	n.answer = true
	return n
}

// logfmt returns n for lines of pairs, such as method=GET.
func (n names) asLogfmt() names {
	n.logfmt = true
	return n
}

// objects is a format of one JSON object a line, or of pairs such as method=GET. What is before
// them in the line, such as what a container engine writes there, is skipped.
type objects struct {
	shape shape
	names names
	slots int

	// The slots of the lists of names.
	time, client, request, method, host, path, query, status, attack, mark, is []int

	header []headerSlots
}

type headerSlots struct {
	name  string
	slots []int
}

func newObjects(n names) *objects {
	o := &objects{shape: shape{members: map[string]*member{}}, names: n}
	list := func(paths []string) (slots []int) {
		for _, path := range paths {
			if m := o.shape.members[path]; m != nil && m.slot >= 0 {
				slots = append(slots, m.slot)
				continue
			}
			o.shape.want(path, o.slots)
			slots = append(slots, o.slots)
			o.slots++
		}
		return slots
	}
	o.time, o.client = list(n.time), list(n.client)
	o.request, o.method, o.host = list(n.request), list(n.method), list(n.host)
	o.path, o.query, o.status = list(n.path), list(n.query), list(n.status)
	o.attack, o.mark = list(n.attack), list(n.mark)
	if n.is[0] != "" {
		o.is = list(n.is[:1])
	}
	for name, paths := range n.header {
		o.header = append(o.header, headerSlots{name, list(paths)})
	}
	slices.SortFunc(o.header, func(a, b headerSlots) int { return strings.Compare(a.name, b.name) })
	if n.headers != "" {
		s := &o.shape
		for name := range strings.SplitSeq(n.headers, ".") {
			m := s.member(name)
			if m.shape == nil {
				m.shape = &shape{members: map[string]*member{}}
			}
			s = m.shape
		}
		s.collect = func(r *record, name []byte, v value) {
			if len(name) == 4 && bytes.EqualFold(name, []byte("host")) {
				r.host = r.needed(Host, r.plainOf(v))
			} else if r.need&Header != 0 {
				r.set(headerName(name), r.plainOf(v))
			}
		}
	}
	if n.prefix != "" {
		prefix := []byte(n.prefix)
		o.shape.collect = func(r *record, name []byte, v value) {
			if r.need&Header != 0 && bytes.HasPrefix(name, prefix) {
				r.set(headerName(name[len(prefix):]), r.plainOf(v))
			}
		}
	}
	return o
}

// headerName spells a header's name as net/http does.
func headerName(name []byte) string { return textproto.CanonicalMIMEHeaderKey(string(name)) }

func (o *objects) parse(s []byte, r *record) string {
	if cap(r.slots) < o.slots {
		r.slots = make([]value, o.slots)
	}
	slots := r.slots[:o.slots]
	clear(slots)
	switch i := bytes.IndexByte(s, '{'); {
	case o.names.logfmt && (i < 0 || bytes.IndexByte(s[:i], '=') >= 0):
		o.pairs(s, slots)
	case i < 0:
		return "no JSON object"
	default:
		p := scanner{s[i+1:], r}
		if !p.object(&o.shape, slots, 0) {
			return "no whole JSON object"
		}
		if len(bytes.TrimSpace(p.s)) > 0 {
			return "more than a JSON object"
		}
	}
	get := func(list []int) value {
		for _, i := range list {
			if v := slots[i]; !v.missing() {
				return v
			}
		}
		return value{}
	}
	if len(o.mark) > 0 && !slices.ContainsFunc(o.mark, func(i int) bool { return slots[i].there() }) {
		return "not an entry of this format"
	}
	if o.is != nil && string(slots[o.is[0]].text) != o.names.is[1] {
		return "not a request, but another line of this log"
	}
	if o.names.http && len(get(o.request).text)+len(get(o.method).text)+len(get(o.path).text) == 0 {
		return "no request"
	}
	if o.names.answer && len(get(o.status).text) == 0 {
		return "no status"
	}
	if !o.readTime(slots, r) && !(o.names.logfmt && r.leadingTime(s)) {
		return "no time that can be read"
	}
	client := get(o.client)
	if r.client = firstOf(r.plainOf(client)); len(r.client) == 0 {
		if !slices.ContainsFunc(o.client, func(i int) bool { return string(slots[i].text) == "-" }) {
			return "no client"
		}
		r.client = []byte("-")
	}
	if r.need&^Addr == 0 {
		return ""
	}
	if v := get(o.request); v.text != nil {
		if v.escaped {
			v.text = r.plainOf(v)
		}
		r.request(v.text)
	}
	if v := get(o.method); v.text != nil {
		r.method = r.plainOf(v)
	}
	if v := get(o.path); v.text != nil {
		r.target(r.plainOf(v))
	}
	if v := get(o.query); v.text != nil && len(r.query) == 0 {
		r.query = bytes.TrimPrefix(r.plainOf(v), []byte("?"))
	}
	if v := get(o.host); v.text != nil {
		r.host = r.plainOf(v)
	}
	r.code(get(o.status).text)
	marked := string(get(o.attack).text)
	r.attack = marked == "true" || marked == "1"
	for _, h := range o.header {
		r.set(h.name, r.plainOf(get(h.slots)))
	}
	return ""
}

// readTime reads the first of the times that can be read.
func (o *objects) readTime(slots []value, r *record) (ok bool) {
	for _, i := range o.time {
		v := slots[i]
		if v.missing() {
			continue
		}
		text := r.plainOf(v)
		if day, ok := r.clock.date(text); ok {
			for _, i := range o.time {
				text := slots[i].text
				if of, ok := hmsOf(text); ok {
					r.time = r.clock.wall(day+of)*second + fractionOf(text)
					return true
				}
			}
		}
		if r.time, ok = r.clock.any(text); ok {
			return true
		}
	}
	return false
}

// hmsOf reads HH:MM:SS with or without a fraction.
func hmsOf(s []byte) (int64, bool) {
	if len(s) < 8 || len(s) > 8 && s[8] != '.' && s[8] != ',' {
		return 0, false
	}
	return hms(s[:8])
}

func fractionOf(s []byte) int64 {
	micros, _ := fraction(s[8:])
	return micros
}
