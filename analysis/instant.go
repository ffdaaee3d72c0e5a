package analysis

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/client"
	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/rule"
)

// An instantPoP decides like a single node that knows every count and every record before the next request
// arrives. It refuses the same requests as a Simulation without lag and losses, but keeps the states of keys in
// its own tables instead of a limiter and a shard. It makes two decisions for each request, with separate
// states: by exact counts and by the nodes' estimate.
//
// Several instantPoPs can share the requests of a log, so that each key is in one of them.
type instantPoP struct {
	rules    *rule.Set
	client   rule.ClientPrefix
	place    int // index of its first decision in replayedRequest.decided
	first    int // the first way in which it decides
	requests requests
	clients  *keyTable              // of rules that count by the client alone
	tables   []*keyTable            // of all rules; clients is the first
	members  []member               // by the index of the rule
	plans    map[*rule.Rule]*member // rules with overridden limits
	// Clients whose requests, passed or not, exceeded a limit of a per-client rule; nil if clients share no keys.
	exceeded  map[netip.Addr]struct{}
	matched   []*rule.Rule
	next      [decidedAtOnce]preparedRequest
	keys      []requestKey // of next
	key       [256]byte
	fetched   uint64   // meaningless: keeps the compiler from dropping reads
	matches   []uint64 // number of requests that each rule matched
	counted   []uint64 // and that it counted
	cold      []uint64 // and that it counted under cold keys alone
	survey    *survey  // nil if there was none
	surveying bool     // the survey is not complete yet
	limits    int      // of all members
	demand    []*demand
	mitigated mitigations
}

// The ways in which an instantPoP keeps states of a key. It makes decisions in the first two.
const (
	byExactCounts = iota
	byNodesEstimate
	byAllSent // counts refused requests too, to find clients that exceed a limit of their own; mitigates nothing
	ways
)

// noStates are the states that all cold keys share.
var noStates keyStates

// decidedAtOnce is the maximum number of requests in a call of decideAll.
const decidedAtOnce = 1 << 6

// A member is a rule with the data that an instantPoP derives from it.
type member struct {
	*rule.Rule
	table  *keyTable
	cell   uint64 // index in the cells of a hash of the survey
	place  int    // in table
	counts int64  // maximum time that a request counts
	few    uint8  // maximum number of requests that cannot exceed a limit
	width  int8
	ways   int // end of the ways in which it has states
}

// A preparedRequest is a request with the states of its keys, ready for decide.
type preparedRequest struct {
	*replayedRequest
	listed rule.Access
	cold   bool         // it has cold keys only, so it passes
	keys   []requestKey // the keys of a rule are adjacent
}

// A requestKey is a key of a request for a rule.
type requestKey struct {
	*member
	key    accesslog.Client
	hash   uint64
	counts bool       // the rule counts the request
	cold   bool       // the key never exceeds a limit
	states *keyStates // set by fetch
}

// newInstantPoP returns a PoP that decides by exact counts and by the estimate, or by the estimate only. It writes
// its decisions to replayedRequest.decided, starting at place.
func newInstantPoP(client rule.ClientPrefix, rules *rule.Set, place int, exact bool) *instantPoP {
	all := rules.Rules()
	p := &instantPoP{
		rules: rules, client: client, place: place, requests: requests{fields: rules.ReadsFields()},
		clients: &keyTable{life: never}, // never forgets: the number of clients is counted at the end
		members: make([]member, len(all)), plans: map[*rule.Rule]*member{}, matches: make([]uint64, len(all)),
		counted: make([]uint64, len(all)), cold: make([]uint64, len(all)), mitigated: newMitigations(rules),
	}
	if !exact {
		p.first = byNodesEstimate
	} else if slices.ContainsFunc(all, func(r *rule.Rule) bool { return r.Width() > 0 }) {
		p.exceeded = map[netip.Addr]struct{}{}
	}
	p.tables = append(p.tables, p.clients)
	for i, r := range all {
		t := p.clients
		if !isByClient(r.Characteristics) || r.Overrides != "" {
			t = new(keyTable)
			p.tables = append(p.tables, t)
		}
		p.members[i] = p.newMember(r, t)
		plans, _ := r.Overridden()
		for _, plan := range plans {
			m := p.newMember(plan, t)
			p.plans[plan] = &m
		}
		t.each++
	}
	for _, t := range p.tables {
		t.age(0, 0) // makes an empty table
	}
	return p
}

// newMember returns the member for r, whose states are the next in t.
func (p *instantPoP) newMember(r *rule.Rule, t *keyTable) member {
	m := member{Rule: r, table: t, cell: uint64(p.limits), place: t.each, few: uint8(len(keyStates{}.after)),
		width: int8(r.Width()), ways: byAllSent}
	p.limits += len(r.Limits)
	if p.exceeded != nil && m.width == 0 {
		m.ways = ways
	}
	for _, l := range r.Limits {
		m.counts, m.few = max(m.counts, 2*l.Period.Microseconds()), uint8(min(uint64(m.few), l.Threshold/r.CostOf(1)))
	}
	if r.MinClients > 1 {
		m.few = 0 // times alone do not show which clients sent the requests
	}
	t.life = max(t.life, m.counts, r.MitigationTimeout.Microseconds())
	return m
}

// isByClient reports whether the client alone determines keys with these characteristics.
func isByClient(list []rule.Characteristic) bool { return len(list) == 1 && list[0].Kind == rule.IP }

// decideAll makes the decisions for up to decidedAtOnce requests of the log, in order, and counts those that pass.
func (p *instantPoP) decideAll(requests []*replayedRequest) {
	for _, t := range p.tables {
		t.age(requests[0].now, requests[len(requests)-1].now)
	}
	p.fetch(p.prepareAll(requests))
	for i, r := range requests {
		if q := &p.next[i]; q.cold {
			p.countCold(q)
		} else {
			decided := p.decide(q)
			copy(r.decided[p.place:], decided[p.first:])
		}
	}
}

// surveyAll counts up to decidedAtOnce requests of the log in the surveys of their rules.
func (p *instantPoP) surveyAll(requests []*replayedRequest) {
	prepared := p.prepareAll(requests)
	for i := range p.keys {
		p.fetched += p.survey.fetch(&p.keys[i])
	}
	for i := range prepared {
		q := &prepared[i]
		for j := range q.keys {
			if k := &q.keys[j]; k.counts {
				p.survey.count(k, q.now)
			}
		}
	}
}

// prepareAll finds the keys of requests.
func (p *instantPoP) prepareAll(requests []*replayedRequest) []preparedRequest {
	p.keys = p.keys[:0]
	var ends [decidedAtOnce]int
	for i, r := range requests {
		p.prepare(&p.next[i], r)
		ends[i] = len(p.keys)
	}
	for i := range p.keys {
		k := &p.keys[i]
		k.cold = p.survey != nil && !p.surveying && p.survey.isCold(k)
	}
	from := 0
	for i, end := range ends[:len(requests)] {
		q := &p.next[i]
		q.keys = p.keys[from:end]
		q.cold = q.cold && !slices.ContainsFunc(q.keys, func(k requestKey) bool { return !k.cold })
		if p.survey != nil {
			q.replayedRequest.cold = q.cold
		}
		from = end
	}
	return p.next[:len(requests)]
}

// prepare finds the keys of a request.
func (p *instantPoP) prepare(q *preparedRequest, r *replayedRequest) {
	req := p.requests.at(&r.entry, r.addr)
	req.Canonicalize(p.client)
	q.replayedRequest, q.listed = r, p.rules.Access(req.Addr)
	if q.cold = q.listed == rule.Unlisted; !q.cold {
		return
	}
	p.matched = p.rules.Match(req, p.matched[:0])
	for _, base := range p.matched {
		m := &p.members[base.Index]
		if m.table == p.clients {
			p.matches[base.Index]++
			p.add(q, m, r.client, r.hash)
			continue
		}
		keys := base.Keys(p.key[:0], req)
		for i := range keys.Len() {
			m := m
			if by := base.Override(keys.At(i)); by != base {
				m = p.plans[by]
			}
			key := accesslog.Client(secret.Tag(keys.At(i)))
			p.add(q, m, key, client.Hash(&key))
		}
		p.matches[base.Index] += uint64(min(keys.Len(), 1))
	}
}

// countCold counts a request that passes because all its keys are cold.
func (p *instantPoP) countCold(q *preparedRequest) {
	counted := -1
	for i := range q.keys {
		k := &q.keys[i]
		if !k.counts {
			continue
		}
		q.waits++
		if k.Index != counted {
			counted = k.Index
			p.cold[counted]++
		}
	}
}

func (p *instantPoP) add(q *preparedRequest, m *member, key accesslog.Client, hash uint64) {
	k := requestKey{member: m, key: key, hash: hash, counts: counts(m.Rule, q.entry.Status)}
	p.keys = append(p.keys, k)
	if p.demand != nil && k.counts && !p.surveying {
		addDemand(p.demand[m.Index].Of(hash, &key), m.Rule, q.now)
	}
}

// fetch finds the states of the keys. It reads them for many requests together, so that cache misses overlap.
func (p *instantPoP) fetch(requests []preparedRequest) {
	for i := range requests {
		p.clients.young.Touch(requests[i].hash)
	}
	for i := range p.keys {
		if k := &p.keys[i]; k.table != p.clients && !k.cold {
			k.table.young.Touch(k.hash)
		}
	}
	for i := range requests {
		q := &requests[i]
		own := p.clients.get(&q.client, q.hash)
		for j := range q.keys {
			k := &q.keys[j]
			switch {
			case k.cold:
				k.states = &noStates
			case k.table != p.clients:
				k.states = &k.table.get(&k.key, k.hash)[k.place]
			default:
				k.states = &own[k.place]
			}
		}
	}
	fetched := p.fetched
	for i := range p.keys {
		fetched += uint64(p.keys[i].states.n)
	}
	for i := range p.keys {
		if all := p.keys[i].states.all; all != nil {
			for way := range all {
				fetched += all[way].Fetch()
			}
		}
	}
	p.fetched = fetched
}

// decide makes both decisions for a request, and counts it if it passes.
func (p *instantPoP) decide(q *preparedRequest) (decided [byAllSent]ruling) {
	switch q.listed {
	case rule.Allowed:
		return [byAllSent]ruling{{verdict: limit.Allowed}, {verdict: limit.Allowed}}
	case rule.Denied:
		return [byAllSent]ruling{{verdict: limit.Denied}, {verdict: limit.Denied}}
	}
	for way := p.first; way < byAllSent; way++ {
		decided[way] = p.look(q, way)
	}
	counted := -1 // the last rule that counted the request
	for i := range q.keys {
		if k := &q.keys[i]; k.counts && p.count(q, k, &decided) && k.Index != counted {
			counted = k.Index
			p.counted[counted]++
		}
	}
	return decided
}

// count counts a request under a key, in each way in which the request counts. It reports whether that includes the
// nodes' estimate.
func (p *instantPoP) count(q *preparedRequest, k *requestKey, decided *[byAllSent]ruling) bool {
	var in [ways]bool
	n := 0
	for way := p.first; way < k.ways; way++ {
		if in[way] = p.counts(q, k, way, decided); in[way] {
			n++
		}
	}
	if n == 0 || k.cold || k.states.all == nil && n == k.ways-p.first && k.states.add(q.now, k.member) {
		return n > 0
	}
	if k.states.all == nil {
		k.states.expand(k.member, p.first)
	}
	for way := p.first; way < k.ways; way++ {
		if !in[way] {
			continue
		}
		s := &k.states.all[way]
		few := s.hasFewClients(k.Rule, q)
		excess, over := s.Add(q.now, k.CostOf(1))
		switch {
		case !over:
		case way == byAllSent:
			p.exceeded[q.network] = struct{}{}
		case !few && s.Mitigate(excess, q.now) && way == byNodesEstimate:
			p.mitigate(k, q.now)
		}
	}
	return in[byNodesEstimate]
}

// counts reports whether a request counts under a key. In general it does if it passes and the key is not mitigated.
// With CountWhileMitigated, it also counts under mitigated keys. A rule that sheds, or that has CountRefused and
// mitigates no key of the request, counts it unless a narrower rule refuses it: see [limit.Decision].
func (p *instantPoP) counts(q *preparedRequest, k *requestKey, way int, decided *[byAllSent]ruling) bool {
	if way == byAllSent {
		return true
	}
	by := decided[way].by
	offered := by == 0 || k.width < by
	if k.Action == rule.Shed {
		return offered
	}
	mitigated := k.mitigated(way, q.now)
	if !mitigated && by != 0 && k.CountRefused {
		return offered && !slices.ContainsFunc(q.keys, func(o requestKey) bool {
			return o.Index == k.Index && o.mitigated(way, q.now)
		})
	}
	return !mitigated && by == 0 || mitigated && k.CountWhileMitigated
}

func (k *requestKey) mitigated(way int, now int64) (mitigated bool) {
	if all := k.states.all; all != nil {
		_, mitigated = all[way].Until(now)
	}
	return mitigated
}

// mitigate records that the mitigation of a key by the nodes' estimate started or was extended.
func (p *instantPoP) mitigate(k *requestKey, now int64) {
	until, _ := k.states.all[byNodesEstimate].Until(now)
	if !k.CountsMitigated() {
		p.mitigated.ended(k.Index, now, until)
		return
	}
	key := counter.Key(k.key)
	binary.LittleEndian.PutUint32(key[:], binary.LittleEndian.Uint32(key[:])^uint32(k.Index)) // rules may share keys here
	p.mitigated.extend(key, k.Index, now, until)
}

// look returns the decision that follows from the mitigations of the request's keys, with the precedence of
// [limit.Decision].
func (p *instantPoP) look(q *preparedRequest, way int) (o ruling) {
	o.verdict = limit.Passed
	for i := range q.keys {
		k := &q.keys[i]
		if k.states.all == nil {
			continue
		}
		s := &k.states.all[way]
		end, mitigated := s.Until(q.now)
		if !mitigated || k.Action == rule.Shed &&
			!s.Sheds(async.ShareOf(secret, counter.Key(k.key), q.network, time.UnixMicro(q.now)), q.now) {
			continue
		}
		if k.Action.Refuses() && (o.by == 0 || k.width < o.by) {
			o.by = k.width + 1
		}
		switch by := o.rule; {
		case by == nil, k.Action > by.Action, k.Action == by.Action &&
			(end > o.until || end == o.until && k.Index <= by.Index):
			o.rule, o.until = k.Rule, end
		}
	}
	if o.rule != nil {
		o.verdict = limit.VerdictOf(o.rule.Action)
	}
	return o
}
