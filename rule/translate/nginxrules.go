package translate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/rule"
)

// rules makes the rules from what nginx.go has read.
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
			logs = append(logs, fmt.Sprintf("nginx handles requests for location %s (%v) without this limit; rules cannot except such paths", strings.Join(m.args(), " "), m.position))
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
			logs = append(logs, fmt.Sprintf("another server (%[2]v) handles hosts like %[1]s without this limit; rules cannot except such hosts", strings.Join(o.strange, " "), o.position))
		}
	}
	for _, d := range limits.limits {
		u, err := n.newUse(d, limits)
		if err != nil {
			return err
		}
		u.match = match{byHost: s.hosts, byPath: paths}
		u.except, u.exceptHosts, u.logs = except, named, append(slices.Clip(logs), s.logs...)
		n.uses = append(n.uses, u)
	}
	return nil
}

func same(a, b level) bool { return sources(a.limits) == sources(b.limits) && a.dry == b.dry }

// wins reports whether nginx may choose location m for a request that l also matches. If l is nil, it
// stands for the server.
func wins(m, l *location) bool {
	regex := func(l *location) bool { return l.kind == "~" || l.kind == "~*" }
	if l == nil {
		return true
	}
	within := func() bool {
		return slices.ContainsFunc(l.patterns, func(p string) bool {
			return slices.ContainsFunc(m.patterns, func(q string) bool { return p != q && includes(p, q) })
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

// merged returns the uses of a zone. It joins those that one rule can express.
func (n *nginx) merged(z *zone) (all []*use) {
	alike := func(a, b *use) bool {
		return a.burst == b.burst && a.queue == b.queue && a.status == b.status && a.dry == b.dry && slices.Equal(a.logs, b.logs) && slices.Equal(a.exceptHosts, b.exceptHosts)
	}
	for _, u := range n.uses {
		if u.zone != z {
			continue
		}
		i := slices.IndexFunc(all, func(o *use) bool {
			return alike(o, u) && slices.Equal(o.match[byHost], u.match[byHost]) && (slices.Equal(o.match[byPath], u.match[byPath]) || len(o.except)+len(u.except) == 0)
		})
		if i < 0 {
			i = slices.IndexFunc(all, func(o *use) bool {
				return alike(o, u) && slices.Equal(o.match[byPath], u.match[byPath]) && slices.Equal(o.except, u.except)
			})
		}
		if i < 0 {
			copied := *u
			copied.places = []string{u.position.String()}
			all = append(all, &copied)
			continue
		}
		o := all[i]
		o.match = match{byHost: union(o.match[byHost], u.match[byHost]), byPath: union(o.match[byPath], u.match[byPath])}
		o.except = append(slices.Clip(o.except), without(u.except, o.except)...)
		o.places = append(o.places, u.position.String())
	}
	return all
}

// addRule adds the rule of a use. shared reports whether other rules have the same zone.
func (n *nginx) addRule(u *use, shared bool) {
	z := u.zone
	if z.key.unknown != "" {
		n.uncovered(u.position, "%s: %s", u.source(), z.key.unknown)
		return
	}
	if z.key.never {
		n.uncovered(u.position, "%s: the key is always empty, so nginx counts nothing", u.source())
		return
	}
	r := u.draft
	r.id, r.from = z.name, []string{fmt.Sprintf("%s (%v), %s (%v)", u.source(), strings.Join(u.places, ", "), z.source(), z.position)}
	r.characteristics, r.limits = z.key.characteristics, bucket{z.rate, z.perMinute, u.burst}.limits()
	r.notes, r.logs = append([]string{z.difference(u)}, z.key.notes...), append(slices.Clip(u.logs), z.key.logs...)
	for i, only := range z.key.match {
		if len(r.match[i]) == 0 {
			r.match[i] = only
		} else if len(only) > 0 {
			r.notes = append(r.notes, fmt.Sprintf("the zone counts only %s", strings.Join(only, ", ")))
			r.logs = append(r.logs, "rules cannot match both the zone's map and the location")
		}
	}
	if shared {
		r.notes = append(r.notes, fmt.Sprintf("nginx counts all requests of zone %s together; these rules count them separately", z.name))
	}
	if u.dry {
		r.logs = append(r.logs, "limit_req_dry_run is on")
	}
	for _, e := range z.key.exempt {
		list(&n.allow, e.prefix, e.why+" exempts it from zone "+z.name+"; allow exempts it from all rules and from deny")
	}
	n.Translation.rules = append(n.Translation.rules, &r)
}

// A bucket is a leaky bucket of nginx: a rate, and the burst that it also allows.
type bucket struct {
	rate      uint64
	perMinute bool
	burst     uint64
}

// limits returns the limits that allow what b allows: one request, burst more at once, and the rate. So
// at most burst + 1 + rate × period pass in any period, and the estimate for a client that nginx never
// refuses never exceeds that.
func (b bucket) limits() []rule.Limit {
	second, minute := b.rate, 60*b.rate
	if b.perMinute {
		second, minute = (b.rate+59)/60, b.rate
	}
	limits := []rule.Limit{{Threshold: second + b.burst + 1, Period: time.Second}, {Threshold: minute + b.burst + 1, Period: time.Minute}}
	if limits[0].Threshold >= limits[1].Threshold {
		return limits[1:]
	}
	return limits
}

// unit returns the unit of the rate, and its name.
func (b bucket) unit() (time.Duration, string) {
	if b.perMinute {
		return time.Minute, "minute"
	}
	return time.Second, "second"
}

// String says how b differs from its limits.
func (b bucket) String() string {
	_, unit := b.unit()
	return fmt.Sprintf("allows %d requests at once and then %d per %s; edge allows %s", b.burst+1, b.rate, unit, b.spokenLimits())
}

func (b bucket) spokenLimits() string {
	var list []string
	for _, l := range b.limits() {
		unit := map[time.Duration]string{time.Second: "second", time.Minute: "minute"}[l.Period]
		list = append(list, fmt.Sprintf("%d in any %s", l.Threshold, unit))
	}
	return strings.Join(list, " and ")
}

// difference says how a limit in nginx differs from that of a rule.
func (z *zone) difference(u *use) string {
	b := bucket{z.rate, z.perMinute, u.burst}
	switch {
	case u.burst == 0:
		unit, _ := b.unit()
		return fmt.Sprintf("without a burst, nginx refuses requests that arrive less than %v after the previous one; edge allows %s, however close together",
			(unit / time.Duration(z.rate)).Round(time.Millisecond), b.spokenLimits())
	case u.queue == "":
		return fmt.Sprintf("nginx %v; nginx delays requests of a burst (no nodelay) but edge does not, so the origin may get %d at once", b, u.burst+1)
	case u.queue != "nodelay":
		return fmt.Sprintf("nginx %v; nginx delays requests of a burst beyond %s, but edge does not", b, u.queue)
	}
	return fmt.Sprintf("nginx %v", b)
}

// differences records the differences that concern all rules.
func (n *nginx) differences() {
	if len(n.Translation.rules) == 0 {
		return
	}
	n.commonDifferences()
	if len(n.trusted) > 0 {
		n.note("nginx takes the client's address from proxies at %s (set_real_ip_from): set trusted_proxy to these on the nodes. Edge reads X-Forwarded-For or the PROXY protocol, and nothing else.", strings.Join(n.trusted, ", "))
	}
}

// commonDifferences records how edge differs from both nginx and ingress-nginx.
func (t *Translation) commonDifferences() {
	t.note("nginx counts on each machine separately; edge counts on all nodes of a PoP together. If several machines with nginx share the traffic, a client gets the limit once per machine: raise the thresholds accordingly.")
	t.note("While a client sends too much, nginx keeps passing requests at the configured rate. Edge refuses all requests until the estimate is back at the threshold.")
	t.note("These thresholds never refuse a client that nginx never refuses: see docs/import.md.")
	t.noteAddresses("nginx")
	for _, r := range t.rules {
		if r.status == 503 {
			t.note("Refused requests get 503, nginx's default. If response is left out, edge answers 429, which tells clients more.")
		}
		if len(r.match[byPath])+len(r.except) > 0 {
			t.note("nginx compares paths exactly. Edge also matches other spellings that some origins treat as the same path: letter case, a trailing slash, ;parameters (docs/rules.md).")
		}
	}
}

// noteAddresses records how another program counts IPv6 addresses, if a rule counts by address.
func (t *Translation) noteAddresses(program string) {
	if slices.ContainsFunc(t.rules, func(r *draft) bool { return r.countsBy("ip") }) {
		t.note("%s counts each IPv6 address separately; edge counts a /64 as one client, unless ipv6_prefix is set.", program)
	}
}
