package mix

// Checks and defaults that need the whole file.

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/edgelimit/edge/internal/prose"
)

func (r *reader) complete() {
	for _, d := range r.drafts {
		r.completeTimes(d)
		switch d.kinds {
		case 0:
			r.Fail(d.place, "give it one of "+prose.EnumerateAll(kindNames(), "or"), "this component has no kind")
		case 1:
			d.Kind = d.kind.name
			if d.nodes["attack"] == nil {
				d.Attack = d.kind.attack
			}
			if d.kind.aligned && d.swing.period > 0 {
				r.Fail(d.place, "leave diurnal out", "bursts at the edges of windows cannot follow the time of day")
			}
			r.completeLooks(d)
			if d.Clients = d.params.clients; d.Clients == 0 { // a flood has more clients than requests
				rate := d.params.rate
				expected := float64(rate.n) / rate.per.Seconds() * (d.to - d.from).Seconds()
				d.Clients = uint64(float64(expected*(1.1+d.swing.depth))) + 1000
			}
			if d.Kind == spread {
				r.checkSpread(d)
			}
		default:
			r.Fail(d.place, "make a component for each", "this component has %d kinds", d.kinds)
		}
	}
	if len(r.Errs) == 0 {
		r.assign()
	}
}

func (r *reader) completeTimes(d *draft) {
	whole := r.mix.duration
	if d.nodes["to"] == nil {
		d.to = whole
	}
	switch {
	case d.to > whole:
		r.Fail(d.nodes["to"], "the duration of the mix is "+prose.Duration(whole), "this component ends after the mix")
	case d.from >= d.to:
		r.Fail(cmp.Or(d.nodes["from"], d.nodes["to"], d.place),
			"from and to are counted from the start of the mix, which lasts "+prose.Duration(whole),
			"this component ends before it begins")
	}
}

// assign assigns numbers and addresses to the clients of the components. The networks of spread components are drawn
// outside those of the others.
func (r *reader) assign() {
	var spreads, others []*draft
	next := uint64(0)
	for _, d := range r.drafts {
		d.key, d.First = hash(d.Name)^r.addresses, next
		next += d.Clients
		if d.Kind == spread {
			spreads = append(spreads, d)
		} else {
			others = append(others, d)
		}
	}
	var taken []netip.Prefix
	for _, d := range others {
		for _, p := range d.networks {
			if i := slices.IndexFunc(taken, p.Overlaps); i >= 0 {
				r.Fail(d.nodes["addresses"], "give each component its own networks", "%v overlaps %v of another component", p,
					taken[i])
			}
			taken = append(taken, p)
		}
	}
	for _, d := range others {
		if d.networks == nil {
			whole := pool4
			if d.params.clients == 0 {
				whole = pool6
			}
			p, err := free(taken, whole, d.Clients, r.addresses)
			if err != nil {
				r.Fail(d.place, "write addresses: [2001:db8::/32], or another network", "%v", err)
				continue
			}
			d.networks, taken = []netip.Prefix{p}, append(taken, p)
		}
		if n := d.capacity(); n < d.Clients {
			r.Fail(cmp.Or(d.nodes["addresses"], d.place), "give it larger networks", "there are %d addresses for %d clients", n,
				d.Clients)
		}
	}
	if len(r.Errs) > 0 {
		return
	}
	from := &drawer{v4: pool4, v6: pool6, taken: taken, used: map[netip.Addr]bool{}}
	if slices.ContainsFunc(spreads, func(d *draft) bool { return d.params.shared > 0 }) {
		for _, d := range others {
			if d.params.clients > 0 {
				from.useAll(&d.component)
			}
		}
	}
	for _, d := range spreads {
		if err := from.draw(&d.component, stream(d.key)); err != nil {
			r.Fail(cmp.Or(d.nodes["addresses"], d.place), "give it other addresses, or fewer networks or clients", "%v", err)
		} else {
			from.useAll(&d.component)
		}
	}
}

// checkSpread checks the prefix and the addresses of a spread component.
func (r *reader) checkSpread(d *draft) {
	prefix := d.params.prefix
	for _, p := range d.networks {
		switch {
		case p.Addr().Is4() != d.networks[0].Addr().Is4():
			r.Fail(d.nodes["addresses"], "make a component for each", "the addresses of spread are both IPv4 and IPv6")
			return
		case p.Bits() > prefix || p.Addr().Is4() && prefix > 32:
			r.Fail(d.nodes["addresses"], "choose another prefix", "%v has no networks of length %d", p, prefix)
		}
	}
}
