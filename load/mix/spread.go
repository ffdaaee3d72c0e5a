package mix

import "net/netip"

// spread describes clients in many networks that send a few requests each.
type spread struct {
	together
	requests uint64 // of each client
	networks uint64
	prefix   int     // prefix length of the networks
	shared   float64 // fraction of networks that legitimate clients use as well
}

func (k *spread) generator(set *setting) generator {
	turn := uint64(0)
	return atRandom(set, k.rate, k.n, func(*stream) uint64 {
		if turn++; turn > k.n*k.requests {
			return k.n // all have sent their requests
		}
		return (turn - 1) % k.n
	})
}

// completeSpread checks the prefix and the addresses of a spread component.
func (r *reader) completeSpread(d *draft, k *spread) {
	if d.clientsOf != nil {
		r.Fail(d.clientsOf, "leave clients_of out", "spread has its own clients")
	}
	if d.networks == nil {
		d.networks = []netip.Prefix{pool4}
		if k.prefix > 32 {
			d.networks[0] = pool6
		}
	}
	for _, p := range d.networks {
		switch {
		case p.Addr().Is4() != d.networks[0].Addr().Is4():
			r.Fail(d.addresses, "make a component for each", "the addresses of spread are IPv4 and IPv6")
			return
		case p.Bits() > k.prefix || p.Addr().Is4() && k.prefix > 32:
			r.Fail(d.addresses, "choose another prefix", "%v has no networks of length %d", p, k.prefix)
		}
	}
}
