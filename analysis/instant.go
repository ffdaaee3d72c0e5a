package analysis

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/client"
	"github.com/edgelimit/edge/analysis/exact"
	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

// An instantPoP decides like a single node that knows every count and every record before the next request
// arrives. It refuses the same requests as a Simulation without lag and losses, but keeps the counts of a key in
// its own table instead of a limiter and a shard. It decides each request twice, with separate mitigations: by
// the nodes' estimate and by exact counts.
//
// Several of them can share the requests of a log, so that each key is in one of them.
type instantPoP struct {
	rules         *rule.Set
	client        rule.ClientPrefix
	first         int // the first way in which it decides
	place         int // index of its first decision in replayed.decided
	requests      requests
	clients       *keyStates              // of rules that count by the client alone
	groups        []*keyStates            // of all rules; clients is the first
	of            []member                // by the index of the rule
	plans         map[*rule.Rule]*member  // rules with overridden limits
	countsRefused bool                    // a rule counts refused requests
	sheds         bool                    // a rule sheds
	exceeded      map[netip.Addr]struct{} // clients whose requests, passed or not, exceeded a limit of a per-client rule; nil if clients share no keys
	matched       []*rule.Rule
	next          [decidedAtOnce]prepared
	keys          []requestKey // of next
	ruleKeys      []ruleKey    // of next
	key           [256]byte
	fetched       uint64 // meaningless: see fetch

	sums      []ruleSums // by the index of the rule
	demand    []*demand  // by the index of the rule; nil if not requested
	mitigated mitigations
}

// ruleSums are the numbers of requests that a rule matched and counted.
type ruleSums struct{ matched, counted uint64 }

// A member is the place of a rule in a group.
type member struct {
	*rule.Rule
	group  *keyStates
	place  int // in the group's keyUntils
	from   int // the place of its first limit in the group's limitStates
	limits []counter.Limit
	width  int8
}

// setRule makes m the member for r.
func (m *member) setRule(r *rule.Rule) {
	m.Rule, m.limits, m.width = r, nil, int8(r.Width())
	for _, l := range r.Limits {
		m.limits = append(m.limits, l.Counted())
	}
}

// A prepared request is ready to be decided.
type prepared struct {
	*replayed
	listed rule.Access
	keys   [2]int // from, to, in instantPoP.keys
	rules  [2]int // in instantPoP.ruleKeys
}

// A requestKey is a key of a request in a group.
type requestKey struct {
	group *keyStates
	key   accesslog.Client
	hash  uint64
	rules uint8     // rules that count the request under this key, one bit each
	times *fewTimes // found by fetch
	sent  *fewTimes // the same in group.sent
}

// A ruleKey is a key of a request for one rule.
type ruleKey struct {
	rule *member
	at   int // in instantPoP.keys
}

// The ways in which an instantPoP decides.
const (
	byExactCounts = iota
	byNodesEstimate
	ways
)

// tickLength is the resolution at which nodes count, in microseconds: a request counts as if it came at the
// start of its tick, which may be in the previous sub-window. If sub-windows last whole seconds, nodes have
// ticks of a second, which give the same counts: a second then lies in one sub-window.
const tickLength = 10_000

// A keyUntil is the end of a key's mitigation, in each way.
type keyUntil [ways]int64

// A limitState holds the counts of a key for one limit, in each way.
type limitState struct {
	counter.Windows[int64, uint64]
	log exact.Log
}

// newInstantPoP returns a PoP that decides by exact counts and by the estimate, or by the estimate only. It writes
// its decisions from the given place on.
func newInstantPoP(client rule.ClientPrefix, rules *rule.Set, place int, exact bool) *instantPoP {
	all := rules.Rules()
	p := &instantPoP{
		rules: rules, client: client, place: place, requests: requests{fields: rules.ReadsFields()}, clients: newKeyStates(never), // they are counted at the end
		of: make([]member, len(all)), plans: map[*rule.Rule]*member{}, sums: make([]ruleSums, len(all)), mitigated: newMitigations(rules),
	}
	if !exact {
		p.first = byNodesEstimate
	}
	p.groups = append(p.groups, p.clients)
	for i, r := range all {
		m := &p.of[i]
		m.setRule(r)
		p.countsRefused = p.countsRefused || r.CountsMitigated()
		p.sheds = p.sheds || r.Action == rule.Shed
		if exact && m.width > 0 && p.exceeded == nil {
			p.exceeded = map[netip.Addr]struct{}{}
		}
		if m.group = p.clients; !isByClient(r) || len(p.clients.rules) == maxRules {
			m.group = newKeyStates(0)
			p.groups = append(p.groups, m.group)
		}
		m.group.add(m)
		plans, _ := rules.Overridden(r)
		for _, plan := range plans {
			other := *m
			other.setRule(plan)
			p.plans[plan] = &other
			m.group.bound(&other)
		}
	}
	if p.exceeded != nil {
		for _, g := range p.groups {
			if len(g.rules) > 0 && g.rules[0].width == 0 {
				g.sent = g.alike()
				p.groups = append(p.groups, g.sent)
			}
		}
	}
	return p
}

// isByClient reports whether the client alone determines the key of r.
func isByClient(r *rule.Rule) bool {
	return len(r.Characteristics) == 1 && r.Characteristics[0].Kind == rule.IP && r.Overrides == ""
}

// decideAll decides up to decidedAtOnce requests of the log in order, and counts those that pass.
func (p *instantPoP) decideAll(requests []*replayed) {
	for _, g := range p.groups {
		g.age(requests[0].now, requests[len(requests)-1].now)
	}
	p.keys, p.ruleKeys = p.keys[:0], p.ruleKeys[:0]
	for i, r := range requests {
		q := &p.next[i]
		q.keys[0], q.rules[0] = len(p.keys), len(p.ruleKeys)
		p.prepare(q, r)
		q.keys[1], q.rules[1] = len(p.keys), len(p.ruleKeys)
	}
	p.fetch()
	for i, r := range requests {
		decided := p.decide(&p.next[i])
		copy(r.decided[p.place:], decided[p.first:])
	}
}

// prepare finds the keys of a request.
func (p *instantPoP) prepare(q *prepared, r *replayed) {
	req := p.requests.at(&r.entry, r.addr)
	req.Canonicalize(p.client)
	q.replayed, q.listed = r, p.rules.Access(req.Addr)
	if p.place == 0 {
		r.path = req.Path
	}
	first := len(p.keys)
	p.keys = append(p.keys, requestKey{group: p.clients, key: r.client, hash: r.hash})
	if q.listed != rule.Unlisted {
		return
	}
	p.matched = p.rules.Match(&req, p.matched[:0])
	for _, base := range p.matched {
		m := &p.of[base.Index]
		if m.group == p.clients {
			p.sums[base.Index].matched++
			p.add(q, m, first)
			continue
		}
		keys := base.Keys(p.key[:0], &req)
		for i := range keys.Len() {
			m := m
			if by := p.rules.Override(base, keys.At(i)); by != base {
				m = p.plans[by]
			}
			key := accesslog.Client(secret.Tag(keys.At(i)))
			p.keys = append(p.keys, requestKey{group: m.group, key: key, hash: client.Hash(&key)})
			p.add(q, m, len(p.keys)-1)
		}
		p.sums[base.Index].matched += uint64(min(keys.Len(), 1))
	}
}

// add records that the ith key is a key of m, and whether m counts the request under it.
func (p *instantPoP) add(q *prepared, m *member, i int) {
	p.ruleKeys = append(p.ruleKeys, ruleKey{m, i})
	if !counts(m.Rule, q.entry.Status) {
		return
	}
	k := &p.keys[i]
	k.rules |= 1 << m.place
	if p.demand != nil {
		demanded(p.demand[m.Index].Of(k.hash, &k.key), m.Rule, q.now)
	}
}

// fetch finds the states of the keys. It reads them for many requests together, so that cache misses overlap.
func (p *instantPoP) fetch() {
	fetched := p.fetched
	for i := range p.keys {
		k := &p.keys[i]
		fetched += uint64(k.group.touch(k.hash))
	}
	for i := range p.keys {
		k := &p.keys[i]
		if k.times = k.group.get(&k.key, k.hash); k.group.sent != nil {
			k.sent = k.group.sent.get(&k.key, k.hash)
		}
	}
	for i := range p.keys {
		fetched += uint64(p.keys[i].times.n)
	}
	for i := range p.keys {
		if s := p.keys[i].times.state; s != nil {
			fetched += uint64(s.untils[0][0])
			for l := range s.limits {
				fetched += uint64(s.limits[l].Index)
			}
		}
	}
	if p.first == byExactCounts {
		for i := range p.keys {
			if s := p.keys[i].times.state; s != nil {
				for l := range s.limits {
					fetched += uint64(s.limits[l].log.Newest())
				}
			}
		}
	}
	p.fetched = fetched
}

// decide decides a request, and counts it if it passes.
func (p *instantPoP) decide(q *prepared) (decided [ways]outcome) {
	switch q.listed {
	case rule.Allowed:
		return [ways]outcome{{verdict: limit.Allowed}, {verdict: limit.Allowed}}
	case rule.Denied:
		return [ways]outcome{{verdict: limit.Denied}, {verdict: limit.Denied}}
	}
	passes := 0
	for way := p.first; way < ways; way++ {
		if decided[way] = p.look(q, way); decided[way].by == 0 {
			passes++
		}
	}
	if passes > 0 || p.sheds {
		p.note(q, passes > 0, passes == ways-p.first)
	}
	for way := p.first; way < ways; way++ {
		if by := decided[way].by; by == 0 || p.countsRefused {
			p.countAll(q, way, by)
		}
	}
	if p.exceeded != nil {
		p.countSent(q)
	}
	return decided
}

// countSent counts a request under its client's own keys, whether it passes or not, and records the client if a limit is
// exceeded.
func (p *instantPoP) countSent(q *prepared) {
	for i := q.keys[0]; i < q.keys[1]; i++ {
		k := &p.keys[i]
		if k.sent == nil || k.rules == 0 || k.sent.state == nil && k.sent.add(q.now, k.rules, k.group.sent) {
			continue
		}
		if k.sent.state == nil {
			p.expand(k.group.sent, k.sent, byNodesEstimate)
		}
		for _, r := range p.ruleKeys[q.rules[0]:q.rules[1]] {
			if r.at == i && k.rules&(1<<r.rule.place) != 0 && p.count(byNodesEstimate, r.rule, k.sent.state, q.now, nil, true) {
				p.exceeded[q.network] = struct{}{}
			}
		}
	}
}

// note adds a request to the fewTimes of its keys. If there is no room for more, a key gets a state, in which
// the request is not yet counted. All keys get states if the request is not treated the same in each way.
func (p *instantPoP) note(q *prepared, passes, same bool) {
	for i := q.keys[0]; i < q.keys[1]; i++ {
		k := &p.keys[i]
		if !passes && !k.group.sheds {
			continue // none of its rules counts the request
		}
		if k.rules != 0 && k.times.state == nil && !(same && k.times.add(q.now, k.rules, k.group)) {
			p.expand(k.group, k.times, p.first)
		}
	}
}

// expand creates a state for a key from its times, for the ways from first on. The times exceed no limit.
func (p *instantPoP) expand(g *keyStates, times *fewTimes, first int) {
	few, s := *times, g.newState()
	*times = fewTimes{state: s}
	for i := range few.n {
		for _, m := range g.rules {
			if few.rules[i]&(1<<m.place) == 0 {
				continue
			}
			for way := first; way < ways; way++ {
				p.count(way, m, s, few.base+int64(few.after[i]), nil, false)
			}
		}
	}
}

// countAll counts a request under its keys that are not mitigated, unless it is refused, and under mitigated
// keys whose rule has CountWhileMitigated. Rules that shed count requests that no narrower rule refuses: see
// [limit.Decision]. by is that of the outcome.
func (p *instantPoP) countAll(q *prepared, way int, by int8) {
	var last *member // the keys of a member are adjacent
	refused := by > 0
	for _, r := range p.ruleKeys[q.rules[0]:q.rules[1]] {
		k := &p.keys[r.at]
		if k.rules&(1<<r.rule.place) == 0 {
			continue
		}
		s := k.times.state
		if s == nil && refused {
			continue
		}
		if s != nil {
			if r.rule.Action == rule.Shed {
				if refused && r.rule.width >= by {
					continue
				}
			} else if mitigated := q.now < s.untils[r.rule.place][way]; mitigated && !r.rule.CountWhileMitigated || refused && !mitigated {
				continue
			}
			few := false
			if r.rule.MinClients > 1 {
				clients := &s.clients[r.rule.place][way]
				clients.add(r.rule, q)
				few = clients.n() < r.rule.MinClients
			}
			p.count(way, r.rule, s, q.now, &k.key, few)
		}
		if base := &p.of[r.rule.Index]; base != last {
			if last = base; way == byNodesEstimate {
				p.sums[r.rule.Index].counted++
			}
		}
	}
}

// look returns the decision that follows from the mitigations of the request's keys, with the precedence of [limit.Decision].
func (p *instantPoP) look(q *prepared, way int) (o outcome) {
	var by *rule.Rule
	var until int64
	for _, k := range p.ruleKeys[q.rules[0]:q.rules[1]] {
		r, s := k.rule.Rule, p.keys[k.at].times.state
		if s == nil {
			continue
		}
		end := s.untils[k.rule.place][way]
		if end <= q.now || r.Action == rule.Shed && !k.rule.sheds(way, s, &p.keys[k.at].key, q) {
			continue
		}
		if r.Action != rule.Log && (o.by == 0 || k.rule.width < o.by) {
			o.by = k.rule.width + 1
		}
		switch {
		case by == nil, r.Action > by.Action, r.Action == by.Action && (end > until || end == until && r.Index <= by.Index):
			by, until = r, end
		}
	}
	switch {
	case by == nil:
		return outcome{verdict: limit.Passed}
	case by.Action == rule.Log:
		return outcome{verdict: limit.Logged, rule: by, until: until}
	}
	return outcome{verdict: limit.Blocked, by: o.by, rule: by, until: until}
}

// count counts a request under a key, and mitigates the key if a limit is exceeded: until the
// rule's timeout is over and every limit is back at its threshold. It reports whether one is exceeded.
// few is set if the key has too few clients to be mitigated.
func (p *instantPoP) count(way int, m *member, s *state, now int64, key *accesslog.Client, few bool) (over bool) {
	back := now
	for i := range m.limits {
		s, l := &s.limits[m.from+i], &m.limits[i]
		if way == byExactCounts {
			if !s.log.Exceeds(m.CostOf(1), l.Threshold, now, l.Period) {
				continue
			}
			if over = true; m.Action == rule.Shed {
				back = max(back, now+l.Period) // requests below the threshold pass, whenever the mitigation ends
			} else {
				back = max(back, s.log.Back(l.Threshold, l.Period))
			}
			continue
		}
		index, elapsed := counter.WindowAt(now, l.Period)
		s.Roll(index)
		s.Cur = l.Count(s.Cur, m.CostOf(1), elapsed-elapsed%tickLength)
		if l.Over(s.Prev, s.Cur, elapsed) {
			over = true
			back = max(back, now-elapsed+l.Back(s.Prev, s.Cur, elapsed))
		}
	}
	if !over || few {
		return over
	}
	until := max(back, now+m.MitigationTimeout.Microseconds())
	if end := s.untils[m.place][way]; now < end {
		if until = back; time.Duration(back-end)*time.Microsecond < async.MinProlonged(m.Rule, time.Duration(end-now)*time.Microsecond) {
			return over
		}
	}
	until = min(until, now+mitigation.MaxLifetime.Microseconds())
	s.untils[m.place][way] = until
	switch {
	case way != byNodesEstimate:
	case m.CountsMitigated():
		k := counter.Key(*key)
		binary.LittleEndian.PutUint32(k[:], binary.LittleEndian.Uint32(k[:])^uint32(m.Index)) // rules may share keys here
		p.mitigated.extend(k, m.Index, now, until)
	default:
		p.mitigated.ended(m.Index, now, until)
	}
	return over
}
