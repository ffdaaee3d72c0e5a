package accesslog

import (
	"bytes"
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strings"
)

// names are the names of the fields in a format of one object per line, preferred names first. For the time, one field
// may have the day and another one the time of day. Besides the keys of named, the keys are
//
//	header:NAME  a header field
//	headers      the prefix of the paths of header fields
//	mark         fields, at least one of which must be present
//	is           a field and its required value
//	http         if set, a request line, a method or a path must be present
//	logfmt       if set, lines may be pairs such as method=GET
type names map[string][]string

// described parses names from text such as time=ts client=ip|addr http. A line that ends with | continues on the next.
func described(text string) names {
	n := names{}
	for pair := range strings.FieldsSeq(strings.ReplaceAll(text, "|\n\t\t", "|")) {
		key, list, _ := strings.Cut(pair, "=")
		n[key] = strings.Split(list, "|")
	}
	return n
}

// named maps the names of fields in the description of a format to kinds.
var named = map[string]kind{
	"time": epoch, "client": client, "request": request, "method": method, "host": host, "path": target, "query": query,
	"status": status, "attack": attack,
}

// objects is a format of one JSON object per line, or of pairs such as method=GET. It skips text
// before the object, such as the prefix of a container engine.
type objects struct {
	names  names
	http   bool
	logfmt bool

	members map[string]int // slots by path; -1 for an object with selected members
	headers []byte         // prefix of the paths of header fields

	// Slots for the names in the fields of names.
	slots  int
	fields [kinds][]int
	mark   []int
	header [][]int
	is     []int
	value  string // required of is

	headerNames []string // of header, sorted
}

func newObjects(n names) *objects {
	o := &objects{names: n, http: n["http"] != nil, logfmt: n["logfmt"] != nil, members: map[string]int{}}
	for _, key := range slices.Sorted(maps.Keys(n)) {
		if kind, ok := named[key]; ok {
			o.fields[kind] = o.slotsOf(n[key])
		} else if name, ok := strings.CutPrefix(key, "header:"); ok {
			o.header = append(o.header, o.slotsOf(n[key]))
			o.headerNames = append(o.headerNames, name)
		}
	}
	o.mark = o.slotsOf(n["mark"])
	if is := n["is"]; is != nil {
		o.is, o.value = o.slotsOf(is[:1]), is[1]
	}
	if n["headers"] != nil {
		o.headers = []byte(n["headers"][0])
		o.inner(n["headers"][0])
	}
	return o
}

// slotsOf returns the slots of members.
func (o *objects) slotsOf(paths []string) (slots []int) {
	for _, path := range paths {
		slot, known := o.members[path]
		if !known || slot < 0 {
			slot = o.slots
			o.slots++
			o.members[path] = slot
			o.inner(path)
		}
		slots = append(slots, slot)
	}
	return slots
}

// inner marks the objects that contain the member path as wanted. A dot may also be a part of a member's name.
func (o *objects) inner(path string) {
	for i := range path {
		if _, known := o.members[path[:i]]; path[i] == '.' && !known {
			o.members[path[:i]] = -1
		}
	}
}

// renamed returns the format with other names for some fields. It requires neither a mark nor a request.
func (o *objects) renamed(change map[string]string) (*objects, error) {
	n := maps.Clone(o.names)
	for key, path := range change {
		if name, ok := strings.CutPrefix(key, "header:"); ok {
			key = "header:" + headerName([]byte(name))
		} else if _, ok := named[key]; !ok {
			return nil, fmt.Errorf("accesslog: unknown field %q: use time, client, request, method, host, path, query, status, attack, or header:Name", key)
		}
		n[key] = []string{path}
	}
	delete(n, "mark")
	delete(n, "http")
	return newObjects(n), nil
}

// headerName returns the canonical form of the name of a header field.
func headerName(name []byte) string { return textproto.CanonicalMIMEHeaderKey(string(name)) }

func (o *objects) parse(s []byte, r *record) string {
	if cap(r.slots) < o.slots {
		r.slots = make([]value, o.slots)
	}
	slots, before := r.slots[:o.slots], s
	clear(slots)
	switch i := bytes.IndexByte(s, '{'); {
	case o.logfmt && (i < 0 || bytes.IndexByte(s[:i], '=') >= 0):
		o.pairs(s, slots)
	case i < 0:
		return "no JSON object"
	default:
		before = s[:i]
		p := scanner{s: s[i+1:], r: r, o: o, slots: slots, path: r.member[:0]}
		_, ok := p.list('}', true, 0)
		if r.member = p.path; !ok {
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
	if o.is != nil && string(slots[o.is[0]].text) != o.value {
		return "another kind of line, not a request"
	}
	if o.http && len(get(request).text)+len(get(method).text)+len(get(target).text) == 0 {
		return "no request"
	}
	if !o.readTime(slots, r) && !r.leadingTime(before) {
		return "unreadable time"
	}
	if r.from(r.plainOf(get(client))) != "" {
		if !slices.ContainsFunc(o.fields[client], func(i int) bool { return string(slots[i].text) == "-" }) {
			return "no client"
		}
		r.client = []byte("-")
	}
	if r.need&^Addr == 0 {
		return ""
	}
	for k := request; k <= attack; k++ {
		if r.need&needs[k] != 0 && len(r.texts[k]) == 0 { // the header's Host takes precedence
			r.texts[k] = r.plainOf(get(k))
		}
	}
	r.read()
	for i, name := range o.headerNames {
		r.set(name, r.plainOf(first(o.header[i])))
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
				if micros, n, ok := timeOfDay(slots[i].text); ok && n == len(slots[i].text) {
					r.time = r.clock.wall(day*second + micros)
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
