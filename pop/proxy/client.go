package proxy

import (
	"net/netip"
	"strings"
)

// Trusts reports whether addr is that of a trusted proxy.
func (p *Proxy) Trusts(addr netip.AddrPort) bool { return p.trusted.Contains(addrOf(addr)) }

// client returns the first address of forwarded, read from the right, that is no trusted
// proxy. The lines of X-Forwarded-For are read as one list. What is not an address ends the
// search: the last proxy that was trusted is then the client, since it alone vouches for
// what is left of it.
func (p *Proxy) client(peer netip.Addr, forwarded []string) netip.Addr {
	client := peer
	for i := len(forwarded) - 1; i >= 0; i-- {
		for rest, more := forwarded[i], true; more; {
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

// forwardedAddr reads an element of X-Forwarded-For, which some proxies write with a port.
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
