package rule

import (
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// Admit sets Method, Host, Path and Query of a request as a client or another proxy has sent them, and whether the
// request is Malformed. The host of a target in absolute form replaces host (RFC 9112, 3.2).
func (r *Request) Admit(method, host, target string) {
	r.Method, r.Host = method, host
	for _, scheme := range [...]string{"http://", "https://"} {
		if len(target) > len(scheme) && strings.EqualFold(target[:len(scheme)], scheme) {
			end := len(scheme)
			for end < len(target) && target[end] != '/' && target[end] != '?' {
				end++
			}
			r.Host, target = target[len(scheme):end], target[end:]
			break
		}
	}
	r.Path, r.Query, _ = strings.Cut(target, "?")
	if r.Path == "" {
		r.Path = "/"
	}
	r.Check()
}

// Check sets Malformed if origins read the request in different ways, or if no origin may get it. Admit calls it.
func (r *Request) Check() {
	r.classify()
	method := canonicalMethod(r.Method)
	r.Malformed = r.Malformed || r.target.bad || !isToken(method) || IsTunnel(method) || !validHost(r.Host) ||
		!validQuery(r.Query) || !strings.HasPrefix(r.Path, "/") && (r.Path != "*" || method != http.MethodOptions)
}

// IsTunnel reports whether a method reaches beyond the origin, as CONNECT does, or shows the fields that proxies have
// added, as TRACE does. Nodes refuse such requests.
func IsTunnel(method string) bool { return method == http.MethodConnect || method == http.MethodTrace }

// isToken reports whether each byte of s may be in a token (RFC 9110, 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && strings.IndexByte(tokenBytes, s[i]) < 0 {
			return false
		}
	}
	return true
}

const tokenBytes = "!#$%&'*+-.^_`|~abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// validQuery reports whether query has no byte that would end it or the request line.
func validQuery(query string) bool {
	for i := range len(query) {
		if special[query[i]] == invalid {
			return false
		}
	}
	return true
}

// validHost reports whether host is empty or HOST[:PORT]: a name of letters, digits, hyphens, underscores
// and dots, or an IPv6 address in brackets, and a port that may be empty. Origins read other values in
// different ways: nginx ignores everything after the first colon.
func validHost(host string) bool {
	name, port := host, ""
	if strings.HasPrefix(host, "[") {
		end := strings.IndexByte(host, ']')
		if end < 0 {
			return false
		}
		name, port = host[1:end], host[end+1:]
		if addr, err := netip.ParseAddr(name); err != nil || !addr.Is6() || addr.Zone() != "" {
			return false
		}
		return port == "" || port[0] == ':' && validPort(port[1:])
	}
	if colon := strings.IndexByte(host, ':'); colon >= 0 {
		name, port = host[:colon], host[colon+1:]
		if name == "" || !validPort(port) {
			return false
		}
	}
	return validName(name)
}

// validName reports whether name is empty, or consists of labels separated by single dots. A dot may end
// it, but not begin it.
func validName(name string) bool {
	dot := true // the last byte was a dot, or there was none
	for i := range len(name) {
		c := name[i]
		switch {
		case c == '.':
			if dot {
				return false
			}
		case !isAlphanumeric(c) && c != '-' && c != '_':
			return false
		}
		dot = c == '.'
	}
	return true
}

func validPort(port string) bool {
	if port == "" {
		return true
	}
	_, err := strconv.ParseUint(port, 10, 16)
	return err == nil
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// AddField adds a field of a request to header, as net/http spells it, if a rule of s looks at it. So it does if CGI
// cannot distinguish the name from that of such a field, as with X_Api_Key: PHP, WSGI and Rack read both. Once a name
// has more lines than rules read, further ones make no difference and are dropped, except cookies: a client may send
// each in a line of its own.
func (s *Set) AddField(header map[string][]string, name, value string) {
	if len(name) >= len(s.fields) {
		return
	}
	for _, used := range s.fields[len(name)] {
		if lines := header[used]; (len(lines) <= maxPairs || used == "Cookie") && cgiConfuses(used, name) {
			header[used] = append(lines, value)
		}
	}
}

// Confuses reports whether CGI reads a field called name as one that a rule of s looks at, although no rule looks at
// that name itself.
func (s *Set) Confuses(name string) (confuses bool) {
	if len(name) >= len(s.fields) {
		return false
	}
	for _, used := range s.fields[len(name)] {
		if strings.EqualFold(used, name) {
			return false
		}
		confuses = confuses || cgiConfuses(used, name)
	}
	return confuses
}

// cgiConfuses reports whether CGI cannot distinguish two names of the same length: it ignores case, and reads all bytes
// other than letters and digits as underscores.
func cgiConfuses(a, b string) bool {
	for i := range len(a) {
		if a[i]|0x20 != b[i]|0x20 && (isAlphanumeric(a[i]) || isAlphanumeric(b[i])) {
			return false
		}
	}
	return true
}
