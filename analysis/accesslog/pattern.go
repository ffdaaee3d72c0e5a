package accesslog

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A pattern is a format described in the notation of nginx's log_format or Apache's LogFormat:
// variables and the text between them.
type pattern struct {
	lead   []byte // text before the first variable
	parts  []part
	least  int // number of parts that every line has; what follows them may be missing or different
	fields *fields
	uses   [][]use // of the parts
}

// A part is a variable of a pattern.
type part struct {
	name   string // nginx's name of the variable, or of a similar one
	quoted bool   // between quotes
	until  []byte // text up to the next variable; the time may contain it
	kind   kind
	escape byte   // as in value
	needs  Fields // those of this and the following parts
	reason string // why a line without this part is not an entry
}

// builtIn returns the pattern of a built-in format. Lines may end after the variable least, or be empty if least is "".
func builtIn(text, least string) *pattern {
	p, err := compile(text)
	if err != nil {
		panic(err) // built-in patterns are valid
	}
	p.least = 1 + slices.IndexFunc(p.parts, func(p part) bool { return p.name == least })
	return p
}

// newPattern compiles the pattern of a whole line.
func newPattern(text string) (*pattern, error) {
	p, err := compile(text)
	if err == nil && !(has(p.uses, client) && has(p.uses, epoch)) {
		err = fmt.Errorf("accesslog: the pattern %q needs variables for the client and the time: $remote_addr or $client, and "+
			"$time_local, $time_iso8601, $msec or $time; in Apache's notation %%h and %%t", text)
	}
	return p, err
}

// Configurations may write a format in several strings, with escapes.
var (
	quotes  = regexp.MustCompile(`'\s*\n\s*'`)
	unquote = strings.NewReplacer(`\"`, `"`, `\t`, "\t", `\\`, `\`)
)

func compile(text string) (*pattern, error) {
	described := unquote.Replace(quotes.ReplaceAllString(text, ""))
	if !strings.Contains(text, "$") {
		described = fromApache(described)
	}
	lead, _, _ := strings.Cut(described, "$")
	p := &pattern{lead: []byte(lead)}
	var columns []string
	for _, m := range variable.FindAllStringSubmatch(described, -1) {
		part := part{name: m[1] + m[2], until: []byte(m[3])}
		if part.name == "" {
			return nil, fmt.Errorf("accesslog: the pattern %q has a $ without a name, or an unclosed brace", text)
		}
		p.parts = append(p.parts, part)
		columns = append(columns, part.name)
	}
	p.least = len(p.parts)
	p.fields, p.uses = newColumns(variables, columns)
	before := &p.lead
	for i := range p.parts {
		part := &p.parts[i]
		if bytes.HasSuffix(*before, []byte(`"`)) && bytes.HasPrefix(part.until, []byte(`"`)) {
			part.quoted = true
			*before, part.until = (*before)[:len(*before)-1], part.until[1:]
		}
		if len(part.until) == 0 && !part.quoted && i+1 < len(p.parts) {
			return nil, fmt.Errorf("accesslog: the pattern %q has nothing between $%s and the next variable", text, part.name)
		}
		before = &part.until
	}
	var needed Fields // of the parts from here on
	for i := range slices.Backward(p.parts) {
		part := &p.parts[i]
		for _, u := range p.uses[i] {
			needed |= u.needs
			if u.place < int(kinds) {
				part.kind = kind(u.place)
			}
		}
		part.needs = needed
		if part.kind != client { // a name may have a backslash
			part.escape = '\\'
		}
		part.reason = fmt.Sprintf("no %q after $%s", part.until, part.name)
		if part.quoted {
			part.reason = "no $" + part.name + " in quotes"
		}
	}
	return p, nil
}

// variable matches a variable, $name or ${name}, and the text up to the next one.
var variable = regexp.MustCompile(`\$(?:\{([^}]*)\}|(\w*))([^$]*)`)

// variables are the names of nginx's variables. $client is not a variable of any server: patterns use it for whatever
// should be the client. $client_port is address:port.
var variables = described(`
	time=time_local|time_iso8601|msec|time
	client=client|client_port|remote_addr|http_cf_connecting_ip|http_true_client_ip|http_x_real_ip|http_x_forwarded_for|
		realip_remote_addr|proxy_protocol_addr|proxy_add_x_forwarded_for|remote_host
	request=request method=request_method host=host|http_host|server_name path=request_uri|uri|document_uri
	query=args|query_string status=status`)

func (p *pattern) parse(s []byte, r *record) (reason string) {
	r.clear(p.fields)
	reason = p.fill(s, r)
	switch {
	case reason == "":
		return p.fields.read(r)
	case r.values[epoch].text != nil && !p.fields.readTime(r):
		return "unreadable time" // which says more than what follows the time
	}
	return reason
}

// fill puts the values of the parts that r needs.
func (p *pattern) fill(s []byte, r *record) (reason string) {
	s, ok := bytes.CutPrefix(s, p.lead)
	if !ok {
		return "the line does not begin as the format does"
	}
	for i := range p.parts {
		part := &p.parts[i]
		if i >= p.least && (len(s) == 0 || r.need&part.needs == 0) {
			break
		}
		var text, rest []byte
		if part.quoted {
			text, rest, ok = part.cutQuoted(s)
		} else {
			text, rest, ok = part.cut(s, &r.clock)
		}
		if !ok {
			switch differs := len(s) == 0 || part.quoted && s[0] != '"'; {
			case i >= p.least && differs:
				return "" // the rest is not needed
			case i < p.least-1 || differs:
				return part.reason
			}
			text, rest = bytes.Trim(s, `"`), nil // the last one in the line
		}
		r.put(p.uses[i], value{text: text, escape: part.escape})
		if s = rest; len(s) > 0 && s[0] == ' ' && bytes.HasSuffix(part.until, []byte{' '}) {
			s = trimSpaces(s)
		}
	}
	return ""
}

// cut cuts s into the text of p and what follows p.until.
func (p *part) cut(s []byte, c *clock) (text, rest []byte, ok bool) {
	switch {
	case len(p.until) == 0:
		if end := bytes.IndexAny(s, " \t"); end >= 0 && p.kind >= method && p.kind <= status { // a word, and more follows
			s = s[:end]
		}
		return s, nil, true
	case p.kind == unused && p.name == "skipped": // anything up to the next quote
		i := bytes.IndexByte(s, '"')
		return nil, s[max(i, 0):], i >= 0
	}
	at := 0
	switch { // skip the spaces within the text
	case p.kind == request:
		at = max(bytes.Index(s, []byte(" HTTP/"))+1, 0)
	case p.kind == epoch && len(s) > 0 && s[0] == '[':
		at = max(bytes.IndexByte(s, ']'), 0)
	case p.kind == epoch && p.until[0] != '\t':
		if _, n, ok := c.stamp(s); ok {
			at = n
		}
	}
	for ; ; at++ {
		i := bytes.IndexByte(s[at:], p.until[0])
		if i < 0 {
			return nil, s, false
		}
		at += i
		rest = s[at+1:]
		if len(p.until) > 1 {
			if rest, ok = bytes.CutPrefix(s[at:], p.until); !ok {
				continue
			}
		}
		switch {
		case p.until[0] == ' ' && at > 0 && (s[at-1] == ',' || s[at-1] == ':' && at > 1 && s[at-2] == ' ' ||
			len(rest) > 1 && (rest[0] == ':' || rest[0] == ',') && rest[1] == ' '):
			// A space within a list of upstreams or X-Forwarded-For.
		default:
			return s[:at], rest, true
		}
	}
}

// cutQuoted is cut for quoted text. A quote that is escaped, or not followed by p.until, is part of the text.
// The quotes may be missing around "-", a missing value.
func (p *part) cutQuoted(s []byte) (text, rest []byte, ok bool) {
	if len(s) == 0 || s[0] != '"' {
		if after, ok := bytes.CutPrefix(s, []byte("-")); ok && bytes.HasPrefix(after, p.until) {
			return s[:1], after[len(p.until):], true
		}
		return nil, s, false
	}
	s = s[1:]
	i := closingQuote(s, p.until)
	if i < 0 {
		return nil, s, false
	}
	next := s[i+1+len(p.until):]
	if p.kind == request && len(next) > 0 && next[0] != '-' && (next[0] < '0' || next[0] > '9') {
		if end := bytes.Index(s[i:], []byte(" HTTP/")); end >= 0 { // old servers do not escape quotes in the request
			i += end + max(0, closingQuote(s[i+end:], p.until))
		}
	}
	return s[:i], s[i+1+len(p.until):], true
}

// alternatives is a format whose lines are in any of several formats.
type alternatives []layout

func (a alternatives) parse(s []byte, r *record) (first string) {
	for _, l := range a {
		r.reset()
		reason := l.parse(s, r)
		if reason == "" {
			return ""
		}
		first = cmp.Or(first, reason)
	}
	return first
}

// directive matches a directive of Apache's LogFormat: conditions, an argument, and a letter. The parts of a time are
// one directive, and so are path and query, since they are read together.
var directive = regexp.MustCompile(`%[<>!,0-9]*(?:\{([^}]*)\})?(?:(t)(?:[. ]?%\{[^}]*\}t)+|(U)%q|(\^t[io]|[a-zA-Z%]))`)

// apacheVariables maps the relevant directives of Apache to nginx's variables.
var apacheVariables = map[string]string{
	"a": "remote_addr", "h": "remote_addr", "r": "request", "m": "request_method", "U": "uri", "q": "args",
	"s": "status", "v": "server_name", "V": "host", "t": "time",
}

// fromApache returns a pattern in the notation of LogFormat in that of nginx. Directives without a counterpart become
// variables that are not used.
func fromApache(text string) string {
	return directive.ReplaceAllStringFunc(text, func(d string) string {
		m := directive.FindStringSubmatch(d)
		argument, name := m[1], m[2]+m[3]+m[4]
		switch {
		case name == "%":
			return "%"
		case name == "i":
			name = "http_" + strings.ToLower(strings.ReplaceAll(argument, "-", "_"))
		case name == "a" && argument != "":
			name = "realip_remote_addr"
		case strings.Contains(argument, "%d/%m"): // such dates would be read with the month first
		case apacheVariables[name] != "" && (argument == "" || name == "t"):
			name = apacheVariables[name]
		}
		return "${" + name + "}"
	})
}

// clf is the common log format and its extensions: combined, a leading virtual host, more
// fields at the end.
//
//	host ident user [dd/Mon/yyyy:HH:MM:SS +zzzz] "request" status bytes "referer" "agent"
//
// lighttpd writes the requested host instead of ident, and APISIX before the request.
//
// The seconds may have a fraction, which Apache can be configured to write.
//
// The client is the host, the line's first word; the time is the first one in the line. A line
// with both is an entry, whatever the rest looks like.
type clf struct {
	rest *pattern // of the text after the time
}

func (l clf) parse(s []byte, r *record) string {
	r.clear(l.rest.fields)
	client, rest := cutClient(s)
	switch {
	case len(client) == 0:
		return "no client"
	case client[0] == '[' && bytes.IndexByte(client, ']') < 0:
		return "no client before the time"
	}
	at := 0
	if len(rest) > 4 && rest[0] == '-' && rest[1] == ' ' {
		if at = 2; rest[2] == '-' && rest[3] == ' ' && rest[4] == '[' {
			at = 4
		}
	} else if second, ok := virtualHost(client, rest); ok {
		if name := withoutPort(client); r.needs(host) && (isHostName(name) || addressOf(name).IsValid()) {
			r.values[host].text = client // else a prefix such as nginx:
		}
		client, rest = second, rest[len(second):]
	} else if name, user := cutSpace(rest); r.needs(host) && len(user) > 0 && user[0] != '[' && isFullName(name) {
		r.values[host].text = name // as lighttpd writes it
	}
	for {
		i := bytes.IndexByte(rest[at:], '[')
		if i < 0 {
			return "no time like [02/Jan/2006:15:04:05 -0700]"
		}
		at += i + 1
		t, n, ok := r.clock.stamp(rest[at:])
		if end := at + n; ok && len(rest) > end && rest[end] == ']' {
			r.time, r.client = t, firstOf(client)
			rest = rest[end+1:]
			break
		}
	}
	if r.need&^Addr != 0 {
		rest = trimSpaces(rest)
		if word, after := cutSpace(rest); len(after) > 0 && after[0] == '"' &&
			(len(word) > 2 && word[len(word)-1] == '"' || string(word) == "-" || isFullName(word)) {
			if rest = after; !missing(word) {
				r.values[host].text = bytes.Trim(word, `"`)
			}
		}
		_ = l.rest.fill(rest, r)
		l.rest.fields.readRequest(r)
	}
	return ""
}

// cutClient cuts off the first word, a list such as X-Forwarded-For, or quoted text.
func cutClient(s []byte) (client, rest []byte) {
	if s[0] == '"' {
		client, rest, _ = bytes.Cut(s[1:], []byte{'"'})
		return client, trimSpaces(rest)
	}
	for end := 0; ; end++ {
		i := bytes.IndexByte(s[end:], ' ')
		if i < 0 {
			return s, nil
		}
		if end += i; (end == 0 || s[end-1] != ',') && (end+1 == len(s) || s[end+1] != ',') {
			return s[:end], s[end+1:]
		}
	}
}

// virtualHost reports whether the first word of a line is the requested host instead of the client:
// then the next word is an address, or there is one word more than usual before the time. It
// returns the client. Two addresses are host and client only if identity and user follow, since
// lighttpd writes the client before the host.
func virtualHost(first, rest []byte) (client []byte, ok bool) {
	if len(rest) == 0 || rest[0] == '[' || rest[0] == ' ' || first[0] == '[' {
		return nil, false
	}
	client, after := cutClient(rest)
	more := len(after) > 2 && after[0] == '-' && after[1] == ' ' && after[2] != '['
	firstIs, secondIs := addressOf(firstOf(first)).IsValid(), addressOf(firstOf(client)).IsValid()
	return client, secondIs && (more || !firstIs) || !firstIs && more && string(client) != "-"
}
