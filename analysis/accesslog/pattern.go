package accesslog

import (
	"bytes"
	"fmt"
	"strings"
)

// A pattern is a format in the notation of nginx's log_format: variables, $name or
// ${name}, and what is between them.
type pattern struct {
	lead  []byte // before the first variable
	parts []part
}

type part struct {
	name  string
	get   func(r *record, text []byte) (reason string) // nil if it is not wanted
	until []byte                                       // what follows, up to the next variable
}

// clientVariables may name the client, the best first. $client is of no server: a pattern
// can call so whatever it wants to be the client.
var clientVariables = []string{
	"client", "remote_addr", "http_cf_connecting_ip", "http_true_client_ip", "http_x_real_ip", "http_x_forwarded_for",
	"realip_remote_addr", "proxy_protocol_addr", "proxy_add_x_forwarded_for", "remote_host",
}

// newPattern compiles a pattern.
func newPattern(text string) (*pattern, error) {
	p := new(pattern)
	lead, rest, _ := strings.Cut(text, "$")
	p.lead = []byte(lead)
	for more := strings.Contains(text, "$"); more; {
		var name string
		if inner, ok := strings.CutPrefix(rest, "{"); ok {
			if name, rest, ok = strings.Cut(inner, "}"); !ok {
				return nil, fmt.Errorf("accesslog: the pattern %q has a brace that nothing closes", text)
			}
		} else {
			end := strings.IndexFunc(rest, func(c rune) bool {
				return c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
			})
			if end < 0 {
				end = len(rest)
			}
			name, rest = rest[:end], rest[end:]
		}
		if name == "" {
			return nil, fmt.Errorf("accesslog: the pattern %q has a $ without a name", text)
		}
		var until string
		until, rest, more = strings.Cut(rest, "$")
		if more && until == "" {
			return nil, fmt.Errorf("accesslog: the pattern %q has nothing between $%s and the next variable", text, name)
		}
		p.parts = append(p.parts, part{name: name, until: []byte(until)})
	}
	return p, p.bind(text)
}

// bind says what each variable is for.
func (p *pattern) bind(text string) error {
	has := func(name string) bool {
		for _, part := range p.parts {
			if part.name == name {
				return true
			}
		}
		return false
	}
	client := ""
	for _, name := range clientVariables {
		if has(name) {
			client = name
			break
		}
	}
	if client == "" {
		return fmt.Errorf("accesslog: no variable of the pattern %q names the client: call it $remote_addr or $client", text)
	}
	timed := false
	for i := range p.parts {
		part := &p.parts[i]
		switch part.name {
		case "time_local", "time_iso8601", "msec", "time":
			if !timed {
				part.get, timed = patternTime, true
			}
		default:
			part.get = variable(part.name)
		}
		if part.name == client {
			part.get = patternClient
		}
	}
	if !timed {
		return fmt.Errorf("accesslog: no variable of the pattern %q has the time: call it $time_local, $time_iso8601, $msec or $time", text)
	}
	return nil
}

func patternTime(r *record, text []byte) string {
	var ok bool
	if r.time, ok = r.clock.any(text); !ok {
		return "no time that can be read"
	}
	return ""
}

func patternClient(r *record, text []byte) string {
	if r.client = firstOf(text); len(r.client) == 0 {
		return "no client"
	}
	return ""
}

// variable returns what a variable is for, or nil if it is for nothing.
func variable(name string) func(r *record, text []byte) string {
	set := func(need Fields, set func(r *record, text []byte)) func(*record, []byte) string {
		return func(r *record, text []byte) string {
			if r.need&need != 0 && !missing(text) {
				set(r, text)
			}
			return ""
		}
	}
	switch name {
	case "request":
		return set(Method|Host|Path, (*record).request)
	case "request_method":
		return set(Method, func(r *record, text []byte) { r.method = text })
	case "request_uri", "uri", "document_uri":
		return set(Path, func(r *record, text []byte) { r.target(r.unescape(text)) })
	case "args", "query_string":
		return set(Path, func(r *record, text []byte) { r.query = r.unescape(text) })
	case "host", "http_host", "server_name":
		return set(Host, func(r *record, text []byte) { r.host = r.unescape(text) })
	case "status":
		return set(Status, (*record).code)
	}
	if sent, ok := strings.CutPrefix(name, "http_"); ok {
		header := headerName([]byte(strings.ReplaceAll(sent, "_", "-")))
		return set(Header, func(r *record, text []byte) { r.set(header, r.unescape(text)) })
	}
	return nil
}

func (p *pattern) parse(s []byte, r *record) string {
	s, ok := bytes.CutPrefix(s, p.lead)
	if !ok {
		return "not as the pattern begins"
	}
	quoted := bytes.HasSuffix(p.lead, []byte(`"`))
	for i := range p.parts {
		part := &p.parts[i]
		text := s
		if len(part.until) > 0 {
			end := p.end(s, part.until, quoted)
			if end < 0 {
				return "not as the pattern has it after $" + part.name
			}
			text, s = s[:end], s[end+len(part.until):]
		}
		if part.get != nil {
			if reason := part.get(r, text); reason != "" {
				return reason
			}
		}
		quoted = bytes.HasSuffix(part.until, []byte(`"`))
	}
	return ""
}

// end returns where until begins in s. Within quotes an escaped quote is not its
// beginning.
func (p *pattern) end(s, until []byte, quoted bool) int {
	for at := 0; ; at++ {
		i := bytes.Index(s[at:], until)
		if i < 0 {
			return -1
		}
		if at += i; !quoted || until[0] != '"' || !escaped(s[:at]) {
			return at
		}
	}
}
