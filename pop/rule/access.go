package rule

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Access says whether a client is on the allow or deny list.
type Access uint8

const (
	Unlisted Access = iota
	Allowed         // neither counted nor mitigated
	Denied          // always refused
)

// Access looks up addr in the allow and deny lists. The longest prefix wins.
func (s *Set) Access(addr netip.Addr) Access {
	access, _ := s.access.Lookup(addr.Unmap())
	return access
}

// Entry returns the entry of the lists that determines the access of addr. It does not allocate.
func (s *Set) Entry(addr netip.Addr) (netip.Prefix, Access) {
	addr = addr.Unmap()
	entry, access, _ := s.access.LookupPrefixLPM(netip.PrefixFrom(addr, addr.BitLen()))
	return entry, access
}

// Entries returns the entries of the allow and deny lists.
func (s *Set) Entries() iter.Seq2[netip.Prefix, Access] { return s.access.All() }

// Listed returns the numbers of networks on the allow list and on the deny list.
func (s *Set) Listed() (allowed, denied int) {
	for _, access := range s.Entries() {
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
	place
}

func (r *reader) accessList(n *yaml.Node, what string, access Access) {
	for _, each := range r.List(n, what, "write [192.0.2.0/24]") {
		if r.Full() {
			return
		}
		if prefix, ok := r.network(each, "an entry of "+what); ok {
			r.access = append(r.access, listed{prefix, access, r.place(each)})
		}
	}
}

// A ValueError says why a text is not a value, such as a network.
type ValueError struct{ problem, hint string }

func (e *ValueError) Error() string { return e.problem }

// Hint returns what to write instead.
func (e *ValueError) Hint() string { return e.hint }

// hintOf returns the hint of err, or "" if it is not a [ValueError].
func hintOf(err error) string {
	if wrong, ok := errors.AsType[*ValueError](err); ok {
		return wrong.hint
	}
	return ""
}

// ParsePrefix parses a network, or an address as a network of one address. IPv4 networks written as IPv6
// (::ffff:192.0.2.0/120) become IPv4. Its errors are [ValueError].
func ParsePrefix(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	if !strings.Contains(text, "/") {
		var addr netip.Addr
		if addr, err = netip.ParseAddr(text); addr.Zone() == "" {
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
	}
	if err != nil || !prefix.IsValid() {
		return netip.Prefix{}, &ValueError{"is not a network", "write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address"}
	}
	if prefix, err = Unmap(prefix); err != nil {
		return netip.Prefix{}, err
	}
	if masked := prefix.Masked(); masked != prefix {
		return netip.Prefix{}, &ValueError{"is an address within a network", fmt.Sprintf("write %v for the network, %v for the address", masked, prefix.Addr())}
	}
	return prefix, nil
}

// Unmap returns prefix with IPv4 written as IPv6 turned into IPv4, as addresses are for lookups. If prefix
// also has other IPv6 addresses, the error is a [ValueError].
func Unmap(prefix netip.Prefix) (netip.Prefix, error) {
	switch addr := prefix.Addr(); {
	case !addr.Is4In6():
		return prefix, nil
	case prefix.Bits() < 96:
		return netip.Prefix{}, &ValueError{"begins like an IPv4 network written as IPv6, but is larger", "write IPv4 networks as 192.0.2.0/24, or ::ffff:192.0.2.0/120, of at least 96 bits"}
	default:
		return netip.PrefixFrom(addr.Unmap(), prefix.Bits()-96), nil
	}
}
