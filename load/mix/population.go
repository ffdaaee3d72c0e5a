package mix

import (
	"net/netip"
	"slices"
)

// The public addresses, except for reserved ones.
var (
	public4  = netip.MustParsePrefix("0.0.0.0/0")
	public6  = netip.MustParsePrefix("2000::/3")
	reserved = func() (list []netip.Prefix) {
		for _, p := range []string{"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
			"172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
			"192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3", "2001:db8::/32"} {
			list = append(list, netip.MustParsePrefix(p))
		}
		return list
	}()
)

// A Population assigns addresses to the clients of a log that does not identify clients by address.
// They are public IPv4 addresses, the same for every log. Most clients are alone in their /24, and a
// few /24s have many clients: a new client picks a random earlier one and joins its /24, but if that
// one was the first there, only in 3 of 100 cases. Each /24 joins a /16 in the same way, in 2 of 100
// cases. (These are Pitman–Yor processes with the discounts 0.97 and 0.98, which fit a public sample
// log: 1,753 clients in 1,474 /24s and 1,276 /16s, the largest /24 with 46.) The zero value is ready
// for use, for up to eight million clients.
type Population struct {
	random  stream
	clients memberships
	subnets memberships
	sizes   map[uint32]int  // clients of each /24
	used    map[uint32]bool // addresses
}

// A membership records that a client joined a /24, or a /24 a /16.
type membership struct {
	network uint32 // the joined one
	first   bool   // the member was the first of the network
}

// memberships are in the order in which they began.
type memberships []membership

// join returns the network that the next member joins, if any. pct is the probability, in percent,
// of joining if the member picked was the first of its network.
func (m memberships) join(random *stream, pct uint64) (network uint32, joins bool) {
	if len(m) == 0 {
		return 0, false
	}
	with := m[random.below(uint64(len(m)))]
	return with.network, !with.first || random.below(100) < pct
}

// Next returns the address of the next client.
func (p *Population) Next() netip.Addr {
	if p.sizes == nil {
		p.random, p.sizes, p.used = newStream(0, "clients of a log"), map[uint32]int{}, map[uint32]bool{}
	}
	subnet, joins := p.clients.join(&p.random, 3)
	if !joins || p.sizes[subnet] == 254 {
		subnet, joins = p.subnet(), false
	}
	host := uint32(0)
	for free := false; !free; free = !p.used[host] {
		host = subnet<<8 | uint32(1+p.random.below(254))
	}
	p.used[host] = true
	p.sizes[subnet]++
	p.clients = append(p.clients, membership{subnet, !joins})
	return addr4(host)
}

// subnet returns a /24 without clients.
func (p *Population) subnet() uint32 {
	network, joins := p.subnets.join(&p.random, 2)
	for try := 0; ; try++ {
		if joins = joins && try < 1000; !joins {
			network = uint32(p.random.below(1 << 16))
		}
		subnet := network<<8 | uint32(p.random.below(1<<8))
		if p.sizes[subnet] == 0 && !slices.ContainsFunc(reserved, netip.PrefixFrom(addr4(subnet<<8), 24).Overlaps) {
			p.subnets = append(p.subnets, membership{network, !joins})
			return subnet
		}
	}
}

func addr4(a uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(a >> 24), byte(a >> 16), byte(a >> 8), byte(a)})
}
