package rule

import (
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// A Request has the properties of a request that rules look at.
//
// Set the exported fields as received, then call [Request.Canonicalize], which Match and Keys
// require. They cache results in the Request, so each goroutine needs its own.
type Request struct {
	Addr   netip.Addr          // client address
	Method string              // as received
	Host   string              // Host header or :authority
	Path   string              // percent-encoded, without the query
	Query  string              // without the question mark
	Header map[string][]string // keys as net/http spells them; may be nil

	// Fields, unless it is nil, returns the Header when a rule first needs it.
	Fields interface{ RuleFields() map[string][]string }

	// Malformed says that only Addr is known. The only rules that apply to such a request are those
	// without a match that count by ip alone.
	Malformed bool

	// Borrowed says that the strings are valid only until the decision about the request. Code that
	// keeps one longer must copy it.
	Borrowed bool

	client netip.Addr // first address of the client's network
	bits   uint8      // length of that network; 0 means an IPv4 /32 or an IPv6 /64
	target target     // Path as received

	searched int  // bytes of long values that expressions have read: see MaxSearched
	partial  bool // only the values of some characteristics are known: see Rule.RequestFrom
}

// Canonicalize brings r into the form in which requests are matched and counted: see [Request.Identify] and
// [Request.ReadPath]. A second call changes only the client.
func (r *Request) Canonicalize(p ClientPrefix) {
	r.Identify(p)
	r.ReadPath()
}

// Identify is Canonicalize without the path, which it only classifies. Host becomes lower case, without port
// and trailing dots. An IPv6 address in brackets gets its shortest form. A method that differs from a registered one
// only in case becomes that one. Addr is unmapped (see [ClientPrefix.Unmap]), and the client is its network according
// to p. A path beyond [MaxPath], [MaxOddPath] or [MaxOddSegments] makes r malformed. Identify allocates only if Host
// changes.
func (r *Request) Identify(p ClientPrefix) {
	r.Addr = p.Unmap(r.Addr)
	r.client, r.bits = p.client(r.Addr)
	r.Method = canonicalMethod(r.Method)
	r.Host = canonicalHost(r.Host)
	r.classify()
}

// classify sets r.target, unless it was set for Path.
func (r *Request) classify() {
	if t := &r.target; t.sent == "" || r.Path != t.sent && r.Path != t.decoded {
		r.Malformed = !t.set(r.Path) || r.Malformed
	}
}

// ReadPath decodes Path once, then removes dot segments and doubled slashes. Rules read the path as received,
// according to their [PathSyntax]. It allocates only if Path changes.
func (r *Request) ReadPath() { r.Path = r.target.path() }

// fields returns the header.
func (r *Request) fields() map[string][]string {
	if r.Fields != nil {
		r.Header, r.Fields = r.Fields.RuleFields(), nil
	}
	return r.Header
}

// Unusual reports whether reading the path and the query of r costs more than looking up a few mitigations.
func (r *Request) Unusual() bool {
	const much = 256
	return r.target.odd || r.target.decoded == "" || len(r.target.sent)+len(r.Query) > much
}

// Client returns the address that identifies the client of a canonical request: the first one of its
// network.
func (r *Request) Client() netip.Addr { return r.client }

// withoutPort returns host without its port. A host with several colons and no brackets is an IPv6
// address without a port.
func withoutPort(host string) string {
	if end := strings.IndexByte(host, ']'); end > 0 && host[0] == '[' {
		return host[:end+1]
	}
	if i := strings.IndexByte(host, ':'); i >= 0 && strings.IndexByte(host[i+1:], ':') < 0 {
		return host[:i]
	}
	return host
}

// canonicalHost returns host in lower case, without port and trailing dots, and an IPv6 address in its
// shortest form. It allocates only if a letter changes.
func canonicalHost(host string) string {
	host = withoutPort(host)
	addr, ok := parseIPv6(host)
	if !ok {
		return lower(strings.TrimRight(host, "."))
	}
	var buf [64]byte
	if b := append(addr.AppendTo(append(buf[:0], '[')), ']'); string(b) != host {
		return string(b)
	}
	return host
}

// parseIPv6 parses a host that is an IPv6 address in brackets.
func parseIPv6(host string) (addr netip.Addr, ok bool) {
	if !strings.HasPrefix(host, "[") || !strings.HasSuffix(host, "]") {
		return addr, false
	}
	addr, err := netip.ParseAddr(host[1 : len(host)-1])
	return addr, err == nil && addr.Is6() && addr.Zone() == ""
}

// registeredMethods are the methods in IANA's HTTP Method Registry, and QUERY, which is about to be added.
var registeredMethods = strings.Fields("ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD " +
	"LABEL LINK LOCK MERGE MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH POST " +
	"PRI PROPFIND PROPPATCH PUT QUERY REBIND REPORT SEARCH TRACE UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE " +
	"UPDATEREDIRECTREF VERSION-CONTROL")

// canonicalMethod returns the registered method that differs from method only in case or, if there is
// none, method. It does not allocate.
func canonicalMethod(method string) string {
	for i := range len(method) {
		if c := method[i]; 'a' <= c && c <= 'z' {
			for _, m := range registeredMethods {
				if len(m) == len(method) && strings.EqualFold(m, method) { // the same length, so all ASCII
					return m
				}
			}
			break
		}
	}
	return method
}

// lower returns s with ASCII letters in lower case. Other letters stay, so that hosts that differ in them
// remain different. It allocates only if a letter changes.
func lower(s string) string {
	for i := range len(s) {
		if lowerByte(s[i]) != s[i] {
			var buf [256]byte
			b := append(buf[:0], s...)
			for i, c := range b {
				b[i] = lowerByte(c)
			}
			return string(b)
		}
	}
	return s
}

func lowerByte(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// decode appends s to dst with percent escapes decoded once and, in a query, with plus signs as spaces.
func decode(dst []byte, s string, query bool) []byte {
	dst = slices.Grow(dst, len(s))
	for s != "" {
		var c byte
		c, s = decodeByte(s, query)
		dst = append(dst, c)
	}
	return dst
}

// decodeByte decodes the first byte of s, which must not be empty, and returns the rest of s.
func decodeByte(s string, query bool) (c byte, rest string) {
	c, escaped := unescape(s)
	switch {
	case escaped:
		return c, s[3:]
	case c == '+' && query:
		c = ' '
	}
	return c, s[1:]
}

// unescape returns the byte that is escaped at the beginning of s, which must not be empty, or the first byte of s.
func unescape(s string) (c byte, escaped bool) {
	if s[0] == '%' && len(s) > 2 {
		if high, low := hexDigits[s[1]], hexDigits[s[2]]; high&low&16 != 0 {
			return high<<4 | low&0xf, true
		}
	}
	return s[0], false
}

// hexDigits are the values of hexadecimal digits, plus 16.
var hexDigits = func() (values [256]byte) {
	for i, c := range "0123456789abcdefABCDEF" {
		values[c] = byte(16 + i - i/16*6)
	}
	return values
}()

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
	r.Malformed = r.Malformed || r.target.bad || method != "" && !httpguts.ValidHeaderFieldName(method) ||
		IsTunnel(method) || !validHost(r.Host) || !validQuery(r.Query) ||
		!strings.HasPrefix(r.Path, "/") && (r.Path != "*" || method != http.MethodOptions)
}

// IsTunnel reports whether a method reaches beyond the origin, as CONNECT does, or shows the fields that proxies have
// added, as TRACE does. Nodes refuse such requests.
func IsTunnel(method string) bool { return method == http.MethodConnect || method == http.MethodTrace }

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
	name := withoutPort(host)
	if port := host[len(name):]; port != "" && (name == "" || port[0] != ':' || !validPort(port[1:])) {
		return false
	}
	_, isIPv6 := parseIPv6(name)
	return isIPv6 || validName(name)
}

// validName reports whether name is empty, or consists of labels separated by single dots. A dot may end
// it, but not begin it.
func validName(name string) bool {
	for i := range len(name) {
		if c := name[i]; !isAlphanumeric(c) && c != '-' && c != '_' && (c != '.' || i == 0 || name[i-1] == '.') {
			return false
		}
	}
	return true
}

func validPort(port string) bool {
	_, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}
