package rule

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/gaissmai/bart"
)

// A NetworkSet is a named set of networks. Rules match client addresses against it or, if it assigns labels to
// its networks, count by label. The longest network that contains an address determines its label.
type NetworkSet struct {
	Name     string
	File     string         // the file with the networks; empty if they are in the rules file
	Prefixes []netip.Prefix // as listed; nil if they have labels

	table bart.Table[string] // labels, or empty strings
}

// Add adds a network, with a label unless that is empty. It returns false if s already had the network.
// It must not be called once s is part of a [Set].
func (s *NetworkSet) Add(prefix netip.Prefix, label string) bool {
	if label == "" {
		s.Prefixes = append(s.Prefixes, prefix)
	}
	before := s.table.Size()
	s.table.Insert(prefix, label)
	return s.table.Size() > before
}

// All yields each network with its label.
func (s *NetworkSet) All() iter.Seq2[netip.Prefix, string] { return s.table.All() }

// addr returns an address with the given label.
func (s *NetworkSet) addr(label string) (netip.Addr, bool) {
	for prefix := range s.All() {
		if found, _ := s.table.Lookup(prefix.Addr()); found == label {
			return prefix.Addr(), true
		}
	}
	return netip.Addr{}, false
}

// A prefixError says why a text or a prefix is not a network.
type prefixError struct{ problem, hint string }

func (e *prefixError) Error() string { return e.problem }

func (e *prefixError) Hint() string { return e.hint }

// ParsePrefix parses a network, or an address as a network of one address. IPv4 networks written as IPv6
// (::ffff:192.0.2.0/120) become IPv4. Its errors have a method Hint, which says what to write instead.
func ParsePrefix(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	if !strings.Contains(text, "/") {
		var addr netip.Addr
		if addr, err = netip.ParseAddr(text); addr.Zone() == "" {
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
	}
	if err != nil || !prefix.IsValid() {
		return netip.Prefix{}, &prefixError{"is not a network",
			"write a network such as 192.0.2.0/24 or 2001:db8::/32, or one address"}
	}
	if prefix, err = Unmap(prefix); err != nil {
		return netip.Prefix{}, err
	}
	if masked := prefix.Masked(); masked != prefix {
		return netip.Prefix{}, &prefixError{"is an address within a network",
			fmt.Sprintf("write %v for the network, %v for the address", masked, prefix.Addr())}
	}
	return prefix, nil
}

// Unmap returns an IPv4-mapped IPv6 prefix as an IPv4 prefix, and any other prefix unchanged; lookups unmap
// addresses in the same way. If prefix also contains other IPv6 addresses, it returns an error like those of
// ParsePrefix.
func Unmap(prefix netip.Prefix) (netip.Prefix, error) {
	switch addr := prefix.Addr(); {
	case !addr.Is4In6():
		return prefix, nil
	case prefix.Bits() < 96:
		return netip.Prefix{}, &prefixError{"begins like an IPv4 network written as IPv6, but is larger",
			"write IPv4 networks as 192.0.2.0/24, or as ::ffff:192.0.2.0/120 with at least 96 bits"}
	default:
		return netip.PrefixFrom(addr.Unmap(), prefix.Bits()-96), nil
	}
}

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

// ClientPrefix says how many leading bits of an address identify a client.
type ClientPrefix struct {
	IPv4 int // 1 to 32; if zero, 32
	IPv6 int // 1 to 128; if zero, 64

	// NAT64 lists prefixes of translators besides 64:ff9b::/96. It may be nil.
	NAT64 *[]netip.Prefix
}

// wellKnown is the prefix of translators from IPv6 to IPv4 that needs no configuration (RFC 6052).
var wellKnown = netip.MustParsePrefix("64:ff9b::/96")

// Unmap returns the IPv4 address in addr, an IPv6 address in which one is embedded: in ::ffff:0:0/96, or after the
// prefix of a translator (NAT64, RFC 6052). It returns other addresses unchanged.
func (p ClientPrefix) Unmap(addr netip.Addr) netip.Addr {
	if addr = addr.Unmap(); !addr.Is6() {
		return addr
	}
	if wellKnown.Contains(addr) {
		return embedded(addr, wellKnown.Bits())
	}
	if p.NAT64 != nil {
		for _, prefix := range *p.NAT64 {
			if prefix.Contains(addr) {
				return embedded(addr, prefix.Bits())
			}
		}
	}
	return addr
}

// embedded returns the IPv4 address after the first bits of addr, without byte 8, which is reserved.
func embedded(addr netip.Addr, bits int) netip.Addr {
	var v4 [4]byte
	from, bytes := bits/8, addr.As16()
	for i := range v4 {
		if from == 8 {
			from++
		}
		v4[i] = bytes[from]
		from++
	}
	return netip.AddrFrom4(v4)
}

// ParseNAT64 parses the prefix of a translator.
func ParseNAT64(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil || prefix.Addr().Is4() || prefix.Masked() != prefix ||
		!slices.Contains([]int{32, 40, 48, 56, 64, 96}, prefix.Bits()) {
		return prefix, errors.New("must be a translator's prefix of 32, 40, 48, 56, 64 or 96 bits, such as 2001:db8:64::/96")
	}
	return prefix, nil
}

// Client returns the address that identifies the client with the address addr. See [Request.Client].
func (p ClientPrefix) Client(addr netip.Addr) netip.Addr {
	client, _ := p.client(p.Unmap(addr))
	return client
}

// client returns the first address of the network of addr, and the length of the network, or 0 if it is
// the default.
func (p ClientPrefix) client(addr netip.Addr) (netip.Addr, uint8) {
	bits, usual := p.IPv6, 64
	if addr.Is4() {
		bits, usual = p.IPv4, 32
	}
	if bits = cmp.Or(bits, usual); bits == usual && addr.Is4() {
		return addr, 0
	}
	prefix, err := addr.Prefix(bits)
	if err != nil {
		return addr, 0 // no address, or too many bits, which the check of the options rules out
	}
	if bits == usual {
		bits = 0
	}
	return prefix.Addr(), uint8(bits)
}
