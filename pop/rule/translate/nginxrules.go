package translate

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// This file makes rules of what nginx.go has read.

// rules makes the rules.
func (n *nginx) rules() error {
	for _, s := range n.servers {
		if err := n.addUses(s, nil); err != nil {
			return err
		}
		for _, l := range s.locations {
			if !l.own {
				continue
			}
			if !l.ok {
				n.uncovered(l.position, "the limits of location %s, whose paths rules cannot match: %s", strings.Join(l.args(), " "), sources(l.level.limits))
				for _, d := range l.level.limits {
					if _, err := n.newUse(d, l.level); err != nil {
						return err
					}
				}
				continue
			}
			if err := n.addUses(s, l); err != nil {
				return err
			}
		}
	}
	for _, z := range n.order {
		uses := n.merged(z)
		for _, u := range uses {
			n.addRule(u, len(uses) > 1)
		}
		if !z.used {
			n.uncovered(z.position, "no limit_req uses the zone %s", z.name)
		}
	}
	return nil
}

// addUses adds the limits of a location, or those of the server that its locations inherit.
func (n *nginx) addUses(s *server, l *location) error {
	limits := s.level
	var paths, except, logs []string
	if l != nil {
		limits = l.level
		if !slices.Equal(l.patterns, []string{"/*"}) {
			paths = l.patterns
		}
		if l.broader {
			logs = append(logs, fmt.Sprintf("location %s (%v) matches fewer paths than the rule", strings.Join(l.args(), " "), l.position))
		}
	}
	if len(limits.limits) == 0 {
		return nil
	}
	for _, m := range s.locations {
		if m == l || m.kind == "@" || same(m.level, limits) || l == nil && !m.own || l != nil && slices.Contains(l.parents, m) || !wins(m, l) {
			continue
		}
		if m.ok {
			except = append(except, without(m.patterns, except)...)
		} else {
			logs = append(logs, fmt.Sprintf("nginx handles what location %s matches (%v) elsewhere, without this limit; rules cannot except such paths", strings.Join(m.args(), " "), m.position))
		}
	}
	var named []string
	for _, o := range n.servers {
		if o == s || same(o.level, limits) {
			continue
		}
		for _, host := range without(o.hosts, append(slices.Clip(named), s.hosts...)) {
			if len(s.hosts) == 0 || slices.ContainsFunc(s.hosts, func(h string) bool { return strings.HasPrefix(h, "*") && strings.HasSuffix(host, h[1:]) }) {
				named = append(named, host)
			}
		}
		if len(s.hosts) == 0 && len(o.strange) > 0 {
			logs = append(logs, fmt.Sprintf("nginx handles hosts like %s elsewhere (%v), without this limit; rules cannot except such hosts", strings.Join(o.strange, " "), o.position))
		}
	}
	for _, d := range limits.limits {
		u, err := n.newUse(d, limits)
		if err != nil {
			return err
		}
		u.hosts, u.paths, u.except, u.exceptHosts, u.logs = s.hosts, paths, except, named, append(slices.Clip(logs), s.logs...)
		n.uses = append(n.uses, u)
	}
	return nil
}

func same(a, b level) bool { return sources(a.limits) == sources(b.limits) && a.dry == b.dry }

// wins reports whether nginx may choose location m for a request that l matches too; if l is
// nil, the server's limits.
func wins(m, l *location) bool {
	regex := func(l *location) bool { return l.kind == "~" || l.kind == "~*" }
	if l == nil {
		return true
	}
	within := func() bool {
		return slices.ContainsFunc(l.patterns, func(p string) bool {
			return slices.ContainsFunc(m.patterns, func(q string) bool { return p != q && samePattern(p, q) })
		})
	}
	switch {
	case l.kind == "=":
		return false
	case regex(m) && !m.ok:
		return l.kind != "^~"
	case regex(l):
		return m.kind != "" && within()
	case regex(m) && l.kind == "^~":
		return false
	}
	return within()
}

// merged returns the uses of a zone, those together that one rule can say.
func (n *nginx) merged(z *zone) (all []*use) {
	alike := func(a, b *use) bool {
		return a.burst == b.burst && a.queue == b.queue && a.status == b.status && a.dry == b.dry && slices.Equal(a.logs, b.logs) && slices.Equal(a.exceptHosts, b.exceptHosts)
	}
	for _, u := range n.uses {
		if u.zone != z {
			continue
		}
		i := slices.IndexFunc(all, func(o *use) bool {
			return alike(o, u) && slices.Equal(o.hosts, u.hosts) && (slices.Equal(o.paths, u.paths) || len(o.except)+len(u.except) == 0)
		})
		if i < 0 {
			i = slices.IndexFunc(all, func(o *use) bool {
				return alike(o, u) && slices.Equal(o.paths, u.paths) && slices.Equal(o.except, u.except)
			})
		}
		if i < 0 {
			copied := *u
			copied.places = []string{u.position.String()}
			all = append(all, &copied)
			continue
		}
		o := all[i]
		o.hosts, o.paths = union(o.hosts, u.hosts), union(o.paths, u.paths)
		o.except = append(slices.Clip(o.except), without(u.except, o.except)...)
		o.places = append(o.places, u.position.String())
	}
	return all
}

// addRule adds the rule of a use. shared says that other rules count in the same zone.
func (n *nginx) addRule(u *use, shared bool) {
	z := u.zone
	if z.key.unknown != "" {
		n.uncovered(u.position, "%s: %s", u.source(), z.key.unknown)
		return
	}
	if z.key.never {
		n.uncovered(u.position, "%s: its key is always empty, so nginx counts nothing", u.source())
		return
	}
	r := u.draft
	r.id, r.from = z.name, []string{fmt.Sprintf("%s (%v), %s (%v)", u.source(), strings.Join(u.places, ", "), z.source(), z.position)}
	r.methods, r.characteristics, r.limits = z.key.methods, z.key.characteristics, z.limits(u.burst)
	r.notes, r.logs = append(z.difference(u), z.key.notes...), append(slices.Clip(u.logs), z.key.logs...)
	for _, m := range []struct {
		into *[]string
		also []string
	}{{&r.hosts, z.key.hosts}, {&r.paths, z.key.paths}} {
		if len(*m.into) == 0 {
			*m.into = m.also
		} else if len(m.also) > 0 {
			r.notes = append(r.notes, fmt.Sprintf("the zone counts only %s", strings.Join(m.also, ", ")))
			r.logs = append(r.logs, "rules cannot match both the zone's map and the location")
		}
	}
	if shared {
		r.notes = append(r.notes, fmt.Sprintf("nginx counts in zone %s together what several rules here count apart", z.name))
	}
	if u.dry {
		r.logs = append(r.logs, "limit_req_dry_run is on")
	}
	for _, e := range z.key.exempt {
		list(&n.allow, e.prefix, e.why+" exempts it from zone "+z.name+"; allow exempts it from all rules and from deny")
	}
	n.Translation.rules = append(n.Translation.rules, &r)
}

// limits returns the limits that a rate and a burst are. nginx lets one request through, burst
// more at once, and the rate besides: at most burst + 1 + rate × period in any period. Of a client
// that nginx never refuses, the estimate of a node never exceeds that.
func (z *zone) limits(burst uint64) []limit { return leaky(z.rate, z.perMinute, burst) }

func leaky(rate uint64, perMinute bool, burst uint64) []limit {
	second, minute := rate, 60*rate
	if perMinute {
		second, minute = (rate+59)/60, rate
	}
	limits := []limit{{second + burst + 1, time.Second}, {minute + burst + 1, time.Minute}}
	if limits[0].threshold >= limits[1].threshold {
		return limits[1:]
	}
	return limits
}

// difference says how a limit in nginx differs from that of a rule.
func (z *zone) difference(u *use) []string {
	unit := "second"
	if z.perMinute {
		unit = "minute"
	}
	text := fmt.Sprintf("nginx lets %d at once through, and then %d a %s; edge lets %s through", u.burst+1, z.rate, unit, spokenLimits(z.limits(u.burst)))
	switch {
	case u.burst == 0:
		every := time.Second
		if z.perMinute {
			every = time.Minute
		}
		text = fmt.Sprintf("without a burst, nginx refuses each request that comes less than %v after the one before; edge lets %s through, however close",
			(every / time.Duration(z.rate)).Round(time.Millisecond), spokenLimits(z.limits(0)))
	case u.queue == "":
		text += fmt.Sprintf("; nginx makes requests of the burst wait (no nodelay), edge passes them at once, so the origin may get %d together", u.burst+1)
	case u.queue != "nodelay":
		text += fmt.Sprintf("; nginx makes requests of the burst wait beyond %s, edge passes them at once", u.queue)
	}
	return []string{text}
}

func spokenLimits(limits []limit) string {
	var list []string
	for _, l := range limits {
		list = append(list, fmt.Sprintf("%d in any %s", l.threshold, strings.TrimPrefix(l.period.String(), "1")))
	}
	text := strings.Join(list, " and ")
	return strings.NewReplacer("any s", "any second", "any m0s", "any minute").Replace(text)
}

// differences names the differences that concern all rules.
func (n *nginx) differences() {
	if len(n.Translation.rules) == 0 {
		return
	}
	n.commonDifferences()
	if len(n.trusted) > 0 {
		n.note("nginx takes the client's address from proxies at %s (set_real_ip_from): start the nodes with trusted_proxy set to these. Edge reads X-Forwarded-For, or the PROXY protocol, and no other header.", strings.Join(n.trusted, ", "))
	}
}

// commonDifferences says how edge differs from both nginx and ingress-nginx.
func (t *Translation) commonDifferences() {
	t.note("nginx counts on each machine alone, edge for all nodes of a PoP together. If several nginx share the traffic, a client gets through them what it gets through all nodes here, as often as there are machines: raise thresholds accordingly.")
	t.note("While a client sends too much, nginx still lets its rate through, evenly. Edge refuses its requests until its estimate is back at the threshold, then lets them pass again.")
	t.note("A client that nginx never refuses is never refused by these thresholds: see docs/import.md.")
	for _, r := range t.rules {
		if slices.ContainsFunc(r.characteristics, func(c characteristic) bool { return c.text == "ip" }) {
			t.note("nginx counts each IPv6 address apart; edge counts a /64 as one client, unless ipv6_prefix says otherwise.")
		}
		if r.status == 503 {
			t.note("Refused requests get 503, as nginx answers by default. Without response, edge answers 429, which tells clients more.")
		}
		if len(r.paths)+len(r.except) > 0 {
			t.note("nginx compares paths exactly. Edge also counts other spellings that some origins take for the same path: letter case, a final slash, ;parameters (docs/rules.md).")
		}
	}
}
