package mix

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"time"
)

// A drawer draws the addresses of spread components.
type drawer struct {
	v4, v6  netip.Prefix   // what networks of components without addresses are drawn from
	taken   []netip.Prefix // networks to avoid
	clients []netip.Addr   // of the legitimate clients
	used    map[netip.Addr]bool
}

// use adds the address of a legitimate client.
func (d *drawer) use(a netip.Addr) {
	d.clients = append(d.clients, a)
	d.used[clientOf(a)] = true
}

// useAll adds the addresses of a component's clients, unless it is an attack.
func (d *drawer) useAll(c *component) {
	if c.Attack {
		return
	}
	for client := range c.Clients {
		d.use(c.addr(client))
	}
}

// clientOf returns the address that identifies a client. For IPv6, it is the first of its /64.
func clientOf(a netip.Addr) netip.Addr {
	p, _ := a.Prefix(clientBits(a))
	return p.Addr()
}

// draw draws the networks of c and sets the addresses of its clients. Shared networks are those of
// random legitimate clients; the others contain no legitimate client.
func (d *drawer) draw(c *component, random stream) error {
	k, space := c.params, c.networks
	if space == nil {
		space = []netip.Prefix{d.v4}
		if k.prefix > 32 {
			space = []netip.Prefix{d.v6}
		}
	}
	theirs := map[netip.Prefix]bool{} // networks of legitimate clients, and drawn ones; false if drawn
	var candidates []netip.Addr       // legitimate clients of the same family
	for _, a := range d.clients {
		if p, err := a.Prefix(k.prefix); err == nil && a.Is4() == space[0].Addr().Is4() {
			theirs[p] = true
			candidates = append(candidates, a)
		}
	}
	shared := int(float64(k.shared*float64(k.networks)) + 0.5)
	if len(d.clients) == 0 {
		shared = 0 // the mix is meant for Over, which provides the clients
	}
	if shared > len(theirs) {
		return fmt.Errorf("cannot share %d networks of length %d: legitimate clients are in only %d", shared, k.prefix,
			len(theirs))
	}
	var networks []netip.Prefix
	width, key := bits.Len(uint(max(len(candidates), 1)-1)), random.next()
	for i := uint64(0); len(networks) < shared; i++ {
		if at := permute(i, width, key); at < uint64(len(candidates)) {
			p, _ := candidates[at].Prefix(k.prefix)
			if theirs[p] {
				networks, theirs[p] = append(networks, p), false
			}
		}
	}
	for tries := 100*k.networks + 10_000; uint64(len(networks)) < k.networks; tries-- {
		if tries == 0 {
			return fmt.Errorf("%v do not contain %d free networks of length %d", space, k.networks, k.prefix)
		}
		p := network(space, k.prefix, &random)
		_, known := theirs[p]
		if !known && !slices.ContainsFunc(d.taken, p.Overlaps) {
			networks, theirs[p] = append(networks, p), false
		}
	}
	d.taken = append(d.taken, networks...)
	return d.populate(c, networks, random.next())
}

// populate assigns addresses in networks, in turn, to the clients of c. They are unique, except that
// all clients of a network that is a single address share it.
func (d *drawer) populate(c *component, networks []netip.Prefix, key uint64) error {
	c.addrs = make([]netip.Addr, c.Clients)
	next := make([]uint64, len(networks)) // by network, the next address to try
	for client := range c.Clients {
		n := client % uint64(len(networks))
		p, width := networks[n], IndexBits(networks[n])
		for taken := true; taken; next[n]++ {
			if width > 0 && next[n] == 1<<width {
				return fmt.Errorf("%v has too few free addresses for its share of %d clients", p, c.Clients)
			}
			a := Within(p, permute(next[n], width, Scramble(key^n)), Scramble(key^client))
			c.addrs[client], taken = a, width > 0 && d.used[clientOf(a)]
		}
		d.used[clientOf(c.addrs[client])] = true
	}
	return nil
}

// network draws a network of the given prefix length in space.
func network(space []netip.Prefix, length int, random *stream) netip.Prefix {
	var sum uint64
	for _, p := range space {
		sum += 1 << (length - p.Bits())
	}
	i := random.below(sum)
	for _, p := range space {
		n := uint64(1) << (length - p.Bits())
		if i < n {
			return netip.PrefixFrom(Within(p, i<<(clientBits(p.Addr())-length), 0), length).Masked()
		}
		i -= n
	}
	panic("mix: no network")
}

// Over returns a mix of the attacks of m, to be laid over a log that begins at start and whose
// clients have the addresses in clients. It draws the networks of spread attacks anew, depending on
// the seed: shared ones from the networks of clients, others from the addresses of the component
// or, if it has none, from all public ones.
func (m *Mix) Over(start time.Time, clients []netip.Addr) (*Mix, error) {
	over := &Mix{Seed: m.Seed, Requests: m.Requests, start: start.UnixMicro(), duration: m.duration}
	d := &drawer{v4: public4, v6: public6, taken: slices.Clone(reserved), used: map[netip.Addr]bool{}}
	for _, a := range clients {
		d.use(a)
	}
	for _, c := range m.components {
		if !c.Attack {
			continue
		}
		if c.Kind == spread {
			if err := d.draw(&c, stream(Scramble(m.Seed)^c.key)); err != nil {
				return nil, fmt.Errorf("mix: %s: %w", c.Name, err)
			}
		}
		over.components = append(over.components, c)
	}
	if over.components == nil {
		return nil, errors.New("mix: no component is an attack")
	}
	return over, nil
}
