package accesslog

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// columns is a format whose directives name its columns: the W3C extended log format, which
// IIS and CloudFront write, and Zeek's. It is immutable; a directive creates a new one.
type columns struct {
	zeek   bool
	tabs   bool   // columns are separated by tabs only
	usual  string // default columns
	bare   bool   // no #Fields yet: the columns are the default ones
	client string // name of the client's field, if not a usual one
	fields []field
	count  int   // number of columns
	day    int64 // from #Date, in seconds since the epoch
	dated  bool
	zone   int64 // from #GMT-Offset, in seconds
	wall   bool  // times are local
	has    int   // bit set of the kinds of fields
}

// A field is a column that is used.
type field struct {
	column int
	kind   kind
	header string
}

// columnsWanted are the columns that are used, except cs(…), which is a header field. CloudFront's cs(Host) is the
// distribution's name; x-host-header, a later column, is the host that the client requested.
var columnsWanted = map[string]field{
	"date": {kind: date}, "x-date-start": {kind: date},
	"time": {kind: clockTime}, "x-time-start": {kind: clockTime},
	"timestamp": {kind: epoch}, "ts": {kind: epoch}, "datetime": {kind: epoch}, "date-time": {kind: epoch},
	"c-ip": {kind: client}, "id.orig_h": {kind: client},
	"cs-method": {kind: method}, "method": {kind: method},
	"cs-host": {kind: host}, "cs(host)": {kind: host}, "x-host-header": {kind: host}, "host": {kind: host},
	"cs-uri-stem": {kind: target}, "cs-uri": {kind: target}, "cs-uri-path": {kind: target}, "uri": {kind: target},
	"cs-uri-query": {kind: query}, "sc-status": {kind: status}, "status_code": {kind: status},
	"user_agent": {kind: header, header: "User-Agent"}, "referrer": {kind: header, header: "Referer"}, "cs(referrer)": {kind: header, header: "Referer"},
}

// renamed returns the format with another column for the client, other columns, or both.
func (c *columns) renamed(format string, change map[string]string) (layout, error) {
	next := *c
	next.client = change["client"]
	fields, given := change["fields"]
	if !given {
		fields = c.usual
	}
	next.bare = next.bare && !given
	next.setFields(strings.Fields(strings.TrimPrefix(fields, "#Fields:")))
	delete(change, "client")
	delete(change, "fields")
	switch {
	case len(change) > 0:
		return nil, fmt.Errorf("accesslog: for %s, only client and fields can be given", format)
	case given && !next.complete():
		return nil, fmt.Errorf("accesslog: no fields in %q name the client and the time: call them c-ip, date and time", fields)
	}
	return &next, nil
}

// withDirective returns the layout of the lines that follow s, a line that begins with #. This is c if s changes nothing.
func (c *columns) withDirective(s []byte) *columns {
	words := strings.Fields(strings.Replace(string(s), ":", " ", 1))
	if len(words) < 2 {
		return c
	}
	next, ok := *c, true
	switch strings.ToLower(words[0]) {
	case "#fields":
		next.bare = false
		next.setFields(words[1:])
	case "#date", "#start-date":
		next.day, ok = new(clock).date([]byte(words[1]))
		next.dated = true
	case "#gmt-offset":
		next.zone, _, ok = zone([]byte(words[1]))
	default:
		return c
	}
	if !ok {
		return c
	}
	return &next
}

// after returns the layout of the lines that follow text.
func (c *columns) after(text []byte) *columns {
	for i := 0; i >= 0; i = bytes.Index(text, []byte("\n#")) {
		if text = bytes.TrimPrefix(text[i:], newline); len(text) > 0 && text[0] == '#' {
			line, _, _ := bytes.Cut(text, newline)
			c = c.withDirective(line)
		}
	}
	return c
}

func (c *columns) setFields(names []string) {
	c.fields, c.count, c.has, c.wall = nil, len(names), 0, false
	for i, name := range names {
		lower := strings.ToLower(name)
		f := columnsWanted[strings.TrimSuffix(lower, "-local")]
		if sent, ok := strings.CutPrefix(lower, "cs("); ok && f.kind == unused {
			f = field{kind: header, header: headerName([]byte(strings.TrimSuffix(sent, ")")))}
		}
		switch utc, local := strings.CutSuffix(lower, "-local"); {
		case c.client != "" && strings.EqualFold(name, c.client):
			f.kind = client
		case f.kind == unused, c.client != "" && f.kind == client:
			continue
		case local && slices.ContainsFunc(names, func(other string) bool { return strings.EqualFold(other, utc) }):
			continue // there is a column in UTC too
		case local:
			c.wall = true
		}
		f.column = i
		c.has |= 1 << f.kind
		c.fields = append(c.fields, f)
	}
}

// complete reports whether the fields include the time and the client, and for Zeek's logs, which may be of other
// protocols, the method.
func (c *columns) complete() bool {
	return c.has&(1<<client) != 0 && c.has&(1<<epoch|1<<clockTime) != 0 && (!c.zeek || c.has&(1<<method) != 0)
}

func (c *columns) parse(s []byte, r *record) string {
	if !c.complete() {
		return "no #Fields before it that name client and time"
	}
	wanted, n := c.fields, 0
	for ; len(s) > 0; n++ {
		column, rest, ok := c.cut(s)
		if !ok {
			break
		}
		if s = rest; len(wanted) == 0 || wanted[0].column != n {
			continue
		}
		f := wanted[0]
		wanted = wanted[1:]
		switch text := &r.texts[f.kind]; {
		case f.kind == header:
			if r.need&Header != 0 && !missing(column) {
				r.set(f.header, c.header(r, column))
			}
		case missing(*text) || f.kind == host && !missing(column): // the first one present, or the last host
			*text = column
		}
	}
	r.from(r.texts[client])
	switch {
	case n < c.count:
		return "fewer columns than #Fields"
	case (n > c.count || c.bare) && !addressOf(r.client).IsValid():
		return "columns do not match #Fields"
	case len(r.client) == 0:
		return "no client"
	}
	if reason := c.readTime(r); reason != "" {
		return reason
	}
	if text := r.texts[target]; r.need&^Addr != 0 && !missing(text) {
		if i := bytes.IndexByte(text, '/'); i > 0 && bytes.IndexByte(text[:i], ':') < 0 {
			r.texts[host], r.texts[target] = either(r.texts[host], text[:i]), text[i:] // a URL without its scheme
		}
	}
	r.read()
	return ""
}

// readTime sets r.time.
func (c *columns) readTime(r *record) (reason string) {
	if r.texts[clockTime] == nil {
		ok := false
		if r.time, ok = r.clock.any(r.texts[epoch]); !ok {
			return "unreadable time"
		}
		return ""
	}
	day, dated := c.day, c.dated
	if text := r.texts[date]; text != nil {
		if day, dated = r.clock.date(text); !dated {
			return "no date like 2006-01-02"
		}
	}
	shown := &clock{} // in UTC
	if c.wall {
		shown = &r.clock
	}
	var ok bool
	switch r.time, ok = shown.at(day-c.zone, r.texts[clockTime]); {
	case !ok:
		return "no time like 15:04:05"
	case !dated:
		return "no date, and no #Date before it"
	}
	return ""
}

// cut cuts off the next column.
func (c *columns) cut(s []byte) (column, rest []byte, ok bool) {
	if c.tabs {
		column, rest, _ = bytes.Cut(s, tab)
		return column, rest, true
	}
	if s = skipBlanks(s); len(s) == 0 {
		return nil, nil, false
	}
	if s[0] == '"' {
		if i := closingQuote(s[1:], nil); i >= 0 {
			return s[1 : i+1], skipBlanks(s[i+2:]), true
		}
	}
	for i, b := range s { // faster than IndexAny
		if b == ' ' || b == '\t' {
			return s[:i], s[i+1:], true
		}
	}
	return s, nil, true
}

func skipBlanks(s []byte) []byte {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	return s
}

// header decodes a header field: CloudFront percent-encodes it, IIS replaces spaces with +, and
// in a quoted field, quotes are doubled.
func (c *columns) header(r *record, s []byte) []byte {
	switch {
	case c.zeek:
		return s
	case c.tabs:
		return r.unescape(s, '%')
	case bytes.IndexByte(s, ' ') >= 0: // it was quoted
		return bytes.ReplaceAll(s, []byte(`""`), []byte(`"`))
	}
	return r.unescape(s, '+')
}

// cloudFrontFields are the columns of CloudFront's standard log, in order. Older logs have
// fewer columns, newer logs more.
const cloudFrontFields = "date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) " +
	"cs(User-Agent) cs-uri-query cs(Cookie) x-edge-result-type x-edge-request-id x-host-header cs-protocol cs-bytes time-taken"

// iisFields are the columns that IIS logs by default. Older versions do not log the last one.
const iisFields = "date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) cs(Referer) " +
	"sc-status sc-substatus sc-win32-status"

// newColumns returns a layout that uses the columns of usual as long as there is no #Fields.
func newColumns(tabs bool, usual string) *columns {
	c := &columns{tabs: tabs, bare: true, usual: usual}
	c.setFields(strings.Fields(usual))
	return c
}
