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
type clf struct {
	rest *pattern // of the text after the time
}

func (l clf) parse(s []byte, r *record) string {
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
			r.texts[host] = client // else a prefix such as nginx:
		}
		client, rest = second, rest[len(second):]
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
		if name, after := cutSpace(rest); len(name) > 2 && name[len(name)-1] == '"' && len(after) > 0 && after[0] == '"' {
			r.texts[host], rest = bytes.Trim(name, `"`), after
		}
		_ = l.rest.fill(rest, r)
		r.read()
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
