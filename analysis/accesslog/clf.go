package accesslog

import "bytes"

// clf is the common log format and its extensions: combined, a leading virtual host, more
// fields at the end.
//
//	host ident user [dd/Mon/yyyy:HH:MM:SS +zzzz] "request" status bytes "referer" "agent"
//
// The seconds may have a fraction, which Apache can be configured to write.
//
// The client is the host, the line's first word; the time is the first one in the line. A line
// with both is an entry, whatever the rest looks like.
type clf struct{}

func (clf) parse(s []byte, r *record) string {
	end := bytes.IndexByte(s, ' ')
	switch {
	case end < 0:
		return "no time like [02/Jan/2006:15:04:05 -0700]"
	case end == 0:
		return "no client"
	}
	if s[0] == '[' && s[end-1] != ']' {
		return "no client before the time"
	}
	client, rest := s[:end], s[end+1:]
	at := 0
	if len(rest) > 2+clfLength && rest[0] == '-' && rest[1] == ' ' {
		if at = 2; rest[2] == '-' && rest[3] == ' ' && rest[4] == '[' {
			at = 4
		}
	} else if name, client2, ok := virtualHost(client, rest); ok {
		if r.need&Host != 0 {
			r.texts[host] = name
		}
		client, rest = client2, rest[len(client2):]
	}
	for {
		i := bytes.IndexByte(rest[at:], '[')
		if i < 0 {
			return "no time like [02/Jan/2006:15:04:05 -0700]"
		}
		at += i + 1
		t, n, ok := r.clock.clf(rest[at:])
		if end := at + n; ok && len(rest) > end && rest[end] == ']' {
			r.time, r.client = t, client
			rest = rest[end+1:]
			break
		}
	}
	if r.need&^Addr != 0 {
		r.combined(rest)
		r.read()
	}
	return ""
}

// combined parses what follows the time.
func (r *record) combined(s []byte) {
	text, s, ok := cutRequest(trimSpaces(s))
	if !ok {
		return
	}
	if r.need&needs[request] != 0 {
		r.texts[request] = r.unescape(text)
	}
	if r.need&(Status|Header) == 0 {
		return
	}
	r.texts[status], s = cutWord(s)
	if r.need&Header == 0 {
		return
	}
	_, s = cutWord(s) // bytes
	referer, s, ok := cutQuoted(trimSpaces(s))
	agent, _, ok2 := cutQuoted(trimSpaces(s))
	if ok && ok2 {
		r.set("Referer", r.unescape(referer))
		r.set("User-Agent", r.unescape(agent))
	}
}

// cutRequest is cutQuoted for the request. It looks for the status that follows, since old
// servers do not escape quotes in the request.
func cutRequest(s []byte) (text, rest []byte, ok bool) {
	text, rest, ok = cutQuoted(s)
	if len(rest) < 2 || rest[1] == '-' || rest[1] >= '0' && rest[1] <= '9' {
		return text, rest, ok
	}
	for i := len(text) + 2; ; i++ {
		j := bytes.Index(s[i:], []byte(`" `))
		if j < 0 {
			return text, rest, ok
		}
		if i += j; i+2 < len(s) && (s[i+2] == '-' || s[i+2] >= '0' && s[i+2] <= '9') {
			return s[1:i], s[i+1:], true
		}
	}
}

// virtualHost reports whether the first word of a line is not the client but the requested
// host: the next word is an address, or there is one word more than usual before the time. It
// returns the host and the client. Two addresses are host and client only if identity and user
// follow, since lighttpd writes the client before the host.
func virtualHost(first, rest []byte) (host, client []byte, ok bool) {
	end := bytes.IndexByte(rest, ' ')
	if end <= 0 || rest[0] == '[' || rest[0] == '"' || first[0] == '[' || first[len(first)-1] == ',' {
		return nil, nil, false
	}
	client = rest[:end]
	after := rest[end+1:]
	more := len(after) > 2 && after[0] == '-' && after[1] == ' ' && after[2] != '['
	switch firstIs, secondIs := addressOf(first).IsValid(), addressOf(client).IsValid(); {
	case secondIs && (more || !firstIs):
		return first, client, true
	case firstIs || secondIs || !more || end == 1 && client[0] == '-':
		return nil, nil, false
	}
	return first, client, true
}
