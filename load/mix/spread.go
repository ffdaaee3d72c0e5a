package mix

import (
	"net/netip"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/internal/strictyaml"
)

// spread is clients in many networks that send a few requests each.
type spread struct {
	bent
	members
	total    rate   // of all
	requests uint64 // of each client
	networks uint64
	prefix   int     // their length
	shared   float64 // share of the networks that legitimate clients use as well
}

func (k *spread) generator(set *setting) generator {
	turn := uint64(0)
	return &atRandom{
		stream: set.stream, mean: newMean(ticksOf(k.total.per), k.total.n), most: k.n,
		client: func(*stream) uint64 {
			if turn++; turn > k.n*k.requests {
				return k.n // all have sent their requests
			}
			return (turn - 1) % k.n
		},
	}
}

func readSpread(r *reader, node *yaml.Node) kind {
	k := &spread{members: members{1}, total: rate{1, time.Second}, requests: 1, networks: 1, prefix: 24}
	r.Mapping(node, "spread", "", []strictyaml.Field{r.count(&k.n), r.rateOf("rate", &k.total),
		{Name: "requests", Read: func(n *yaml.Node) { k.requests = r.integer(n, "requests", 1, 1e6) }},
		{Name: "networks", Need: "networks: 200, or how many the clients are in", Read: func(n *yaml.Node) {
			k.networks = r.integer(n, "networks", 1, maxClients)
		}},
		{Name: "prefix", Read: func(n *yaml.Node) { k.prefix = int(r.integer(n, "prefix", 8, 64)) }},
		{Name: "shared", Read: func(n *yaml.Node) { k.shared = r.fraction(n, "shared", 0, 1) }},
	})
	r.bound(node, k.total, 1)
	return k
}

// completeSpread checks the prefix and the addresses of a spread component.
func (r *reader) completeSpread(d *draft, k *spread) {
	if d.clientsOf != nil {
		r.Fail(d.clientsOf, "leave clients_of out", "spread has clients of its own")
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
			r.Fail(d.addresses, "make a component of each", "the addresses of spread are IPv4 and IPv6")
			return
		case p.Bits() > k.prefix || p.Addr().Is4() && k.prefix > 32:
			r.Fail(d.addresses, "choose another prefix", "%v has no networks of length %d", p, k.prefix)
		}
	}
}
