package accesslog

import "bytes"

// request parses a request line, or as much of an invalid one as possible.
func (r *record) request(s []byte) {
	if r.need&(Method|Path|Host) == 0 {
		return
	}
	end := bytes.IndexByte(s, ' ')
	if end <= 0 || end > 32 || !letters(s[:end]) {
		return
	}
	method, target := s[:end], trimSpaces(s[end+1:])
	complete := false
	i := bytes.LastIndexByte(target, ' ')
	if i >= 0 && !bytes.HasPrefix(target[i:], []byte(" HTTP/")) {
		i = bytes.LastIndex(target, []byte(" HTTP/"))
	}
	if i >= 0 {
		target, complete = bytes.TrimRight(target[:i], " "), true
	}
	if len(target) == 0 || !complete && target[0] != '/' && target[0] != '*' && !bytes.Contains(target, []byte("://")) {
		return
	}
	r.method = method
	r.target(target)
}

// letters reports whether s begins with a letter and consists of letters, - and _, as every
// method in use does.
func letters(s []byte) bool {
	for i, c := range s {
		if (c|0x20 < 'a' || c|0x20 > 'z') && (i == 0 || c != '-' && c != '_') {
			return false
		}
	}
	return len(s) > 0
}

// target parses a request target: a path with an optional query, a URL, or for CONNECT a host.
func (r *record) target(s []byte) {
	if len(s) > 0 && s[0] != '/' {
		if i := bytes.Index(s, []byte("://")); i > 0 && i < 12 && letters(s[:i]) {
			scheme, rest := s[:i], s[i+3:]
			end := bytes.IndexAny(rest, "/?#")
			if end < 0 {
				end = len(rest)
			}
			host := rest[:end]
			host = host[bytes.LastIndexByte(host, '@')+1:] // without user and password
			r.host = withoutDefaultPort(host, scheme)
			if s = rest[end:]; len(s) == 0 || s[0] != '/' {
				r.path, r.query = []byte("/"), bytes.TrimPrefix(s, []byte("?"))
				return
			}
		} else if string(r.method) == "CONNECT" {
			r.host = s
			return
		} else if s[0] != '*' && bytes.IndexByte(s, ':') >= 0 {
			return // an error's name, in Squid's log
		}
	}
	if i := bytes.IndexByte(s, '?'); i >= 0 {
		r.path, r.query = s[:i], s[i+1:]
		return
	}
	r.path = s
}

func withoutDefaultPort(host, scheme []byte) []byte {
	switch string(scheme) {
	case "http":
		return bytes.TrimSuffix(host, []byte(":80"))
	case "https":
		return bytes.TrimSuffix(host, []byte(":443"))
	}
	return host
}

// code parses a status, and ignores anything else.
func (r *record) code(s []byte) {
	if n, ok := number(s); ok && n < 1000 {
		r.status = n
	}
}
