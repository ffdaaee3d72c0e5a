package accesslog

import "bytes"

// prefixedLayout is a layout of lines to which other programs have added prefixes. A line without a prefix is
// parsed as it is.
type prefixedLayout struct{ layout }

func (p prefixedLayout) parse(s []byte, r *record) string {
	if rest, ok := cutPrefix(s); ok {
		if s = rest; len(s) == 0 {
			return "only a part of a line, or nothing after the prefix"
		}
	}
	return p.layout.parse(s, r)
}

// cutPrefix removes the prefixes of docker compose or kubectl, container engines and syslog, in this order.
func cutPrefix(s []byte) (rest []byte, ok bool) {
	s, ok = cutName(s)
	for range 2 {
		if rest, found := cutStamped(s); found {
			s, ok = rest, true
		}
	}
	return s, ok
}

// cutStamped removes a prefix with a time.
//
// A syslog prefix has a priority, a time, a host and, if known, a process, as in RFC 3164, in RFC 5424, and in files
// that daemons write. A prefix of a container engine on Kubernetes has a time, a stream, and F for a whole line.
// Parts of split lines, tagged P, are removed entirely.
func cutStamped(s []byte) (rest []byte, ok bool) {
	message, versioned := s, false
	if length, after := cutSpace(s); len(after) > 0 && after[0] == '<' {
		if _, ok := number(length); ok { // of the message, in bytes
			message = after
		}
	}
	if len(message) > 0 && message[0] == '<' {
		priority, after, _ := bytes.Cut(message[1:], []byte{'>'})
		if _, ok := number(priority); !ok {
			return s, false
		}
		message, versioned = bytes.CutPrefix(after, []byte("1 "))
	}
	message = afterTime(message)
	host, rest := cutWord(message)
	if len(host) == 0 {
		return s, false
	}
	tag, after := cutWord(rest)
	switch {
	case host[0] == '[', host[0] == '"':
		return s, false
	case string(host) == "stdout", string(host) == "stderr":
		if len(tag) > 0 && tag[0] == 'P' {
			return nil, true
		}
		return after, true
	case host[0] == '{': // Loki's labels
		_, rest, ok = bytes.Cut(message, []byte("} "))
	case versioned:
		rest, ok = trimSpaces(skipWords(after, 2)), true // application, process, message
		if len(rest) > 0 && rest[0] == '[' {             // structured data
			_, rest, ok = bytes.Cut(rest, []byte(`"] `))
		} else {
			_, rest = cutWord(rest)
		}
		rest = bytes.TrimPrefix(rest, byteOrderMark)
	case len(tag) > 1 && tag[len(tag)-1] == ':':
		rest, ok = after, true
	case addressOf(firstOf(host)).IsValid(): // the time alone
		return message, true
	default:
		ok = true
	}
	return trimSpaces(rest), ok
}

// afterTime returns what follows a time like 2006-01-02T15:04:05Z or Jan _2 15:04:05 and a space.
func afterTime(s []byte) []byte {
	at := len("Jan _2 ")
	switch {
	case len(s) < len("Jan _2 15:04:05"):
		return nil
	case s[4] == '-' && s[10] == 'T':
		at = len("2006-01-02T")
	case s[3] != ' ' || s[6] != ' ' || !letters(s[:3]):
		return nil
	}
	if _, _, ok := timeOfDay(s[at:]); !ok {
		return nil
	}
	_, rest := cutSpace(s[at+len("15:04:05"):])
	return rest
}

// cutName removes the name of a container: NAME | as docker compose adds it, or [pod/POD/CONTAINER] as kubectl does.
func cutName(s []byte) (rest []byte, ok bool) {
	name, rest := cutWord(s)
	if bytes.HasPrefix(name, []byte("[pod/")) && name[len(name)-1] == ']' {
		return rest, true
	}
	rest, ok = bytes.CutPrefix(trimSpaces(rest), []byte("| "))
	if !ok || len(name) == 0 || bytes.ContainsAny(name, `["{/:`) {
		return s, false
	}
	return trimSpaces(rest), true
}
