package judge

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/edgelimit/edge/rule"
)

// A model describes how a target counts and mitigates. The zero value is the correct one.
type model struct {
	kind    kind             // of estimate, unless weighted
	misread func(*rule.Rule) // turns a copy of a rule into the one that the target follows, unless nil
	earlier bool             // keys may have exceeded thresholds before the trace
	twice   bool             // requests may be counted twice
	wider   bool             // shedding rules count requests that narrower rules refuse
	deaf    string           // the node that lets all requests pass, if any
}

// read returns the rule that the target follows instead of r.
func (m *model) read(r *rule.Rule) *rule.Rule {
	if m.misread == nil {
		return r
	}
	other := *r
	other.Limits = slices.Clone(r.Limits)
	m.misread(&other)
	return &other
}

// timeoutOf returns the least duration of a mitigation, in microseconds. A key that sheds refuses requests only as long
// as its estimate exceeds a threshold.
func timeoutOf(r *rule.Rule) int64 {
	if r.Action == rule.Shed {
		return 0
	}
	return r.MitigationTimeout.Microseconds()
}

// Bounds are the least and the greatest counts of each key that are possible with a model: a request may arrive at any
// time between being sent and being answered, and may be counted until the lag has passed.
type bounds struct {
	j      *judgment
	k      *keying
	m      model
	rules  map[*rule.Rule]*rule.Rule // the rules of keys, as the model reads them
	states []*state                  // by key; nil if it cannot exceed a threshold

	found      []violation
	leaked     map[*request]bool // requests that passed but had to be refused: they may not have been counted
	headers    Headers
	retry      RetryAfter
	reported   uint64 // passed responses that report the remaining requests
	overstated uint64 // refusals whose Retry-After was followed by a request that passed much earlier

	uncounted map[violation]bool // requests and keys that shed: refusals that did not seem to count when they were sent
	mayShed   map[*request]bool  // requests that a shedding rule may have refused
}

// A state holds the bounds of a key's counts. Its requests may be refused until may. Until
// must, they must be refused or, if the rule sheds, all nodes must shed.
type state struct {
	rule   *rule.Rule // as the model reads it
	limits []limitBounds

	may, must           int64
	maySince, mustSince int64 // when the requests that caused them were sent

	slowest int64  // the longest duration of a request that was certainly counted
	views   []view // by node

	clients clients // of all requests that may have been counted, if the rule has min_clients
	tally   *tally  // empty unless the rule sheds

	first   *request // the first refusal
	promise *request // the last refusal with a Retry-After
	passed  int64    // when the last request that was not refused was answered
}

// A limitBounds holds the greatest and the least possible count for one limit.
type limitBounds struct{ most, least *counter }

// A violation is a request that passed although it had to be refused, or vice versa.
type violation struct {
	request      *request
	key          *key // one of its keys; nil if no rule refuses this way
	leak         bool
	since, until int64 // when it had to be refused if leak, else when it could last have been; 0 if never
}

// counter returns a new counter for limit l of r.
func (m *model) counter(r *rule.Rule, l rule.Limit) *counter {
	c := &counter{
		period: l.Period.Microseconds(), n: int64(max(1, l.SubWindows)), kind: m.kind, cost: costOf(r), threshold: threshold(l),
	}
	if m.kind == weighted {
		c.kind = kinds[fmt.Sprint(l.Estimate)]
	}
	return c
}

// threshold returns the threshold of a limit. No count exceeds the maximum.
func threshold(l rule.Limit) int64 { return int64(min(l.Threshold, 1<<62)) }

// bounds returns bounds before any request. It creates the state of each key with enough requests to exceed a threshold.
// Other keys need no state, and there may be a million of them.
func (j *judgment) bounds(by *keying, m model) *bounds {
	b := &bounds{
		j: j, k: by, m: m, rules: map[*rule.Rule]*rule.Rule{}, states: make([]*state, len(by.keys)),
		leaked: map[*request]bool{}, uncounted: map[violation]bool{}, mayShed: map[*request]bool{},
	}
	for n, k := range by.keys {
		r := b.rules[k.rule]
		if r == nil {
			r = m.read(k.rule)
			b.rules[k.rule] = r
		}
		most := k.most(r)
		if m.twice {
			most *= 2
		}
		if m.earlier || slices.ContainsFunc(r.Limits, func(l rule.Limit) bool { return most > threshold(l) }) {
			views := make([]view, max(1, len(j.trace.Nodes())))
			b.states[n] = &state{rule: r, views: views, tally: &tally{shares: map[netip.Prefix]*share{}}}
			for _, l := range r.Limits {
				b.states[n].limits = append(b.states[n].limits, limitBounds{m.counter(r, l), m.counter(r, l)})
			}
		}
	}
	return b
}

// run processes the events of all requests in order: sent, answered, and settled (the lag has passed since the
// answer). It returns the violations found.
func (b *bounds) run() []violation {
	sent, settled, j := 0, 0, b.j
	for done := 0; done < len(j.done); {
		next := j.done[done].Done
		asks := sent < len(j.sent) && j.sent[sent].Sent <= next
		if asks {
			next = j.sent[sent].Sent
		}
		for ; settled < done && j.done[settled].Done+j.skew+j.lag <= next; settled++ {
			b.settled(j.done[settled])
		}
		if asks {
			b.asked(j.sent[sent])
			sent++
		} else {
			b.answered(j.done[done])
			done++
		}
	}
	return b.found
}

// blurred returns the earliest and latest time at which a request may have been counted.
func (b *bounds) blurred(q *request) (from, to int64) { return q.Sent - b.j.skew, q.Done + b.j.skew }

// counts reports whether a request may and must be counted under a key, given what is known so far.
func (b *bounds) counts(k *key, q *request) (may, must bool) {
	r, status := b.states[k.n].rule, q.Answer.Status
	if q.outcome == refused || q.outcome == uncertain {
		status = q.Answer.Expected
	}
	fits := countsStatus(r, status)
	switch q.outcome {
	case passed:
		return fits, fits
	case uncertain, unavailable:
		return fits, false
	case refused:
		by := b.suspects(q)
		may = len(by) == 0 || slices.ContainsFunc(by, func(one *key) bool { return k.reachedDespite(one) })
		must = len(by) > 0 && k.reachedDespite(by...)
		if k.sheds() {
			return may || b.m.wider, must || b.m.wider
		}
		// A key that counts while mitigated certainly is, if no other can have refused the request.
		alone := len(by) == 1 && by[0] == k
		return fits && (r.CountWhileMitigated || r.CountRefused && may),
			fits && (r.CountWhileMitigated && alone || r.CountRefused && must)
	}
	return false, false
}

// active returns the keys whose mitigations may refuse q, given what is known so far.
func (b *bounds) active(q *request) []*key {
	return without(b.k.of(q), func(k *key) bool { s := b.states[k.n]; return s == nil || b.mayRefuse(k, q) < q.Sent })
}

// suspects returns the keys that q may have been refused for.
func (b *bounds) suspects(q *request) []*key {
	return without(b.active(q), func(k *key) bool { return !refuses(k.rule, &q.Answer) })
}

// mayRefuse returns the time until which a key that has a state may refuse requests like q.
func (b *bounds) mayRefuse(k *key, q *request) int64 {
	s := b.states[k.n]
	if b.m.earlier {
		return max(s.may, b.remembers(s, q))
	}
	return s.may
}

// mustRefuse returns the time until which the rules that do not shed must refuse requests like q.
func (b *bounds) mustRefuse(q *request) (until int64) {
	for _, k := range b.k.of(q) {
		if s := b.states[k.n]; s != nil && !k.sheds() {
			until = max(until, s.must)
		}
	}
	return until
}

// deaf reports whether the node that answers q lets all requests pass.
func (b *bounds) deaf(q *request) bool {
	return b.m.deaf != "" && b.j.trace.Nodes()[q.Node] == b.m.deaf
}

// asked handles the sending of a request.
func (b *bounds) asked(q *request) {
	keys := b.k.of(q)
	if q.outcome == passed && q.Answer.Remaining >= 0 && len(keys) > 0 {
		most := int64(0) // that the node may report for any limit
		for _, k := range keys {
			for n, l := range b.rules[k.rule].Limits {
				most = max(most, threshold(l)-b.known(k, n, q))
			}
		}
		addIf(&b.headers.TooMuch, int64(q.Answer.Remaining) > most)
	}
	for _, k := range keys {
		s := b.states[k.n]
		if s == nil {
			continue
		}
		if q.outcome == passed && q.Done <= s.must && !k.sheds() && !b.leaked[q] {
			b.leaked[q] = true
			if !b.deaf(q) {
				b.found = append(b.found, violation{q, k, true, s.mustSince, s.must})
			}
		}
		may, _ := b.counts(k, q)
		if may {
			b.mayCount(k, q)
		}
		if k.sheds() {
			b.askedShedding(k, q, may)
		}
	}
}

// mayCount records that a request may have been counted under a key, and extends the key's span if the request can
// begin a mitigation: immediately, or at the start of each sub-window in which it may have been counted.
func (b *bounds) mayCount(k *key, q *request) {
	from, to := b.blurred(q)
	s := b.states[k.n]
	enough := s.clients.enough(k.rule, b.k.senders[q.i].client, from, to, k.rule.MinClients)
	for _, l := range s.limits {
		latest := to
		if b.m.kind == slidingLog {
			latest += b.j.lag // it may use the time of counting
		}
		l.most.add(from, latest)
		if b.m.twice && !k.sheds() {
			l.most.add(from, latest)
		}
		for at := from; enough || s.may >= from; at = min(to, l.most.begin(l.most.index(at)+1)) {
			if l.most.over(at) {
				if s.may < at {
					s.maySince = q.Sent
				}
				back := l.most.back(at) + b.j.lag + b.j.skew
				s.may = max(s.may, back, to+timeoutOf(s.rule)+b.j.lag)
			}
			if at == to {
				break
			}
		}
	}
}

// answered handles the answer to a request.
func (b *bounds) answered(q *request) {
	keys := b.k.of(q)
	b.answeredShedding(keys, q)
	justified := q.outcome != refused && q.outcome != foreign || b.justified(keys, q)
	b.checkHeaders(keys, q)
	b.checkPromises(keys, q, justified)
	// Traffic from before the trace no longer matters by then.
	alone := q.Sent > b.j.requests[0].Sent+b.j.memory.Microseconds()+b.j.lag
	if alone && q.outcome == passed && q.Answer.Remaining >= 0 {
		b.remaining(keys, q)
	}
	for _, k := range keys {
		if s := b.states[k.n]; s != nil && q.outcome != refused {
			s.passed = max(s.passed, q.Done)
		}
	}
}

// justified reports whether a rule may have refused a request. If none may, it adds a violation.
func (b *bounds) justified(keys []*key, q *request) bool {
	wrong := violation{request: q}
	may, ends := int64(0), int64(0)
	for _, k := range keys {
		s, fits := b.states[k.n], refuses(k.rule, &q.Answer)
		if fits {
			wrong.key = cmp.Or(wrong.key, k)
		}
		if s == nil || !fits {
			continue
		}
		until := b.mayRefuse(k, q)
		if until >= may {
			wrong.key, wrong.since, wrong.until = k, s.maySince, until
		}
		may, ends = max(may, until), max(ends, until)
		if k.sheds() { // Retry-After may be that of a whole mitigation
			ends = max(ends, until+k.rule.MitigationTimeout.Microseconds())
		}
	}
	if may < q.Sent || b.deaf(q) {
		wrong.key = b.nearest(wrong.key, keys, q)
		b.found = append(b.found, wrong)
		return false
	}
	// Retry-After is the time left on the node, rounded up to whole seconds. If rules with different actions refuse, it
	// covers only some of them.
	if q.Answer.Retry > 0 && seen(keys, q) && !capped(keys, q) {
		b.retry.Compared++
		switch {
		case q.retry()-1e6 > max(0, ends-q.Sent):
			b.retry.TooLong++
		case q.retry() < b.mustRefuse(q)-q.Done && b.alike(q):
			b.retry.TooShort++
		}
	}
	return true
}

// remembers returns the time until which a mitigation from before the trace may refuse requests of a key: 0 once one
// has passed, else the end of the first refusal's Retry-After, or more if refused requests count or a rule caps it.
func (b *bounds) remembers(s *state, q *request) int64 {
	s.first = cmp.Or(s.first, q)
	end := b.j.sent[0].Sent + b.j.memory.Microseconds()
	switch {
	case s.passed > 0:
		return 0
	case countsRefused(s.rule) || capped(b.k.of(s.first), s.first):
		return end
	}
	return min(end, s.first.Done+s.first.retry()+b.j.lag)
}

// alike reports whether all rules that may refuse a request have the same action.
func (b *bounds) alike(q *request) bool {
	keys := b.active(q)
	return !slices.ContainsFunc(keys, func(k *key) bool { return k.rule.Action != keys[0].rule.Action })
}

// minExtension is the shortest extension of a mitigation by a refused request that nodes act on, in microseconds.
const minExtension = 100_000

// settled handles the end of a request's lag: by now it has been counted.
func (b *bounds) settled(q *request) {
	for _, k := range b.k.of(q) {
		if b.states[k.n] == nil || b.leaked[q] {
			continue
		}
		if _, must := b.counts(k, q); must {
			b.mustCount(k, q)
		}
	}
}

// mustCount records that a request must have been counted under a key.
func (b *bounds) mustCount(k *key, q *request) {
	from, to := b.blurred(q)
	late := to + b.j.lag
	s := b.states[k.n]
	s.slowest, s.views[q.Node].last = max(s.slowest, q.Done-q.Sent), q.Sent
	r := s.rule
	until := int64(0)
	timeout, grace := timeoutOf(r), int64(0)
	if q.outcome == refused && r.CountWhileMitigated {
		timeout, grace = 0, minExtension
	}
	for _, l := range s.limits {
		l.least.add(from, from)
		// Some mistakes keep the estimate from falling in the meantime.
		if l.least.over(late) && l.least.back(from) >= late {
			until = max(until, l.least.back(late)-b.j.lag-grace, q.Sent+timeout-b.j.lag)
		}
	}
	switch {
	case k.rule.MinClients > 1 &&
		!s.views[q.Node].clients.enough(k.rule, b.k.senders[q.i].client, late, from, clientsFactor*k.rule.MinClients):
	case until > s.must:
		if s.must < late {
			s.mustSince = q.Sent
		}
		s.must = until
	}
}

// A view is the least that a node must know about a key: the counts from before it last counted a request of the key.
type view struct {
	last    int64   // when that request was sent; 0 before the first
	clients clients // of requests that the node must have counted, if the rule has min_clients
}

// known returns the least count, for the nth limit of a key, that the node that answers q must know. It is 0 unless the
// node has counts of the window in which q is counted, and that window is unambiguous.
func (b *bounds) known(k *key, n int, q *request) int64 {
	s := b.states[k.n]
	if s == nil || s.views[q.Node].last == 0 {
		return 0
	}
	last, c := s.views[q.Node].last, *s.limits[n].least
	from, to := b.blurred(q)
	if floor(last, c.period) != floor(from, c.period) || floor(from, c.period) != floor(to, c.period) {
		return 0
	}
	// When the node's last request was sent, all nodes knew the counts of the requests before settled.
	settled := before(c.from, last-s.slowest-b.j.lag-3*b.j.skew)
	c.from, c.to = c.from[:settled], c.to[:settled]
	return min(c.count(from), c.count(to))
}

// remaining checks that an answer reports at least as many remaining requests as the greatest possible count leaves.
func (b *bounds) remaining(keys []*key, q *request) {
	least := int64(math.MaxInt64)
	for _, k := range keys {
		r := b.rules[k.rule]
		for n, l := range r.Limits {
			count := k.most(r)
			if b.states[k.n] != nil {
				from, to := b.blurred(q)
				c := b.states[k.n].limits[n].most
				count = 1 + max(c.count(from), c.count(to)) // count rounds down
			}
			least = min(least, threshold(l)-2*count)
		}
	}
	b.reported++
	addIf(&b.headers.TooLittle, int64(q.Answer.Remaining) < least)
}
