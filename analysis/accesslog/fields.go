package accesslog

import (
	"bytes"
	"cmp"
	"maps"
	"net/textproto"
	"slices"
	"strings"
)

// A kind is the meaning of a value in a line.
type kind int

const (
	unused kind = iota
	date
	clockTime
	epoch // date and time
	client
	request // request line
	method
	host
	target // path with or without the query, or URL
	query
	status
	attack // true or 1 for requests that are part of an attack
	mark   // distinguishes a format's lines from others: an entry has at least one
	kinds
)

// always stands for Time and Client, which are always needed.
const always Fields = 1 << 7

// meanings describe the kinds.
var meanings = [kinds]struct {
	name  string // in the description of a format
	needs Fields // the fields of an entry for which values of this kind are needed
}{
	date:      {"date", always},
	clockTime: {"clock", always},
	epoch:     {"time", always},
	client:    {"client", always},
	request:   {"request", Method | Host | Path},
	method:    {"method", Method | Host | Path},
	host:      {"host", Host},
	target:    {"path", Host | Path},
	query:     {"query", Path},
	status:    {"status", Status},
	attack:    {"attack", All},
	mark:      {"mark", always},
}

// names maps the name of each kind to the names that its values have in a format, preferred names first. The key of a
// header field is header:NAME. See objects for more keys.
type names map[string][]string

// described parses names from text such as time=ts client=ip|addr. A line that ends with | continues on the next.
func described(text string) names {
	n := names{}
	for pair := range strings.FieldsSeq(strings.ReplaceAll(text, "|\n\t\t", "|")) {
		key, list, _ := strings.Cut(pair, "=")
		n[key] = strings.Split(list, "|")
	}
	return n
}

// A value is the text that a line has for a name.
type value struct {
	text   []byte // nil if the line has none
	escape byte   // begins an escape in text, as for unescape; 0 if text is not encoded
	rank   int16  // of the name, from 1; less is preferred
}

// missing reports whether text stands for a missing value.
func missing(text []byte) bool { return len(text) == 0 || len(text) == 1 && text[0] == '-' }

// A use is one of the places in a record that values with a name are stored in.
type use struct {
	place int // of the value in a record: its kind, or kinds and the index of a header field
	rank  int16
	needs Fields // the fields of an entry for which it is needed
}

// fields turns the values in a line into an entry. Each layout finds the values in its own way.
type fields struct {
	uses    map[string][]use
	headers []string // names of fields of the request's header

	// Ranks of names with a special meaning; 0 if there are no such names.
	port  int16 // of a client that always has a port
	msec  int16 // of a time that must be a number
	local int16 // of a time of day that is local, even if zoned is set

	escape byte  // of header fields whose values do not set one
	zoned  bool  // times of day are in the zone of offset, instead of that of the clock
	offset int64 // from UTC, in seconds
}

// newFields returns the fields of values with these names.
func newFields(n names) *fields {
	rank := func(key, name string) int16 { return int16(slices.Index(n[key], name) + 1) }
	f := &fields{uses: map[string][]use{}}
	f.port, f.msec, f.local = rank("client", "client_port"), rank("time", "msec"), rank("clock", "time-local")
	for kind, m := range meanings {
		f.add(kind, m.needs, n[m.name])
	}
	for _, key := range slices.Sorted(maps.Keys(n)) {
		if name, ok := strings.CutPrefix(key, "header:"); ok {
			f.addHeader(name, n[key])
		}
	}
	return f
}

// add adds a use of values with any of these names, preferred names first.
func (f *fields) add(place int, needs Fields, names []string) {
	for i, name := range names {
		f.uses[name] = append(f.uses[name], use{place, int16(i + 1), needs})
	}
}

func (f *fields) addHeader(name string, names []string) {
	f.add(int(kinds)+len(f.headers), Header, names)
	f.headers = append(f.headers, name)
}

// newColumns returns the fields of a format with these columns, and the uses of each column. Columns with the name of
// a header field's variable in nginx, or of such a field in W3C logs, are header fields.
func newColumns(n names, columns []string) (f *fields, uses [][]use) {
	f = newFields(n)
	for _, column := range columns {
		name := headerOf(column)
		if name != "" && name != "Host" && !slices.Contains(f.headers, name) {
			f.addHeader(name, []string{column})
		}
	}
	for _, column := range columns {
		uses = append(uses, f.uses[column])
	}
	return f, uses
}

// headerOf returns the name of the header field in a column, or "" if the column has none.
func headerOf(column string) string {
	if sent, ok := strings.CutPrefix(column, "http_"); ok {
		return headerName([]byte(strings.ReplaceAll(sent, "_", "-")))
	}
	switch sent, ok := strings.CutPrefix(column, "cs("); {
	case sent == "referrer)":
		return "Referer"
	case ok:
		return headerName([]byte(strings.TrimSuffix(sent, ")")))
	}
	return ""
}

// headerName returns the canonical form of the name of a header field.
func headerName(name []byte) string { return textproto.CanonicalMIMEHeaderKey(string(name)) }

// has reports whether a value with one of these uses is of kind k.
func has(uses [][]use, k kind) bool {
	return slices.ContainsFunc(uses, func(list []use) bool {
		return slices.ContainsFunc(list, func(u use) bool { return u.place == int(k) })
	})
}

// put stores v in its places in r, except where r already has a preferred value.
func (r *record) put(uses []use, v value) {
	for _, u := range uses {
		there := &r.values[u.place]
		switch {
		case there.text == nil, missing(there.text) && len(v.text) > 0, u.rank < there.rank && !missing(v.text):
			v.rank = u.rank
			*there = v
		}
	}
}

// read sets the time and the client of r, and the fields that are needed, from its values. It returns "", or the reason
// why they are not an entry.
func (f *fields) read(r *record) (reason string) {
	if !f.readTime(r) {
		return "unreadable time"
	}
	return f.readRest(r)
}

// readRest is like read, but does not set the time.
func (f *fields) readRest(r *record) (reason string) {
	if reason := f.readClient(r); reason != "" {
		return reason
	}
	f.readRequest(r)
	return ""
}

// readTime sets r.time, and reports whether there is a valid one.
func (f *fields) readTime(r *record) (ok bool) {
	v := r.values[epoch]
	if v.rank == f.msec {
		r.time, ok = unix(v.text)
	} else {
		r.time, ok = r.clock.any(r.unescape(v))
	}
	if ok {
		return true
	}
	v = r.values[clockTime]
	day, dated := r.clock.date(r.values[date].text)
	micros, n, ok := timeOfDay(v.text)
	if !dated || !ok || n < len(v.text) {
		return false
	}
	if r.time = day*second + micros; f.zoned && v.rank != f.local {
		r.time -= f.offset * second
	} else {
		r.time = r.clock.wall(r.time)
	}
	return true
}

// readClient sets r.client.
func (f *fields) readClient(r *record) (reason string) {
	v := r.values[client]
	text := r.unescape(v)
	switch {
	case v.rank == f.port && !missing(text):
		if r.client = withoutLastPort(text); !addressOf(r.client).IsValid() {
			return "no client address"
		}
		return ""
	case bytes.IndexByte(text, '\t') >= 0:
		return "more columns after the client"
	}
	if r.client = firstOf(text); len(r.client) == 0 {
		return "no client"
	}
	return ""
}

// readRequest unescapes the values of r that are needed, reads the request from them, and sets r's header.
func (f *fields) readRequest(r *record) {
	if r.need&^Addr == 0 {
		return
	}
	for k := request; k <= attack; k++ {
		v := &r.values[k]
		switch {
		case v.text == nil, r.need&meanings[k].needs == 0:
		case missing(v.text) && k != status:
			*v = value{}
		case v.escape != 0 && bytes.IndexByte(v.text, v.escape) >= 0:
			v.text = r.unescape(*v)
		}
	}
	r.read()
	if r.need&Header == 0 {
		return
	}
	for i, name := range f.headers {
		if v := r.values[int(kinds)+i]; !missing(v.text) {
			v.escape = cmp.Or(v.escape, f.escape)
			r.header = append(r.header, line{name, r.unescape(v)})
		}
	}
}
