package mix

// Checks and defaults that need the whole file.

import (
	"cmp"
	"net/netip"
	"slices"
)

func (r *reader) complete() {
	for _, d := range r.drafts {
		r.completeTimes(d)
		if d.Kind, d.Attack = d.word.name, d.word.attack; d.attack != nil {
			d.Attack = *d.attack
		}
		switch d.kinds {
		case 0:
			r.fail(d.place, "give it one of "+enumerate(kindNames(), "and"), "this component does nothing")
		case 1:
			r.completeLooks(d)
			r.countClients(d)
		default:
			r.fail(d.place, "make a component of each", "this component is of %d kinds", d.kinds)
		}
	}
	if len(r.errs) == 0 {
		r.assign()
	}
}

func (r *reader) completeTimes(d *draft) {
	whole := r.mix.duration
	if d.until == nil {
		d.to = whole
	}
	switch {
	case d.to > whole:
		r.fail(d.until, "the duration of the mix is "+formatDuration(whole), "this component ends after the mix")
	case d.from >= d.to:
		r.fail(cmp.Or(d.since, d.until, d.place), "from and to are counted from the start of the mix, which lasts "+formatDuration(whole), "this component ends before it begins")
	}
}

// countClients sets the number of clients of a component; a flood has more than requests.
func (r *reader) countClients(d *draft) {
	if d.Clients = d.kind.clients(); d.Clients > 0 {
		return
	}
	flood := d.kind.(*randomKeys)
	expected := float64(flood.total.n) / flood.total.per.Seconds() * (d.to - d.from).Seconds()
	d.Clients = uint64(float64(expected*(1.1+d.swing.depth))) + 1000
	if d.clientsOf != nil {
		r.fail(d.clientsOf, "leave clients_of out", "every request of random_keys has its own client")
	}
}

// assign assigns clients and their addresses to the components.
func (r *reader) assign() {
	var taken pool
	for _, d := range r.drafts {
		for _, p := range d.networks {
			if other, free := taken.overlapping(p); !free {
				r.fail(d.addresses, "use clients_of for the same clients in two components", "%v overlaps %v of another component", p, other)
			}
			taken.taken = append(taken.taken, p)
		}
	}
	for _, d := range r.drafts {
		if d.clientsOf != nil {
			continue
		}
		if d.networks == nil {
			d.networks = r.free(d, &taken)
		}
		d.block = &block{networks: d.networks, key: hash(d.Name)}
		if n := d.block.capacity(); d.networks != nil && n < d.Clients {
			r.fail(cmp.Or(d.addresses, d.place), "give it larger networks", "there are %d addresses for %d clients", n, d.Clients)
		}
	}
	r.number()
	for _, d := range r.drafts {
		if d.clientsOf != nil {
			r.share(d)
		}
	}
}

// number numbers the clients: first those that may return, then those of floods.
func (r *reader) number() {
	var next uint64
	for _, flood := range []bool{false, true} {
		for _, d := range r.drafts {
			if d.clientsOf == nil && (d.kind.clients() == 0) == flood {
				d.First = next
				next += d.Clients
			}
		}
	}
}

// free returns networks for a component without addresses.
func (r *reader) free(d *draft, taken *pool) []netip.Prefix {
	whole := pool4
	if d.kind.clients() == 0 {
		whole = pool6
	}
	p, err := taken.take(whole, d.Clients)
	if err != nil {
		r.fail(d.place, "write addresses: [2001:db8::/32], or another network", "%v", err)
		return nil
	}
	return []netip.Prefix{p}
}

// share gives d the clients of the component in its clients_of.
func (r *reader) share(d *draft) {
	name, ok := r.string(d.clientsOf, "clients_of")
	if !ok {
		return
	}
	at := slices.IndexFunc(r.drafts, func(o *draft) bool { return o.Name == name })
	switch {
	case at < 0:
		var all []string
		for _, o := range r.drafts {
			all = append(all, o.Name)
		}
		r.fail(d.clientsOf, didYouMean(name, all), "there is no component %s", quote(name))
		return
	case r.drafts[at].kind.clients() == 0:
		r.fail(d.clientsOf, "name a component of another kind", "the clients of %s never return", quote(name))
		return
	case r.drafts[at].clientsOf != nil:
		r.fail(d.clientsOf, "name the component that has the clients", "%s uses the clients of another component", quote(name))
		return
	case d.addresses != nil:
		r.fail(d.addresses, "leave addresses out", "the clients of another component have addresses already")
	}
	o := r.drafts[at]
	if d.Clients > o.Clients {
		r.fail(d.clientsOf, "use at most as many", "%s has only %d clients", quote(name), o.Clients)
	}
	d.First, d.block = o.First, o.block
}
