package proxy

import (
	"net/netip"
	"strings"
)

// Trusts reports whether addr is the address of a trusted proxy.
func (p *Proxy) Trusts(addr netip.AddrPort) bool { return p.trusted.Contains(addrOf(addr)) }

// client returns the first address of forwarded, read from the right, that is not a trusted proxy. The
// lines of X-Forwarded-For are read as one list. An element that is not an address ends the search: the
// client is then the last trusted proxy, since only it vouches for the elements to the left. If there
// is no element, the client is peer. At most maxHops elements are read.
func (p *Proxy) client(peer netip.Addr, forwarded []string) netip.Addr {
	client, hops := peer, 0
	for i := len(forwarded) - 1; i >= 0; i-- {
		for rest, more := forwarded[i], true; more; hops++ {
			if hops == maxHops {
				return client
			}
			var last string
			if at := strings.LastIndexByte(rest, ','); at >= 0 {
				rest, last = rest[:at], rest[at+1:]
			} else {
				last, more = rest, false
			}
			addr, ok := forwardedAddr(strings.Trim(last, " \t"))
			if !ok {
				return client
			}
			client = addr
			if !p.trusted.Contains(addr) {
				return client
			}
		}
	}
	return client
}

// maxHops is the maximum number of trusted proxies that a request comes through. A longer list is invented.
const maxHops = 64

// forwardedAddr parses an element of X-Forwarded-For. Some proxies add the port.
func forwardedAddr(s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	if err != nil {
		withPort, err := netip.ParseAddrPort(s)
		if err != nil {
			return netip.Addr{}, false
		}
		addr = withPort.Addr()
	}
	return addr.Unmap().WithZone(""), true
}
