package load

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/pires/go-proxyproto"
	"golang.org/x/net/http/httpguts"
)

// An Identity specifies how requests identify their client. Several ways may be combined. With the
// zero value, all requests come from the generator's own address.
type Identity struct {
	Forwarded bool   // send X-Forwarded-For; the target must trust the generator
	Proxy     int    // version of the PROXY protocol, 1 or 2; clients then do not share connections
	Header    string // header that contains the client's key
	Cookie    string // cookie that contains the client's key
}

// ParseIdentity parses a comma-separated list of xff, proxy1, proxy2, header:x-api-key, cookie:sid
// and the like, or none.
func ParseIdentity(text string) (id Identity, err error) {
	for word := range strings.SplitSeq(text, ",") {
		kind, name, named := strings.Cut(strings.TrimSpace(word), ":")
		switch {
		case kind == "none" && !named && text == word:
		case kind == "xff" && !named && id.Proxy == 0:
			id.Forwarded = true
		case (kind == "proxy1" || kind == "proxy2") && !named && !id.sendsAddr():
			id.Proxy = int(kind[5] - '0')
		case kind == "header" && id.Header == "" && httpguts.ValidHeaderFieldName(name) && !isOwn(name):
			id.Header = name
		case kind == "cookie" && id.Cookie == "" && httpguts.ValidHeaderFieldName(name):
			id.Cookie = name
		default:
			const hint = "use one of xff, proxy1 and proxy2, or header:NAME, cookie:NAME or none"
			return id, fmt.Errorf("load: invalid identity %q: %s", text, hint)
		}
	}
	return id, nil
}

// ParseHeader parses a header line such as "Accept: text/html".
func ParseHeader(line string) (header [2]string, err error) {
	name, value, ok := strings.Cut(line, ":")
	if !ok || !httpguts.ValidHeaderFieldName(name) ||
		strings.ContainsFunc(value, func(r rune) bool { return r != ' ' && r != '\t' && unsendable(r) }) {
		return header, fmt.Errorf("load: invalid header line %q: write it as Name: value", line)
	}
	if strings.EqualFold(name, "Host") {
		err = (&Look{Method: "GET", Host: strings.TrimSpace(value)}).Check()
	} else if isOwn(name) {
		return header, fmt.Errorf("load: cannot set the header %s: it depends on the request", name)
	}
	return [2]string{name, strings.TrimSpace(value)}, err
}

// isOwn reports whether the generator itself writes the named header.
func isOwn(name string) bool {
	return slices.Contains([]string{"host", "connection", "content-length", "transfer-encoding"}, strings.ToLower(name))
}

// unsendable reports whether r must not appear in a request line.
func unsendable(r rune) bool { return r <= ' ' || r == 0x7f }

// sendsAddr reports whether the target learns the client's address.
func (id Identity) sendsAddr() bool { return id.Forwarded || id.Proxy != 0 }

func appendKey(b []byte, client uint64) []byte {
	return strconv.AppendUint(append(b, "client-"...), client, 10)
}

// appendHeader appends the header lines of a request that do not depend on how it is sent.
func (o *Options) appendHeader(b []byte, r *Request) []byte {
	if r.Look.Agent != "" {
		b = append(append(append(b, "User-Agent: "...), r.Look.Agent...), "\r\n"...)
	}
	for _, l := range o.Header {
		b = append(append(append(append(b, l[0]...), ": "...), l[1]...), "\r\n"...)
	}
	id := &o.Identity
	if id.Forwarded {
		b = append(r.Addr.AppendTo(append(b, "X-Forwarded-For: "...)), "\r\n"...)
	}
	if id.Header != "" {
		b = append(appendKey(append(append(b, id.Header...), ": "...), r.Client), "\r\n"...)
	}
	if id.Cookie != "" {
		b = append(appendKey(append(append(append(b, "Cookie: "...), id.Cookie...), '='), r.Client), "\r\n"...)
	}
	return b
}

// header returns the names and values of the lines that appendHeader appends.
func (o *Options) header(r *Request) (lines [][2]string) {
	for line := range strings.SplitSeq(string(o.appendHeader(nil, r)), "\r\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			lines = append(lines, [2]string{name, value})
		}
	}
	return lines
}

// proxyHeader returns the header of the PROXY protocol for a connection of a client.
func (id *Identity) proxyHeader(client netip.Addr, to netip.AddrPort) []byte {
	const port = 40_000 // of the client; arbitrary
	if client.Is4() != to.Addr().Is4() {
		to = netip.AddrPortFrom(client, to.Port()) // both must be of one family; the destination does not matter
	}
	from := netip.AddrPortFrom(client, port)
	header, err := proxyproto.HeaderProxyFromAddrs(byte(id.Proxy), net.TCPAddrFromAddrPort(from),
		net.TCPAddrFromAddrPort(to)).Format()
	if err != nil {
		panic("load: " + err.Error()) // both are TCP addresses of one family
	}
	return header
}
