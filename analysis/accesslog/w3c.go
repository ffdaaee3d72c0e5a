package accesslog

import (
	"bytes"
	"slices"
	"strings"
)

// A directed layout is changed by the lines of its file that begin with #. direct returns
// what reads the lines that follow, which is l itself if s changes nothing.
type directed interface {
	layout
	direct(s []byte) layout
}

// columns is a format whose directives name its columns: the W3C's extended log format,
// which IIS and CloudFront write, and Zeek's. It never changes; a directive makes another.
type columns struct {
	zeek   bool
	tabs   bool   // between columns, and nothing else
	bare   bool   // no #Fields yet: the columns are those that are usual
	client string // the field that names the client, if it is not the usual one
	fields []field
	count  int   // columns
	day    int64 // of #Date, in seconds since the epoch
	dated  bool
	zone   int64 // of #GMT-Offset, in seconds
	wall   bool  // the clock is local
	has    int   // which kinds of field there are
}

// A field is a column that is wanted.
type field struct {
	column int
	kind   kind
	header string
}

type kind int

const (
	date kind = iota
	clockTime
	epoch
	client
	method
	host
	stem
	query
	uri
	status
	header
)

// w3cKinds are the fields that are wanted. CloudFront's cs(Host) is a name of its own;
// x-host-header, behind it, is what the client asked for.
var w3cKinds = map[string]kind{
	"date": date, "date-local": date, "x-date-start": date,
	"time": clockTime, "time-local": clockTime, "x-time-start": clockTime,
	"timestamp": epoch, "x-timestamp": epoch, "ts": epoch, "datetime": epoch, "gmttime": epoch, "date-time": epoch,
	"c-ip": client, "id.orig_h": client,
	"cs-method": method, "method": method,
	"cs-host": host, "cs(host)": host, "x-host-header": host, "host": host,
	"cs-uri-stem": stem, "cs-uri-query": query, "cs-uri": uri, "cs-uri-path": stem, "uri": uri,
	"sc-status": status, "status_code": status,
	"user_agent": header, "referrer": header,
}

func (c *columns) direct(s []byte) layout {
	name, rest, found := bytes.Cut(s, []byte(":"))
	if c.zeek {
		name, rest, found = bytes.Cut(s, []byte("\t"))
	}
	if !found {
		return c
	}
	next := *c
	switch string(bytes.ToLower(name)) {
	case "#fields":
		next.bare = false
		next.setFields(strings.Fields(string(rest)))
	case "#date", "#start-date":
		var t clock
		words := bytes.Fields(rest)
		if len(words) == 0 {
			return c
		}
		day, ok := t.date(words[0])
		if !ok || next.dated && day == next.day {
			return c
		}
		next.day, next.dated = day, true
	case "#gmt-offset":
		offset := bytes.TrimSpace(rest)
		if len(offset) != 5 {
			return c
		}
		zone, ok := zone(offset)
		if !ok {
			return c
		}
		next.zone = zone
	default:
		return c
	}
	return &next
}

func (c *columns) setFields(names []string) {
	c.fields, c.count, c.has, c.wall = nil, len(names), 0, false
	for i, name := range names {
		lower := strings.ToLower(name)
		kind, known := w3cKinds[lower]
		head := ""
		if inner, ok := strings.CutPrefix(lower, "cs("); ok && !known {
			kind, known, head = header, true, headerName([]byte(strings.TrimSuffix(inner, ")")))
		}
		switch {
		case c.client != "" && strings.EqualFold(name, c.client):
			kind, known = client, true
		case c.client != "" && kind == client:
			known = false
		}
		utc, local := strings.CutSuffix(lower, "-local")
		if local && slices.ContainsFunc(names, func(other string) bool { return strings.EqualFold(other, utc) }) {
			known = false // it is there in UTC too
		}
		if lower == "user_agent" {
			head = "User-Agent"
		}
		if head == "Referrer" || lower == "referrer" {
			head = "Referer"
		}
		if known {
			c.wall = c.wall || local
			c.has |= 1 << kind
			c.fields = append(c.fields, field{i, kind, head})
		}
	}
}

// complete reports whether the fields tell time and client.
func (c *columns) complete() bool {
	return c.has&(1<<client) != 0 && (c.has&(1<<epoch|1<<clockTime) != 0)
}

func (c *columns) parse(s []byte, r *record) string {
	switch {
	case c.fields == nil:
		return "no #Fields before it"
	case c.has&(1<<client) == 0:
		return "no field of #Fields names the client"
	case !c.complete():
		return "no field of #Fields has the time"
	}
	var day, of, part int64
	var dated, timed, absolute bool
	var target []byte
	next := 0
	n := 0
	for ; len(s) > 0; n++ {
		var column []byte
		var ok bool
		if column, s, ok = c.cut(s); !ok {
			break
		}
		if next == len(c.fields) || c.fields[next].column != n {
			continue
		}
		f := c.fields[next]
		next++
		switch f.kind {
		case date:
			if day, dated = r.clock.date(column); !dated {
				return "no date like 2006-01-02"
			}
		case clockTime:
			if of, timed = hmsOf(column); !timed {
				return "no time like 15:04:05"
			}
			part = fractionOf(column)
		case epoch:
			t, ok := unix(column)
			if absolute = ok; !ok {
				t, ok = r.clock.any(column)
			}
			if !ok {
				return "no time that can be read"
			}
			if !timed {
				r.time, timed, dated = t, true, true
				day, of, part = 0, t/second, t%second
			}
		case client:
			if r.client == nil || missing(r.client) {
				r.client = withoutPort(column)
				if c.client != "" {
					r.client = firstOf(column)
				}
			}
		case method:
			if r.need&Method != 0 && !missing(column) {
				r.method = column
			}
		case host:
			if r.need&Host != 0 && !missing(column) {
				r.host = column
			}
		case stem, uri:
			if r.need&(Host|Path) != 0 && !missing(column) {
				target = column
			}
		case query:
			if r.need&Path != 0 && !missing(column) {
				r.query = bytes.TrimPrefix(column, []byte("?"))
			}
		case status:
			r.code(column)
		case header:
			if r.need&Header != 0 && !missing(column) {
				r.set(f.header, c.header(r, column))
			}
		}
	}
	if n < c.count {
		return "fewer columns than #Fields names"
	}
	if (n > c.count || c.bare) && !addressOf(r.client).IsValid() {
		return "other columns than #Fields names"
	}
	if len(r.client) == 0 {
		return "no client"
	}
	if !dated {
		if !c.dated {
			return "no date, and no #Date before it"
		}
		day = c.day
	}
	seconds := day + of
	if !absolute {
		if seconds -= c.zone; c.wall {
			seconds = r.clock.wall(seconds)
		}
	}
	r.time = seconds*second + part
	if target != nil {
		named, sent := r.host, r.query
		if i := bytes.IndexByte(target, '/'); i > 0 && bytes.IndexByte(target[:i], ':') < 0 {
			named, target = target[:i], target[i:] // a URL without its scheme
		}
		r.target(target)
		r.query, r.host = either(r.query, sent), either(r.host, named)
	}
	return ""
}

// either returns a, or if that is nothing, b.
func either(a, b []byte) []byte {
	if len(a) > 0 {
		return a
	}
	return b
}

// cut cuts the next column off.
func (c *columns) cut(s []byte) (column, rest []byte, ok bool) {
	if c.tabs {
		i := bytes.IndexByte(s, '\t')
		if i < 0 {
			return s, nil, true
		}
		return s[:i], s[i+1:], true
	}
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	if len(s) == 0 {
		return nil, nil, false
	}
	if s[0] == '"' {
		if column, rest, ok := cutDoubled(s); ok {
			return column, rest, true
		}
	}
	for i, b := range s {
		if b == ' ' || b == '\t' {
			return s[:i], s[i+1:], true
		}
	}
	return s, nil, true
}

// cutDoubled cuts text between quotes, in which a quote is written twice.
func cutDoubled(s []byte) (text, rest []byte, ok bool) {
	for i := 1; i < len(s); i++ {
		if s[i] != '"' {
			continue
		}
		if i+1 < len(s) && s[i+1] == '"' {
			i++
			continue
		}
		if i+1 < len(s) && s[i+1] != ' ' && s[i+1] != '\t' {
			return nil, s, false
		}
		return s[1:i], s[i+1:], true
	}
	return nil, s, false
}

// header returns what was sent: CloudFront writes it percent-encoded, IIS with + for
// spaces, and who quotes it doubles its quotes.
func (c *columns) header(r *record, s []byte) []byte {
	switch {
	case c.zeek:
		return s
	case c.tabs:
		return r.unpercent(s)
	case bytes.IndexByte(s, ' ') >= 0:
		return bytes.ReplaceAll(s, []byte(`""`), []byte(`"`))
	}
	return r.unplus(s)
}

// cloudFrontFields are the columns of CloudFront's standard log, in their order; older
// logs have fewer, and what follows is newer.
const cloudFrontFields = "date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) " +
	"cs(User-Agent) cs-uri-query cs(Cookie) x-edge-result-type x-edge-request-id x-host-header cs-protocol cs-bytes time-taken"

// iisFields are the columns that IIS logs if it is not told otherwise. Older versions do
// not log the last.
const iisFields = "date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) cs(Referer) " +
	"sc-status sc-substatus sc-win32-status"

// newW3C reads the log of IIS also where its directives were cut off.
func newW3C() *columns {
	c := &columns{bare: true}
	c.setFields(strings.Fields(iisFields))
	return c
}

// newCloudFront reads CloudFront's log also where its directives were cut off.
func newCloudFront() *columns {
	c := &columns{tabs: true, bare: true}
	c.setFields(strings.Fields(cloudFrontFields))
	return c
}
