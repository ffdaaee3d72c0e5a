package rule

import (
	"fmt"
	"net/netip"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Access is what the allow and deny lists say of a client.
type Access uint8

const (
	Unlisted Access = iota
	Allowed         // neither counted nor mitigated
	Denied          // always refused
)

// Access looks addr up in the allow and deny lists; the longest prefix wins.
func (s *Set) Access(addr netip.Addr) Access {
	if s.access == nil {
		return Unlisted
	}
	access, _ := s.access.Lookup(addr.Unmap())
	return access
}

// Listed returns how many networks are on the allow and on the deny list.
func (s *Set) Listed() (allowed, denied int) {
	if s.access == nil {
		return 0, 0
	}
	for _, access := range s.access.All() {
		if access == Allowed {
			allowed++
		} else {
			denied++
		}
	}
	return allowed, denied
}

// listed is an entry of the allow or deny list.
type listed struct {
	prefix netip.Prefix
	access Access
	file   string
	place
}

func (r *reader) accessList(n *yaml.Node, what string, access Access) {
	nodes, _ := r.list(n, what, "write [192.0.2.0/24]")
	for _, each := range nodes {
		if r.full() {
			return
		}
		text, ok := r.text(each, "an entry of "+what)
		if !ok {
			continue
		}
		prefix, ok := parsePrefix(text)
		if masked := prefix.Masked(); !ok {
			r.fail(each, "write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address", "%s is no network", quote(text))
		} else if masked != prefix {
			r.fail(each, fmt.Sprintf("write %v for the network, %v for the address", masked, prefix.Addr()), "%s is an address inside of a network", text)
		} else {
			r.access = append(r.access, listed{prefix, access, r.file, r.place(each)})
		}
	}
}

// parsePrefix reads a network, or an address as the network of it alone. IPv4 networks
// written as IPv6 become IPv4.
func parsePrefix(s string) (netip.Prefix, bool) {
	if !strings.Contains(s, "/") {
		addr, err := netip.ParseAddr(s)
		if err != nil || addr.Zone() != "" {
			return netip.Prefix{}, false
		}
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), true
	}
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, false
	}
	if prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	return prefix, true
}
