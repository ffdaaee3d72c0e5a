package translate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/rule"
)

// makeRules makes the rules from the servers and zones.
func (n *nginx) makeRules() {
	made := map[*zone][]*draft{}
	for _, s := range n.servers {
		except, logs, ok := n.hostsOf(s)
		if !ok {
			continue
		}
		for _, l := range s.locations {
			switch {
			case l.level.counts == "" || l.covered:
			case !l.ok:
				n.uncovered(l, "the limits of %s, whose paths rules cannot match: %s", l.source(), sources(l.level.limits))
			default:
				for _, u := range l.level.limits {
					r := l.rule
					r.match[byHost], r.except[byHost] = slices.Clip(s.hosts), except
					r.logs = slices.Concat(r.logs, logs)
					if n.addLimit(&r, u, l.level) {
						made[u.zone] = append(made[u.zone], &r)
					}
				}
			}
		}
	}
	for _, z := range n.order {
		// One rule for all paths of a host, then one for all hosts.
		rules := join(join(made[z], byPath), byHost)
		for _, r := range rules {
			r.notes.AddIf(len(rules) > 1,
				"nginx counts all requests of zone %s together; these rules count them separately", z.name)
		}
		n.rules = append(n.rules, rules...)
		if !z.used {
			n.uncovered(z, "no limit_req uses the zone %s", z.name)
		}
	}
	if len(n.rules) > 0 {
		n.commonDifferences()
	}
}

// hostsOf returns the hosts that the rules of s must except, and how they differ from nginx. It removes hosts
// that other servers have. ok is false if nginx sends no request to s, or counts none there.
func (n *nginx) hostsOf(s *server) (except []string, logs prose.Phrases, ok bool) {
	if !slices.ContainsFunc(s.locations, func(l *location) bool { return l.level.counts != "" }) {
		return nil, nil, false
	}
	first := slices.ContainsFunc(s.sockets, func(k *socket) bool { return k.first == s })
	named := len(s.hosts) > 0
	s.hosts = slices.DeleteFunc(s.hosts, func(h string) bool {
		return !slices.ContainsFunc(s.sockets, func(k *socket) bool { return k.names[h] == s })
	})
	if len(s.hosts) == 0 && !first && len(s.strange) == 0 {
		n.uncovered(s, "the limits of this server: nginx sends all hosts to others that listen at the same address")
		return nil, nil, false
	}
	logs.AddIf(named && len(s.hosts) == 0, "other servers that come first have the names of this one")
	if len(s.hosts) > 0 && first {
		n.general.Add("At an address where nginx listens, the first server, or the default_server, also has all hosts " +
			"that no server names. Its rules count its own hosts alone: remove hosts from them to count all.")
	}
	matched := s.hosts
	if len(matched) == 0 {
		matched = []string{"*"}
	}
	for _, k := range s.sockets {
		for _, h := range matched {
			for _, other := range k.under[h] {
				if k.names[other].layout != s.layout && !slices.Contains(s.hosts, other) {
					except = append(except, other)
				}
			}
		}
		for _, o := range k.servers {
			if len(s.hosts) == 0 && len(o.strange) > 0 && o.layout != s.layout {
				logs.Add("another server (%v) handles hosts like %s without this limit; rules cannot except such hosts", o.position,
					strings.Join(o.strange, " "))
			}
		}
	}
	if o := n.elsewhere(s); o != nil {
		logs.Add("nginx counts these requests only where this server (%v) listens, not where another one (%v) does; edge "+
			"does not distinguish where requests arrive", s.position, o.position)
	}
	return unique(except), append(logs, s.logs...), true
}

// elsewhere returns a server that handles requests to the hosts of s at other sockets, and counts others of
// them. Servers that only redirect are in a note.
func (n *nginx) elsewhere(s *server) *server {
	for _, k := range n.bound {
		if slices.Contains(s.sockets, k) {
			continue
		}
		others := k.servers
		if len(s.hosts) > 0 {
			others = nil
		}
		for _, h := range s.hosts {
			others = append(others, cmp.Or(k.names[h], k.first))
		}
		for _, o := range others {
			if o.returns {
				n.general.Add("nginx does not count requests to servers that answer all of them with return, such as a " +
					"redirect to https. Edge counts them in the rules for the same hosts.")
			} else if o.layout != s.layout {
				return o
			}
		}
	}
	return nil
}

// join joins rules that differ only in a list of their matches.
func join(rules []*draft, index int) (joined []*draft) {
	first := map[string]*draft{}
	for _, r := range rules {
		same := *r
		same.places, same.match[index] = nil, nil
		id := fmt.Sprintf("%#v", same)
		o := first[id]
		switch {
		case o == nil:
			first[id], joined = r, append(joined, r)
			continue
		case len(r.match[index]) == 0:
			o.match[index] = nil
		case len(o.match[index]) > 0: // an empty list means everything
			o.match[index] = append(o.match[index], r.match[index]...)
		}
		o.places = append(o.places, r.places...)
	}
	for _, r := range joined {
		r.match[index], r.places = unique(r.match[index]), unique(r.places)
	}
	return joined
}

// addLimit adds the limit of u to r, the rule of a location. It returns false if no rule can express the key.
func (n *nginx) addLimit(r *draft, u *use, in level) bool {
	z := u.zone
	if z.key.unknown != "" {
		n.uncovered(u, "%s: %s", u.source(), z.key.unknown)
		return false
	}
	r.id, r.from, r.places = z.name, u.source(), []string{u.position.String()}
	r.zone = fmt.Sprintf(", %s (%v)", z.source(), z.position)
	r.status = cmp.Or(z.status, in.status, 503)
	r.characteristics, r.limits = z.key.characteristics, u.thresholds()
	r.notes = slices.Concat([]string{u.difference()}, r.notes, z.key.notes)
	r.logs = slices.Concat(r.logs, z.key.logs)
	if c := r.characteristics[0]; len(r.characteristics) == 1 && c.Skip {
		r.notes.Add("requests without this %s are not counted, as in nginx; unlike nginx, edge counts those with an "+
			"empty one", c.Kind)
	}
	r.headerName = z.key.headerName
	for i, only := range z.key.match {
		r.except[i] = slices.Concat(r.except[i], z.key.except[i])
		if len(r.match[i]) == 0 {
			r.match[i] = only
			if i == byPath && z.key.anyCase && !r.anyCase {
				r.anyCase = true
				r.notes.AddIf(len(r.except[i]) > 0, "like the zone's map, the rule ignores letter case, even in its exceptions")
			}
		} else if len(only) > 0 {
			r.notes.Add("the zone counts only %s", strings.Join(only, ", "))
			r.logs.Add("rules cannot match both the zone's map and the location")
		}
	}
	r.logs.AddIf(in.dry, "limit_req_dry_run is on")
	for _, e := range z.key.exempt {
		list(&n.allow, e.prefix, e.why+" exempts it from zone "+z.name+"; allow exempts it from all rules and from deny")
	}
	return true
}

var unitNames = map[time.Duration]string{time.Second: "second", time.Minute: "minute"}

// thresholds returns the limits that allow what u allows: one request, burst more at once, and the rate of its zone. So
// at most burst + 1 + rate × period pass in any period, and the estimate for a client that nginx never
// refuses never exceeds that.
func (u *use) thresholds() (limits []rule.Limit) {
	z := u.zone
	if z.window {
		return []rule.Limit{{Threshold: z.rate, Period: z.per}}
	}
	for _, period := range []time.Duration{time.Second, time.Minute} {
		rate := (z.rate*uint64(period/time.Second) + uint64(z.per/time.Second) - 1) / uint64(z.per/time.Second)
		limits = append(limits, rule.Limit{Threshold: rate + u.burst + 1, Period: period})
	}
	if limits[0].Threshold >= limits[1].Threshold {
		return limits[1:]
	}
	return limits
}

// difference says how u differs from the limit of a rule.
func (u *use) difference() string {
	list := prose.Texts(u.thresholds(), func(l rule.Limit) string {
		return fmt.Sprintf("%d in any %s", l.Threshold, unitNames[l.Period])
	})
	edge := "edge allows " + strings.Join(list, " and ")
	text := fmt.Sprintf("nginx allows %d requests at once and then %d per %s; %s",
		u.burst+1, u.zone.rate, unitNames[u.zone.per], edge)
	switch {
	case u.zone.window:
		return "ingress-nginx has the same estimate over two windows, but asks memcached before each request; " +
			"edge counts after it, so slightly more may pass"
	case u.burst == 0:
		pause := (u.zone.per.Milliseconds() + int64(u.zone.rate) - 1) / int64(u.zone.rate) // nginx's clock has milliseconds
		return fmt.Sprintf("without a burst, nginx refuses requests that arrive less than %v after the previous one; %s, "+
			"however close together", time.Duration(pause)*time.Millisecond, edge)
	case u.queue == "":
		return fmt.Sprintf("%s; nginx delays requests of a burst (no nodelay) but edge does not, "+
			"so the origin may get %d at once", text, u.burst+1)
	case u.queue != "nodelay":
		return text + "; nginx delays requests of a burst beyond " + u.queue + ", but edge does not"
	}
	return text
}

// commonDifferences records how edge differs from both nginx and ingress-nginx.
func (t *Translation) commonDifferences() {
	t.general.Add("nginx counts on each machine separately; edge counts on all nodes of a PoP together. If several " +
		"machines with nginx share the traffic, a client gets the limit once per machine: raise the thresholds accordingly.")
	t.general.Add("While a client sends too much, nginx keeps passing requests at the configured rate. Edge refuses " +
		"all requests until the estimate is back at the threshold.")
	t.general.Add("These thresholds never refuse a client that nginx never refuses: see docs/import.md.")
	t.noteAddresses("nginx")
	for _, r := range t.rules {
		if r.status == 503 {
			t.general.Add("Refused requests get 503, nginx's default. If response is left out, edge answers 429, which " +
				"tells clients more.")
		}
		if r.reading != "" && r.readsPaths() {
			t.general.Add("Rules compare paths as nginx does. If the origin takes other spellings for the same path, such " +
				"as another letter case, remove path_case, path_trailing_slash, path_parameters and path_reading (docs/paths.md).")
		}
	}
}

// noteAddresses records how another program counts IPv6 addresses, if a rule counts by address.
func (t *Translation) noteAddresses(program string) {
	if slices.ContainsFunc(t.rules, func(r *draft) bool { return r.countsBy(rule.Characteristic{Kind: rule.IP}) }) {
		t.general.Add("%s counts each IPv6 address separately; edge counts a /64 as one client, unless ipv6_prefix is set.",
			program)
	}
}
