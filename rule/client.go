package rule

import (
	"errors"
	"net/netip"
	"slices"
)

// ClientPrefix says how many leading bits of an address identify a client.
type ClientPrefix struct {
	IPv4 int // 1 to 32; if zero, 32
	IPv6 int // 1 to 128; if zero, 64

	// NAT64 lists prefixes of translators besides 64:ff9b::/96. It may be nil.
	NAT64 *[]netip.Prefix
}

// wellKnown is the prefix of translators from IPv6 to IPv4 that needs no configuration (RFC 6052).
var wellKnown = netip.MustParsePrefix("64:ff9b::/96")

// Unmap returns the IPv4 address in addr, an IPv6 address in which one is embedded: in ::ffff:0:0/96, or behind the
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

// embedded returns the IPv4 address behind the first bits of addr, without byte 8, which is reserved.
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
	if bits == 0 {
		bits = usual
	}
	if bits == usual && addr.Is4() {
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
