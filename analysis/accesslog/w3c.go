package accesslog

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
)

// columns is a format whose directives name its columns: the W3C extended log format of IIS and
// CloudFront, or Zeek's format. It is immutable; a directive creates a new one.
type columns struct {
	names  names
	tabs   bool // columns are separated by tabs only
	escape byte // in header fields: see value

	columns  []string // in lower case
	day      []byte   // from #Date
	offset   int64    // from #GMT-Offset, in seconds
	fields   *fields
	uses     [][]use // of the columns
	complete bool    // the columns include all that an entry needs
}

// w3cNames are the names of the columns of W3C logs. CloudFront's cs(Host) is the distribution's name; x-host-header is
// the host that the client requested.
const w3cNames = `
	date=date|x-date-start|date-local|#date clock=time|x-time-start|time-local time=timestamp|ts|datetime|date-time
	client=c-ip method=cs-method host=x-host-header|cs-host|cs(host)|host path=cs-uri-stem|cs-uri|cs-uri-path|uri
	query=cs-uri-query status=sc-status`

// zeekNames are the names of the columns of Zeek's http.log. Its other logs have no method.
const zeekNames = `
	time=ts client=id.orig_h method=method host=host path=uri status=status_code
	header:User-Agent=user_agent header:Referer=referrer mark=method`

// bound returns c after setting what follows from its names, columns and directives.
func (c *columns) bound() *columns {
	c.fields, c.uses = newColumns(c.names, c.columns)
	c.fields.zoned, c.fields.offset, c.fields.escape = true, c.offset, c.escape
	timed := has(c.uses, epoch) || has(c.uses, clockTime)
	c.complete = timed && has(c.uses, client) && (has(c.uses, mark) || c.names["mark"] == nil)
	return c
}

// namesColumns reports whether a line is a directive that names columns.
func namesColumns(line []byte) bool {
	return len(line) > 8 && bytes.EqualFold(line[:7], []byte("#fields"))
}

// columnsOf returns the names of columns in a text.
func columnsOf(text string) []string { return strings.Fields(strings.ToLower(text)) }

// renamed returns the format with another column for the client, other columns, or both.
func (c *columns) renamed(format string, change map[string]string) (layout, error) {
	next := *c
	for key, text := range change {
		switch key {
		case "client":
			next.names = maps.Clone(c.names)
			next.names["client"] = columnsOf(text)
		case "fields":
			next.columns = columnsOf(strings.TrimPrefix(text, "#Fields:"))
		default:
			return nil, fmt.Errorf("accesslog: for %s, only client and fields can be given", format)
		}
	}
	next.bound()
	if text := change["fields"]; text != "" && !next.complete {
		return nil, fmt.Errorf("accesslog: no fields in %q name the client and the time: "+
			"call them c-ip, date and time", text)
	}
	return &next, nil
}

// withDirective returns the layout of the lines that follow s, a line that begins with #. This is c if s changes nothing.
func (c *columns) withDirective(s []byte) *columns {
	words := columnsOf(strings.Replace(string(s), ":", " ", 1))
	if len(words) < 2 {
		return c
	}
	next, ok := *c, true
	switch words[0] {
	case "#fields":
		next.columns = words[1:]
	case "#date", "#start-date":
		next.day = []byte(words[1])
	case "#gmt-offset":
		next.offset, _, ok = zone([]byte(words[1]))
	default:
		ok = false
	}
	if !ok {
		return c
	}
	return next.bound()
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

func (c *columns) parse(s []byte, r *record) (reason string) {
	if !c.complete {
		return "no earlier #Fields line names the client and the time"
	}
	separator := []byte{'\t'}
	if i := bytes.IndexByte(s, '\t'); !c.tabs && (i < 0 || bytes.IndexByte(s[:i], ' ') >= 0) {
		s, separator = trimSpaces(s), []byte{' '}
	}
	r.clear(c.fields)
	r.put(c.fields.uses["#date"], value{text: c.day})
	more := true
	for _, uses := range c.uses {
		if !more {
			return "fewer columns than #Fields"
		}
		column, rest, found := bytes.Cut(s, separator)
		more = found
		if !c.tabs {
			if len(s) > 0 && s[0] == '"' {
				if closing := closingQuote(s[1:], nil); closing >= 0 {
					column, rest = s[:closing+2], s[closing+2:]
				}
				column = bytes.Trim(column, `"`)
			}
			rest = trimSpaces(rest)
			more = len(rest) > 0
		}
		r.put(uses, value{text: column})
		s = rest
	}
	if reason := c.fields.read(r); reason != "" {
		return reason
	}
	if more && !addressOf(r.client).IsValid() {
		return "columns do not match #Fields"
	}
	return ""
}

// cloudFront returns the layout of CloudFront's standard log, with the columns that lines have if there is no #Fields. Newer
// logs have more.
func cloudFront() *columns {
	c := &columns{
		names:  described(w3cNames + " mark=x-edge-location|x-edge-result-type"),
		tabs:   true,
		escape: '%', // header fields are percent-encoded
		columns: columnsOf("date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status " +
			"cs(Referer) cs(User-Agent) cs-uri-query cs(Cookie) x-edge-result-type x-edge-request-id x-host-header " +
			"cs-protocol cs-bytes time-taken"),
	}
	return c.bound()
}
