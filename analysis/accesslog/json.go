package accesslog

import (
	"bytes"
	"net/textproto"
	"slices"
	"strings"
)

// names are the names of the fields in a format of one object per line, preferred names first.
type names struct {
	fields  [kinds][]string     // for epoch: one has the time, or one the day and one the time of day
	header  map[string][]string // by the name of the header field
	headers string              // path of an object of header fields
	prefix  string              // prefix of the names of members that are header fields
	mark    []string            // one of these must be present
	is      [2]string           // a member and its required value
	http    bool                // a request line, a method or a path must be present
	answer  bool                // a status must be present
	logfmt  bool                // lines may be pairs such as method=GET
}

// named maps names in the description of a format to kinds.
var named = map[string]kind{
	"time": epoch, "client": client, "request": request, "method": method, "host": host, "path": target, "query": query,
	"status": status, "attack": attack,
}

// answered returns a copy of n that requires a status: an application's log message about a
// request may also have a method and a path.
func (n names) answered() names {
	n.answer = true
	return n
}

// asLogfmt returns a copy of n that also accepts lines of pairs such as method=GET.
func (n names) asLogfmt() names {
	n.logfmt = true
	return n
}

// objects is a format of one JSON object per line, or of pairs such as method=GET. It skips text
// before the object, such as the prefix of a container engine.
type objects struct {
	shape shape
	names names
	slots int

	// Slots for the names in the fields of names.
	fields   [kinds][]int
	mark, is []int
	header   []headerSlots
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
	for kind, paths := range n.fields {
		o.fields[kind] = list(paths)
	}
	o.mark = list(n.mark)
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
			s = s.inner(name)
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

// headerName returns the canonical form of the name of a header field.
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
			return "incomplete JSON object"
		}
		if len(bytes.TrimSpace(p.s)) > 0 {
			return "text after the JSON object"
		}
	}
	first := func(list []int) value {
		for _, i := range list {
			if v := slots[i]; !v.missing() {
				return v
			}
		}
		return value{}
	}
	get := func(k kind) value { return first(o.fields[k]) }
	if len(o.mark) > 0 && !slices.ContainsFunc(o.mark, func(i int) bool { return slots[i].present() }) {
		return "not an entry of this format"
	}
	if o.is != nil && string(slots[o.is[0]].text) != o.names.is[1] {
		return "another kind of line, not a request"
	}
	if o.names.http && len(get(request).text)+len(get(method).text)+len(get(target).text) == 0 {
		return "no request"
	}
	if o.names.answer && len(get(status).text) == 0 {
		return "no status"
	}
	if !o.readTime(slots, r) && !(o.names.logfmt && r.leadingTime(s)) {
		return "unreadable time"
	}
	if r.client = firstOf(r.plainOf(get(client))); len(r.client) == 0 {
		if !slices.ContainsFunc(o.fields[client], func(i int) bool { return string(slots[i].text) == "-" }) {
			return "no client"
		}
		r.client = []byte("-")
	}
	if r.need&^Addr == 0 {
		return ""
	}
	if v := get(request); v.text != nil {
		if v.escaped {
			v.text = r.plainOf(v)
		}
		r.request(v.text)
	}
	if v := get(method); v.text != nil {
		r.method = r.plainOf(v)
	}
	if v := get(target); v.text != nil {
		r.target(r.plainOf(v))
	}
	if v := get(query); v.text != nil && len(r.query) == 0 {
		r.query = bytes.TrimPrefix(r.plainOf(v), []byte("?"))
	}
	if v := get(host); v.text != nil {
		r.host = r.plainOf(v)
	}
	r.code(get(status).text)
	marked := string(get(attack).text)
	r.attack = marked == "true" || marked == "1"
	for _, h := range o.header {
		r.set(h.name, r.plainOf(first(h.slots)))
	}
	return ""
}

// readTime sets r.time to the first valid time, and reports whether there is one.
func (o *objects) readTime(slots []value, r *record) (ok bool) {
	for _, i := range o.fields[epoch] {
		v := slots[i]
		if v.missing() {
			continue
		}
		text := r.plainOf(v)
		if day, ok := r.clock.date(text); ok {
			for _, i := range o.fields[epoch] {
				text := slots[i].text
				if secs, ok := hmsOf(text); ok {
					r.time = r.clock.wall(day+secs)*second + fractionOf(text)
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

// hmsOf parses HH:MM:SS with an optional fraction, which it ignores.
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
