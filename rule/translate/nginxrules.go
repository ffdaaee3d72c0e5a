package translate

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/rule"
)

// makeRules makes the rules from the servers and zones.
func (n *nginx) makeRules() {
	uses := map[*zone][]*use{}
	for _, s := range n.servers {
		hosts, logs, ok := n.hostsOf(s)
		if !ok {
			continue
		}
		for _, l := range s.locations {
			for _, u := range n.usesOf(s, l) {
				u.match[byHost], u.except[byHost] = slices.Clip(s.hosts), hosts
				u.logs = append(u.logs, logs...)
				uses[u.zone] = append(uses[u.zone], u)
			}
		}
	}
	for _, z := range n.order {
		// One rule for all paths of a host, then one for all hosts.
		joined := join(join(uses[z], byPath), byHost)
		for _, u := range joined {
			n.addRule(u, len(joined) > 1)
		}
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
	if len(n.layouts) == 1 {
		return nil
	}
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

// usesOf returns the limits of l with their paths, unless the location around it has the same.
func (n *nginx) usesOf(s *server, l *location) (uses []*use) {
	if l.level.counts == "" || l.around != nil && l.around.level.counts == l.level.counts && !s.apart(l) {
		return nil
	}
	if !l.ok {
		n.uncovered(l, "the limits of %s, whose paths rules cannot match: %s", l.source(), sources(l.level.limits))
		return nil
	}
	made := draft{reading: "resolved", anyCase: l.kind == "~*"}
	if !slices.Equal(l.patterns, []string{"/*"}) {
		made.match[byPath] = l.patterns
	}
	made.logs.AddIf(l.broader, "%v matches fewer paths than the rule", l)
	// What is within the paths of l counts with it if it has the same limits.
	within, others := []*location{l}, []*location(nil)
	for i := 0; i < len(within); i++ {
		made.logs = append(made.logs, within[i].logs...)
		for _, c := range within[i].children {
			if c.level.counts == l.level.counts {
				within = append(within, c)
			} else {
				others = append(others, c)
			}
		}
	}
	earlier := true
	for _, m := range s.regexes {
		earlier = earlier && m != l
		if m != l && m.level.counts != l.level.counts && l.kind != "=" && l.kind != "^~" && (earlier || !l.isRegex()) {
			others = append(others, m)
		}
	}
	for _, m := range s.locations {
		if l.isRegex() && m.level.counts != l.level.counts && (m.kind == "=" || m.kind == "^~") {
			others = append(others, m)
		}
	}
	for _, m := range others {
		if !m.ok {
			made.logs.Add("nginx handles requests for %v without this limit; rules cannot except such paths", m)
			continue
		}
		for _, q := range m.patterns {
			among := func(p string) bool { return p != q && includes(p, q) }
			within := func(p string) bool { return includes(q, p) }
			beside := func(p string) bool { return overlaps(p, q) }
			switch {
			case slices.ContainsFunc(l.patterns, among),
				slices.ContainsFunc(l.patterns, beside) && !slices.ContainsFunc(l.patterns, within):
				made.except[byPath] = append(made.except[byPath], q)
				made.notes.AddIf(m.broader || m.kind == "~*" && !made.anyCase,
					"%v matches other paths than this rule excepts", m)
			case slices.ContainsFunc(l.patterns, within):
				made.logs.Add("nginx handles such requests in %v", m)
			}
		}
	}
	for _, d := range l.level.errors {
		made.notes.AddIf(slices.Contains(d.args, strconv.Itoa(cmp.Or(l.level.status, 503))),
			"%v replaces nginx's answer to refused requests; edge ignores it", d)
	}
	made.except[byPath], made.logs = unique(made.except[byPath]), unique(made.logs)
	for _, u := range l.level.limits {
		here := *u
		here.draft = made
		here.status, here.dry = cmp.Or(u.zone.status, l.level.status, 503), l.level.dry
		here.places = []string{u.position.String()}
		here.notes, here.logs = slices.Clip(made.notes), slices.Clip(made.logs)
		uses = append(uses, &here)
	}
	return uses
}

// apart reports whether the rule of the location around l, which has the same limits, may not count all requests of l.
func (s *server) apart(l *location) bool {
	if l.isRegex() {
		return slices.ContainsFunc(l.patterns, func(p string) bool {
			return p[0] == '*' || s.longest(strings.TrimSuffix(p, "*")).level.counts != l.level.counts
		})
	}
	excepted := func(m *location) bool {
		return m.level.counts != l.level.counts && slices.ContainsFunc(m.patterns, func(q string) bool {
			return slices.ContainsFunc(l.patterns, func(p string) bool { return includes(q, p) || overlaps(q, p) })
		})
	}
	return (l.kind == "=" || l.kind == "^~") && slices.ContainsFunc(s.regexes, excepted)
}

// join joins uses that differ only in a list of their matches. Paths with exceptions stay apart.
func join(uses []*use, index int) (joined []*use) {
	first := map[string]*use{}
	for _, u := range uses {
		same := u.match
		if index != byPath || len(u.except[byPath]) == 0 {
			same[index] = nil
		}
		id := fmt.Sprintf("%q %q %q %q %d %t %s %d %t", same, u.except, u.logs, u.notes, u.burst, u.anyCase, u.queue,
			u.status, u.dry)
		o := first[id]
		if o == nil {
			first[id], joined = u, append(joined, u)
			continue
		}
		o.places, o.match[index] = append(o.places, u.places...), union(o.match[index], u.match[index])
	}
	for _, u := range joined {
		u.match[index], u.places = unique(u.match[index]), unique(u.places)
	}
	return joined
}

// addRule adds the rule of a use. shared reports whether other rules have the same zone.
func (n *nginx) addRule(u *use, shared bool) {
	z := u.zone
	why := z.key.unknown
	if z.key.never {
		why = "the key is always empty, so nginx counts nothing"
	}
	if why != "" {
		n.uncovered(u, "%s: %s", u.source(), why)
		return
	}
	r := u.draft
	r.id = z.name
	r.from = fmt.Sprintf("%s (%v), %s (%v)", u.source(), strings.Join(u.places, ", "), z.source(), z.position)
	r.characteristics, r.limits = z.key.characteristics, u.thresholds()
	r.notes = slices.Concat([]string{u.difference()}, u.notes, z.key.notes)
	r.logs = append(slices.Clip(u.logs), z.key.logs...)
	r.headerName, r.except[byHeader] = z.key.headerName, z.key.except[byHeader]
	for i, only := range z.key.match {
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
	r.notes.AddIf(shared, "nginx counts all requests of zone %s together; these rules count them separately", z.name)
	r.logs.AddIf(u.dry, "limit_req_dry_run is on")
	for _, e := range z.key.exempt {
		list(&n.allow, e.prefix, e.why+" exempts it from zone "+z.name+"; allow exempts it from all rules and from deny")
	}
	n.Translation.rules = append(n.Translation.rules, &r)
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
		rate := (z.rate*uint64(period) + uint64(z.per) - 1) / uint64(z.per)
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
	edge, pause := "edge allows "+strings.Join(list, " and "), u.zone.per/time.Duration(u.zone.rate)
	text := fmt.Sprintf("nginx allows %d requests at once and then %d per %s; %s",
		u.burst+1, u.zone.rate, unitNames[u.zone.per], edge)
	switch {
	case u.zone.window:
		return "ingress-nginx has the same estimate over two windows, but asks memcached before each request; " +
			"edge counts after it, so slightly more may pass"
	case u.burst == 0:
		return fmt.Sprintf("without a burst, nginx refuses requests that arrive less than %v after the previous one; %s, "+
			"however close together", pause.Round(time.Millisecond), edge)
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
	if slices.ContainsFunc(t.rules, func(r *draft) bool { return r.countsBy("ip") }) {
		t.general.Add("%s counts each IPv6 address separately; edge counts a /64 as one client, unless ipv6_prefix is set.",
			program)
	}
}
