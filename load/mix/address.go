package mix

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
)

// clientBits returns the length of the prefix of a that identifies a client: limiters treat each IPv6 /64 as one.
func clientBits(a netip.Addr) int {
	if a.Is4() {
		return 32
	}
	return 64
}

// IndexBits returns how many bits distinguish the clients of a network, at most 48. It is negative for networks that
// are smaller than a client.
func IndexBits(p netip.Prefix) int { return min(clientBits(p.Addr())-p.Bits(), 48) }

// capacity returns the number of clients for which c has addresses.
func (c *component) capacity() uint64 {
	least := uint64(1) << 48
	for _, p := range c.networks {
		least = min(least, 1<<IndexBits(p))
	}
	return least * uint64(len(c.networks))
}

// addr returns the address of a client, numbered from 0. Clients alternate between the networks and
// are scattered within each, so that consecutive clients do not have adjacent addresses.
func (c *component) addr(client uint64) netip.Addr {
	if c.addrs != nil {
		return c.addrs[client]
	}
	n := uint64(len(c.networks))
	p := c.networks[client%n]
	return Within(p, permute(client/n, IndexBits(p), c.key), Scramble(c.key^client))
}

// Within returns the ith address of p or, for IPv6, the address of the ith /64 with the given lower half.
func Within(p netip.Prefix, i, lower uint64) netip.Addr {
	first := p.Masked().Addr()
	if first.Is4() {
		a := first.As4()
		return addr4(binary.BigEndian.Uint32(a[:]) | uint32(i))
	}
	out := first.As16()
	binary.BigEndian.PutUint64(out[:8], binary.BigEndian.Uint64(out[:8])|i)
	binary.BigEndian.PutUint64(out[8:], lower)
	return netip.AddrFrom16(out)
}

// permute maps i to another number of width bits. It is a permutation that depends on key.
func permute(i uint64, width int, key uint64) uint64 {
	if width == 0 {
		return 0
	}
	mask := uint64(1)<<width - 1
	for range 3 {
		i = (i*(key|1) + key>>7) & mask
		i ^= i >> (width/2 + 1)
		key = Scramble(key)
	}
	return i & mask
}

// Networks for components without addresses: IPv4, or IPv6 for floods, which need more.
var (
	pool4 = netip.MustParsePrefix("10.0.0.0/8")
	pool6 = netip.MustParsePrefix("2001:db8::/32")
)

// free returns a network in whole that has addresses for n clients and overlaps none of taken: the first one after the
// place that addresses selects.
func free(taken []netip.Prefix, whole netip.Prefix, n, addresses uint64) (netip.Prefix, error) {
	last, all := clientBits(whole.Addr()), IndexBits(whole)
	width := bits.Len64(max(n, 1) - 1)
	if width > all {
		return netip.Prefix{}, fmt.Errorf("%v has no room for %d clients", whole, n)
	}
	for _, at := range []uint64{permute(addresses, all, addresses), 0} {
		for at < 1<<all {
			p := netip.PrefixFrom(Within(whole, at, 0), last-width).Masked()
			other := slices.IndexFunc(taken, p.Overlaps)
			if other < 0 {
				return p, nil
			}
			// Skip the larger of the two.
			at |= 1<<(last-min(p.Bits(), taken[other].Bits())) - 1
			at++
		}
	}
	return netip.Prefix{}, fmt.Errorf("%v has no room left for %d clients", whole, n)
}
