package accesslog

import "bytes"

// prefixed is a layout of lines to which another program has added a prefix. A line without a prefix is
// parsed as it is.
type prefixed struct {
	layout
	cut cutFunc
}

func (p prefixed) parse(s []byte, r *record) string {
	if rest, ok := p.cut(s); ok {
		if s = rest; len(s) == 0 {
			return "only a part of a line, or nothing after the prefix"
		}
	}
	return p.layout.parse(s, r)
}

// A cutFunc removes a kind of prefix from lines.
type cutFunc func(s []byte) (rest []byte, ok bool)

var cutFuncs = []cutFunc{cutContainer, cutCompose, cutSyslog}

// cutSyslog removes the prefix of syslog: priority, time, host, and the process if there is
// one, as in RFC 3164 and RFC 5424, and as daemons write it to files.
func cutSyslog(s []byte) (rest []byte, ok bool) {
	versioned := false
	if s[0] == '<' {
		i := bytes.IndexByte(s, '>')
		if i < 2 || i > 4 {
			return s, false
		}
		if s = s[i+1:]; len(s) > 2 && s[0] == '1' && s[1] == ' ' {
			s, versioned = s[2:], true
		}
	}
	var t clock
	if _, n, ok := t.iso(s); ok && n < len(s) && s[n] == ' ' && s[10] == 'T' {
		s = s[n+1:]
	} else if len(s) > 16 && monthOf(s[:3]) > 0 && s[3] == ' ' && s[6] == ' ' && s[15] == ' ' {
		if _, ok := hms(s[7:15]); !ok {
			return s, false
		}
		s = s[16:]
	} else {
		return s, false
	}
	host, s := cutWord(s)
	switch {
	case len(host) == 0, host[0] == '{', host[0] == '[', host[0] == '"', string(host) == "stdout", string(host) == "stderr":
		return s, false
	}
	if versioned {
		s = skipWords(s, 3) // application, process, message
		if s = trimSpaces(s); len(s) > 0 && s[0] == '[' {
			if i := bytes.Index(s, []byte("] ")); i >= 0 {
				return s[i+2:], true
			}
		}
		_, s = cutWord(s)
		return s, true
	}
	tag, rest := cutWord(s)
	if n := len(tag); n > 1 && tag[n-1] == ':' {
		return trimSpaces(rest), true
	}
	return trimSpaces(s), true
}

// cutContainer removes the prefix of container engines on Kubernetes: time, stream, and F for a
// whole line. Parts of split lines, tagged P, are removed entirely.
func cutContainer(s []byte) (rest []byte, ok bool) {
	var t clock
	_, n, ok := t.iso(s)
	if !ok || n >= len(s) || s[n] != ' ' {
		return s, false
	}
	stream, rest := cutWord(s[n:])
	if string(stream) != "stdout" && string(stream) != "stderr" {
		return s, false
	}
	tags, rest := cutWord(rest)
	if tag, _, _ := bytes.Cut(tags, []byte(":")); string(tag) == "P" {
		return nil, true
	}
	return rest, true
}

// cutCompose removes the name of a container and a bar, the prefix of docker compose.
func cutCompose(s []byte) (rest []byte, ok bool) {
	name, rest := cutWord(s)
	rest = trimSpaces(rest)
	if len(name) == 0 || len(rest) < 2 || rest[0] != '|' || rest[1] != ' ' || bytes.ContainsAny(name, `["{/:`) {
		return s, false
	}
	return rest[2:], true
}
