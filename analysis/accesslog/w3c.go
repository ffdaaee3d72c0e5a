package accesslog

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// columns is a format whose directives name its columns: the W3C extended log format of IIS and
// CloudFront, or Zeek's format. It is immutable; a directive creates a new one.
type columns struct {
	zeek     bool
	tabs     bool   // columns are separated by tabs only
	client   string // name of the client's field, if not a usual one
	parts    []part // the columns
	complete bool   // the columns include the client and the time
	local    bool   // times are local
	day      int64  // from #Date, in seconds since the epoch
	dated    bool
	zone     int64 // from #GMT-Offset, in seconds
}

// columnNames are the names of the columns that are used, by kind, like variables for patterns. CloudFront's cs(Host)
// is the distribution's name; x-host-header is the host that the client requested.
var columnNames = [kinds][]string{
	date: {"date", "x-date-start", "date-local"}, clockTime: {"time", "x-time-start", "time-local"}, epoch: {"timestamp", "ts", "datetime", "date-time"},
	client: {"c-ip", "id.orig_h"}, method: {"cs-method", "method"}, host: {"x-host-header", "cs-host", "cs(host)", "host"},
	target: {"cs-uri-stem", "cs-uri", "cs-uri-path", "uri"}, query: {"cs-uri-query"}, status: {"sc-status", "status_code"},
}

// headerColumns are the columns with a header field, except cs(…).
var headerColumns = map[string]string{"user_agent": "User-Agent", "referrer": "Referer", "cs(referrer)": "Referer"}

// renamed returns the format with another column for the client, other columns, or both.
func (c *columns) renamed(format string, change map[string]string) (layout, error) {
	next := *c
	next.client = change["client"]
	fields, given := change["fields"]
	if given {
		next.setFields(strings.Fields(strings.TrimPrefix(fields, "#Fields:")))
	}
	delete(change, "client")
	delete(change, "fields")
	switch {
	case len(change) > 0:
		return nil, fmt.Errorf("accesslog: for %s, only client and fields can be given", format)
	case given && !next.complete:
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
		next.setFields(words[1:])
	case "#date", "#start-date":
		next.day, ok = new(clock).date([]byte(words[1]))
		next.dated = true
	case "#gmt-offset":
		next.zone, _, ok = zone([]byte(words[1]))
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
	c.parts = make([]part, len(names))
	escape := byte('+') // IIS replaces spaces with +
	switch {
	case c.zeek:
		escape = 0
	case c.tabs:
		escape = '%' // CloudFront percent-encodes header fields
	}
	for i, name := range names {
		p := part{name: strings.ToLower(name)}
		p.header = headerColumns[p.name]
		if sent, ok := strings.CutPrefix(p.name, "cs("); ok && p.header == "" && sent != "host)" {
			p.header = headerName([]byte(strings.TrimSuffix(sent, ")")))
		}
		if p.header != "" {
			p.kind, p.escape = header, escape
		}
		c.parts[i] = p
	}
	known := columnNames
	if c.client != "" {
		known[client] = []string{strings.ToLower(c.client)}
	}
	bind(c.parts, &known)
	c.local = slices.ContainsFunc(c.parts, func(p part) bool { return p.kind == clockTime && p.name == "time-local" })
	// Zeek's other logs have no method.
	c.complete = has(c.parts, client) && (has(c.parts, epoch) || has(c.parts, clockTime)) && (!c.zeek || has(c.parts, method))
}

func (c *columns) parse(s []byte, r *record) string {
	if !c.complete {
		return "no earlier #Fields line names the client and the time"
	}
	separator := byte('\t')
	if i := bytes.IndexByte(s, '\t'); !c.tabs && (i < 0 || bytes.IndexByte(s[:i], ' ') >= 0) {
		s, separator = trimSpaces(s), ' '
	}
	need, tabs, more := r.need|always, c.tabs, true
	for i := range c.parts {
		if !more {
			return "fewer columns than #Fields"
		}
		end := bytes.IndexByte(s, separator)
		if !tabs && s[0] == '"' {
			if closing := closingQuote(s[1:], nil); closing >= 0 {
				end = closing + 2
			}
		}
		if more = end >= 0 && end < len(s); !more {
			end = len(s)
		}
		p := &c.parts[i]
		if tabs && need&p.needs == 0 { // only the number of the remaining columns matters
			if end = bytes.Count(s, tab) - (len(c.parts) - 1 - i); end < 0 {
				return "fewer columns than #Fields"
			}
			more = end > 0
			break
		}
		if need&needs[p.kind] != 0 {
			column := s[:end]
			if !tabs && len(column) > 1 && column[0] == '"' {
				column = bytes.Trim(column, `"`)
			}
			if reason := p.store(r, column); reason != "" {
				return reason
			}
		}
		if more {
			s = s[end+1:]
			if !tabs {
				s = trimSpaces(s)
				more = len(s) > 0
			}
		}
	}
	if more && !addressOf(r.client).IsValid() {
		return "columns do not match #Fields"
	}
	if reason := c.readTime(r); reason != "" {
		return reason
	}
	r.read()
	return ""
}

// readTime sets r.time if the columns have a time of day.
func (c *columns) readTime(r *record) (reason string) {
	text := r.texts[clockTime]
	if text == nil {
		return ""
	}
	day, dated := c.day, c.dated
	if text := r.texts[date]; text != nil {
		day, dated = r.clock.date(text)
	}
	micros, n, ok := timeOfDay(text)
	switch {
	case !ok || n < len(text):
		return "no time like 15:04:05"
	case !dated:
		return "no date like 2006-01-02, and no #Date before it"
	}
	if r.time = (day-c.zone)*second + micros; c.local {
		r.time = r.clock.wall(r.time)
	}
	return ""
}

// cloudFront returns the layout of CloudFront's standard log, with the columns that lines have if there is no #Fields. Newer
// logs have more.
func cloudFront() *columns {
	c := &columns{tabs: true}
	c.setFields(strings.Fields("date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) " +
		"cs(User-Agent) cs-uri-query cs(Cookie) x-edge-result-type x-edge-request-id x-host-header cs-protocol cs-bytes time-taken"))
	return c
}
