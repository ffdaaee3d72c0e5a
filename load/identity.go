package load

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// An Identity is how the target is told which client sends. Several may be told at once. The
// zero value tells nothing: all requests come from the generator's own address.
type Identity struct {
	Forwarded bool   // X-Forwarded-For; the target has to trust the generator
	Proxy     int    // version of the PROXY protocol, 1 or 2: then no two clients share a connection
	Header    string // this header has the client's key
	Cookie    string // this cookie has it
}

// ParseIdentity reads words such as xff, proxy1, proxy2, header:x-api-key, cookie:sid, with
// commas between them, or none.
func ParseIdentity(text string) (id Identity, err error) {
	for word := range strings.SplitSeq(text, ",") {
		kind, name, named := strings.Cut(strings.TrimSpace(word), ":")
		switch {
		case kind == "none" && !named:
		case kind == "xff" && !named:
			id.Forwarded = true
		case kind == "proxy1" && !named:
			id.Proxy = 1
		case kind == "proxy2" && !named:
			id.Proxy = 2
		case kind == "header" && isToken(name):
			id.Header = name
		case kind == "cookie" && isToken(name):
			id.Cookie = name
		default:
			return id, fmt.Errorf("load: %q is no way to tell clients apart; there are xff, proxy1, proxy2, header:NAME, cookie:NAME and none", word)
		}
	}
	if id.Forwarded && id.Proxy != 0 {
		return id, fmt.Errorf("load: the address is told by xff or by %s, not by both", fmt.Sprintf("proxy%d", id.Proxy))
	}
	return id, nil
}

// isToken reports whether s may be the name of a header.
func isToken(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	}) < 0
}

// tellsAddr reports whether the target learns the client's address.
func (id Identity) tellsAddr() bool { return id.Forwarded || id.Proxy != 0 }

// appendKey appends the key of a client.
func appendKey(b []byte, client uint64) []byte {
	return strconv.AppendUint(append(b, "client-"...), client, 10)
}

// appendHeader appends the header lines that tell who sends.
func (id *Identity) appendHeader(b []byte, r *Request) []byte {
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

// appendProxy appends the header of the PROXY protocol for a connection of a client.
func (id *Identity) appendProxy(b []byte, client netip.Addr, to netip.AddrPort) []byte {
	const port = 40_000 // of the client; nobody is there
	if client.Is4() != to.Addr().Is4() {
		// Both have to be of one family. Whom the connection goes to does not matter.
		to = netip.AddrPortFrom(netip.IPv6Loopback(), to.Port())
		if client.Is4() {
			to = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), to.Port())
		}
	}
	if id.Proxy == 1 {
		family := "TCP6"
		if client.Is4() {
			family = "TCP4"
		}
		return fmt.Appendf(b, "PROXY %s %s %s %d %d\r\n", family, client, to.Addr(), port, to.Port())
	}
	b = append(b, "\r\n\r\n\x00\r\nQUIT\n\x21"...) // signature, version 2, PROXY
	if client.Is4() {
		b = append(b, 0x11, 0, 12)
	} else {
		b = append(b, 0x21, 0, 36)
	}
	b = append(append(b, client.AsSlice()...), to.Addr().AsSlice()...)
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, port), to.Port())
}
