package accesslog

import (
	"fmt"
	"regexp"
	"strings"
)

// directive matches what follows the % of a directive in Apache's LogFormat: conditions, an argument, and a letter.
var directive = regexp.MustCompile(`^[<>!,0-9]*(?:\{([^}]*)\})?(\^t[io]|[a-zA-Z])`)

// apacheVariables maps the relevant directives of Apache to nginx's variables.
var apacheVariables = map[string]string{
	"a": "remote_addr", "h": "remote_addr", "r": "request", "m": "request_method", "U": "uri", "q": "args",
	"s": "status", "v": "server_name", "V": "host", "t": "time",
}

// splitApache splits a pattern in the notation of LogFormat into directives and the text between them.
func splitApache(text string) (lead string, parts []part, err error) {
	text = strings.NewReplacer(`\"`, `"`, `\t`, "\t", `\\`, `\`).Replace(text)
	literal := func(s string) {
		if n := len(parts); n > 0 {
			parts[n-1].until = append(parts[n-1].until, s...)
		} else {
			lead += s
		}
	}
	for more := true; ; {
		var between string
		if between, text, more = strings.Cut(text, "%"); between != "" {
			literal(between)
		}
		if !more {
			return lead, parts, nil
		}
		if rest, ok := strings.CutPrefix(text, "%"); ok {
			literal("%")
			text = rest
			continue
		}
		m := directive.FindStringSubmatch(text)
		if m == nil {
			return "", nil, fmt.Errorf("has no directive after %%: %.10q", text)
		}
		text = text[len(m[0]):]
		p := part{name: m[2], shown: "%" + m[0]}
		switch {
		case m[2] == "i":
			p.name = "http_" + strings.ToLower(strings.ReplaceAll(m[1], "-", "_"))
		case m[2] == "a" && m[1] != "":
			p.name = "realip_remote_addr"
		case apacheVariables[m[2]] != "" && (m[1] == "" || m[2] == "t"):
			p.name = apacheVariables[m[2]]
		}
		// Merge the parts of a time, and path and query.
		if n := len(parts); n > 0 {
			last := &parts[n-1]
			if until := string(last.until); p.name == "time" && last.name == "time" && m[1] != "" && (until == "" || until == "." || until == " ") ||
				p.name == "args" && last.name == "uri" && until == "" {
				last.shown += until + p.shown
				last.until = nil
				continue
			}
		}
		parts = append(parts, p)
	}
}
