package accesslog

import "bytes"

// prefixed is a layout of lines to which other programs have added prefixes. A line without a prefix is
// parsed as it is.
type prefixed struct{ layout }

func (p prefixed) parse(s []byte, r *record) string {
	if rest, ok := cutPrefix(s); ok {
		if s = rest; len(s) == 0 {
			return "only a part of a line, or nothing after the prefix"
		}
	}
	return p.layout.parse(s, r)
}

// cutPrefix removes the prefixes of docker compose, container engines and syslog, in this order.
func cutPrefix(s []byte) (rest []byte, ok bool) {
	for _, cut := range [...]func([]byte) ([]byte, bool){cutCompose, cutContainer, cutSyslog} {
		if len(s) == 0 {
			break
		}
		if rest, found := cut(s); found {
			s, ok = rest, true
		}
	}
	return s, ok
}

// cutSyslog removes the prefix of syslog: priority, time, host, and the process if there is
// one, as in RFC 3164 and RFC 5424, and as daemons write it to files.
func cutSyslog(s []byte) (rest []byte, ok bool) {
	versioned := false
	if length, after := cutSpace(s); len(after) > 0 && after[0] == '<' {
		if _, ok := number(length); ok { // of the message, in bytes
			s = after
		}
	}
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
	if _, n, ok := t.stamp(s); ok && n < len(s) && s[n] == ' ' && s[10] == 'T' {
		s = s[n+1:]
	} else if len(s) > 16 && monthOf(s[:3]) > 0 && s[3] == ' ' && s[6] == ' ' && s[15] == ' ' {
		if _, ok := hms(s[7:15]); !ok {
			return s, false
		}
		s = s[16:]
	} else {
		return s, false
	}
	host, rest := cutWord(s)
	switch {
	case len(host) == 0, host[0] == '[', host[0] == '"', string(host) == "stdout", string(host) == "stderr":
		return s, false
	case host[0] == '{': // Loki's labels
		_, rest, ok := bytes.Cut(s, []byte("} "))
		return trimSpaces(rest), ok
	}
	tag, after := cutWord(rest)
	tagged := len(tag) > 1 && tag[len(tag)-1] == ':'
	switch {
	case versioned:
		rest = trimSpaces(skipWords(rest, 3)) // application, process, message
		for len(rest) > 0 && rest[0] == '[' {
			end := 1
			for end < len(rest) && (rest[end] != ']' || escaped(rest[:end])) {
				end++
			}
			if end == len(rest) {
				return s, false
			}
			if rest = rest[end+1:]; len(rest) > 0 && rest[0] == ' ' {
				return bytes.TrimPrefix(rest[1:], byteOrderMark), true
			}
		}
		_, rest = cutWord(rest)
		return bytes.TrimPrefix(rest, byteOrderMark), true
	case tagged:
		return trimSpaces(after), true
	case addressOf(firstOf(host)).IsValid(): // the time alone
		return s, true
	}
	return trimSpaces(rest), true
}

// cutContainer removes the prefix of container engines on Kubernetes: time, stream, and F for a
// whole line. Parts of split lines, tagged P, are removed entirely.
func cutContainer(s []byte) (rest []byte, ok bool) {
	var t clock
	_, n, ok := t.stamp(s)
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

// cutCompose removes the name of a container and a bar, the prefix of docker compose, and the colours around them.
func cutCompose(s []byte) (rest []byte, ok bool) {
	name, rest := cutWord(withoutColours(s))
	rest = trimSpaces(withoutColours(rest))
	if len(name) == 0 || len(rest) < 2 || rest[0] != '|' || rest[1] != ' ' && rest[1] != '\x1b' || bytes.ContainsAny(name, `["{/:`) {
		return s, false
	}
	return trimSpaces(withoutColours(rest[1:])), true
}

// withoutColours removes a terminal's sequences such as ESC[0;33m from the beginning of s, and a space before the last.
func withoutColours(s []byte) []byte {
	for {
		sequence, ok := bytes.CutPrefix(trimSpaces(s), []byte("\x1b["))
		end := bytes.IndexByte(sequence, 'm')
		if !ok || end < 0 {
			return s
		}
		s = sequence[end+1:]
	}
}
