package judge

import (
	"fmt"
	"slices"

	"github.com/edgelimit/edge/rule"
)

// A model describes how a target counts and mitigates. The zero value is the correct one.
type model struct {
	kind     kind  // of estimate, unless weighted
	more     int64 // added to thresholds
	shift    int64 // delay of windows, in microseconds
	timeout  int64 // of mitigations, in microseconds, if replaced is set
	replaced bool

	apart    bool // nodes count separately
	alone    bool // nodes mitigate separately
	refused  bool // refused requests are counted
	passed   bool // refused requests are not counted, even if the rule counts them
	statuses bool // all statuses are counted
	twice    bool // requests may be counted twice
	once     bool // each request counts 1, whatever the rule's cost
	wider    bool // shedding rules count requests that narrower rules refuse
}

// A bound holds the greatest and least possible count of a key for one limit, at one node if
// nodes count separately. A request may arrive at any time between being sent and being answered.
type bound struct{ most, least *counter }

// A state is what a trial knows about a key.
type state struct {
	limits [][]bound // by node
	spans  []span    // by node

	counted []*request // certainly, in the order in which they were answered
	views   []view     // by node; nil if no request is counted

	crowd  crowd   // of all requests that may have been counted, if the rule has min_clients
	crowds []crowd // by node: of those that must have been
	tally  *tally  // nil unless the rule sheds
}

// A span holds the times until which requests of a key may be refused, and must be.
type span struct {
	may, must           int64
	maySince, mustSince int64 // when the requests that caused them were sent

	// Used only if the rule sheds; must then stays 0. The times until which the estimate may exceed
	// a threshold, and until which all nodes shed.
	over, sheds int64
}

// refuses returns the time until which the rule of k may refuse requests.
func (s *span) refuses(k *key) int64 {
	if k.sheds() {
		return s.over
	}
	return s.may
}

// A violation is a request that passed although it had to be refused, or vice versa.
type violation struct {
	request      *request
	key          *key // one of its keys; nil if no rule refuses this way
	leak         bool
	since, until int64 // if leak, when it had to be refused; otherwise, when it could last have been; 0 if never
}

// A trial compares a trace with a model.
type trial struct {
	c        *court
	b        *book
	m        model
	lag      int64
	states   []*state // by key; nil if it cannot exceed a threshold
	nodes    int
	sent     []*request    // the requests of the trial, in the order in which they were sent
	done     []*request    // the same, in the order in which they were answered
	one      map[*key]bool // if not nil, only these keys, treated as one
	brief    bool          // do not check the remaining requests in answers
	found    []violation
	leaked   map[*request]bool // requests that passed but had to be refused: they may not have been counted
	retry    RetryAfter
	reported uint64     // passed responses that report the remaining requests
	tooFew   []*request // those that report too few
	tooMany  []*request // those that report too many

	claims map[*request][]claim // by key, of requests with keys of shedding rules; those of passed requests are removed once answered
	shed   map[*request]bool    // requests that a shedding rule may have refused
}

func (c *court) trial(b *book, m model) *trial {
	return &trial{c: c, b: b, m: m, lag: c.lag, nodes: max(1, len(c.trace.Nodes())), sent: c.sent, done: c.done}
}

// counter returns a new counter for limit l of r.
func (m *model) counter(r *rule.Rule, l rule.Limit) *counter {
	c := &counter{period: l.Period.Microseconds(), n: int64(max(1, l.SubWindows)), shift: m.shift, kind: m.kind, cost: costOf(r)}
	if m.kind == weighted {
		c.kind = kinds[fmt.Sprint(l.Estimate)]
	}
	if m.once {
		c.cost = 1
	}
	return c
}

// busy reports whether a key has enough requests to exceed a threshold. Other keys need no state,
// and there may be a million of them.
func (t *trial) busy(k *key) bool {
	n := k.most()
	if t.m.twice {
		n *= 2
	}
	return slices.ContainsFunc(k.rule.Limits, func(l rule.Limit) bool { return n > t.threshold(l.Threshold) })
}

// threshold returns the threshold of a limit according to the model.
func (t *trial) threshold(of uint64) int64 {
	return max(0, int64(min(of, 1<<62))+t.m.more)
}

// prepare creates the state of each busy key.
func (t *trial) prepare() {
	t.states, t.leaked, t.claims, t.shed = make([]*state, len(t.b.keys)), map[*request]bool{}, map[*request][]claim{}, map[*request]bool{}
	one := t.newState()
	for n, k := range t.b.keys {
		if t.one[k] {
			t.states[n] = one
		} else if t.one == nil && t.busy(k) {
			t.states[n] = t.newState()
		}
	}
}

func (t *trial) newState() *state {
	return &state{limits: make([][]bound, t.slots(t.m.apart)), spans: make([]span, t.slots(t.m.alone))}
}

func (t *trial) slots(each bool) int {
	if each {
		return t.nodes
	}
	return 1
}

func slot(each bool, q *request) int {
	if each {
		return q.Node
	}
	return 0
}

// limitsAt returns the bounds of a key at the node that answered q.
func (t *trial) limitsAt(k *key, q *request) []bound {
	at := &t.states[k.n].limits[slot(t.m.apart, q)]
	if *at == nil {
		for _, l := range k.rule.Limits {
			*at = append(*at, bound{t.m.counter(k.rule, l), t.m.counter(k.rule, l)})
		}
	}
	return *at
}

// spanOf returns the span of a key at the node that answered q, or nil if the key cannot exceed a threshold.
func (t *trial) spanOf(k *key, q *request) *span {
	if t.states[k.n] == nil {
		return nil
	}
	return &t.states[k.n].spans[slot(t.m.alone, q)]
}

// run processes the events of all requests in order: sent, answered, and settled, that is, the
// lag has passed since the answer. It returns the violations found.
func (t *trial) run() []violation {
	t.prepare()
	sent, settled := 0, 0
	for done := 0; done < len(t.done); {
		next := t.done[done].Done
		asks := sent < len(t.sent) && t.sent[sent].Sent <= next
		if asks {
			next = t.sent[sent].Sent
		}
		for ; settled < done && t.done[settled].Done+t.c.skew+t.lag <= next; settled++ {
			t.settled(t.done[settled])
		}
		if asks {
			t.asked(t.sent[sent])
			sent++
		} else {
			t.answered(t.done[done])
			done++
		}
	}
	return t.found
}

// blurred returns the earliest and latest time at which a request may have been counted.
func (t *trial) blurred(q *request) (from, to int64) { return q.Sent - t.c.skew, q.Done + t.c.skew }

// counts reports whether a request may and must be counted under a key, given what is known so far.
func (t *trial) counts(k *key, q *request) (may, must bool) {
	status := q.Answer.Status
	if q.outcome == refused || q.outcome == uncertain {
		status = q.Answer.Expected
	}
	fits := t.m.statuses || countsStatus(k.rule, status)
	switch q.outcome {
	case passed:
		return fits, fits
	case uncertain, unavailable:
		return fits, false
	case refused:
		if k.sheds() {
			return t.reaches(k, q)
		}
		// It certainly counts only if no other rule can have refused it.
		prolongs := k.rule.CountWhileMitigated && !t.m.passed
		return fits && (t.m.refused || prolongs), fits && (t.m.refused || prolongs && len(t.b.keysOf(q)) == 1)
	}
	return false, false
}

// asked handles the sending of a request.
func (t *trial) asked(q *request) {
	keys := t.b.keysOf(q)
	if q.outcome == passed && q.Answer.Remaining >= 0 && !t.brief && int64(q.Answer.Remaining) > t.maxRemaining(keys, q) {
		t.tooMany = append(t.tooMany, q)
	}
	for n, k := range keys {
		s := t.spanOf(k, q)
		if s == nil {
			continue
		}
		if q.outcome == passed && q.Done <= s.must && !t.leaked[q] {
			t.found = append(t.found, violation{q, k, true, s.mustSince, s.must})
			t.leaked[q] = true
		}
		may, _ := t.counts(k, q)
		if may {
			t.mayCount(k, q)
		}
		if k.sheds() && (q.outcome == passed || q.outcome == refused) {
			t.claim(k, n, q, may)
		}
	}
}

// mayCount records that a request may have been counted under a key.
func (t *trial) mayCount(k *key, q *request) {
	from, to := t.blurred(q)
	s := t.spanOf(k, q)
	enough := t.states[k.n].crowd.enough(k.rule, t.b.of(q).client, from, to, k.rule.MinClients)
	for l, b := range t.limitsAt(k, q) {
		latest := to
		if t.m.kind == slidingLog {
			latest += t.lag // it may use the time of counting
		}
		b.most.add(from, latest)
		if t.m.twice && !k.sheds() {
			b.most.add(from, latest)
		}
		if enough || s.may >= from {
			t.mayExceed(b.most, s, q, t.threshold(k.rule.Limits[l].Threshold), t.timeout(k))
		}
	}
}

// mayExceed extends s if a request that may have been counted can begin a mitigation: immediately, or
// at the start of each sub-window in which it may have been counted.
func (t *trial) mayExceed(most *counter, s *span, q *request, threshold, timeout int64) {
	from, to := t.blurred(q)
	for at, next := from, from; ; at = next {
		if most.over(at, threshold) {
			if s.may < at {
				s.maySince = q.Sent
			}
			back := most.back(at, threshold) + t.lag + t.c.skew
			s.may, s.over = max(s.may, back, to+timeout+t.lag), max(s.over, back)
		}
		if at == to {
			return
		}
		next = min(to, most.begin(most.index(at)+1))
	}
}

func (t *trial) timeout(k *key) int64 {
	if t.m.replaced {
		return t.m.timeout
	}
	return k.rule.MitigationTimeout.Microseconds()
}

// answered handles the answer to a request.
func (t *trial) answered(q *request) {
	keys := t.b.keysOf(q)
	t.settle(keys, q)
	switch {
	case q.outcome == passed && q.Answer.Remaining >= 0 && !t.brief && t.c.alone(q):
		t.remaining(keys, q)
		return
	case q.outcome != refused && q.outcome != foreign || t.one != nil && !slices.ContainsFunc(keys, func(k *key) bool { return t.states[k.n] != nil }):
		return
	}
	wrong := violation{request: q}
	may, must, ends, alike := int64(0), int64(0), int64(0), true
	var action *rule.Action
	for _, k := range keys {
		if !k.sheds() || t.canRefuse(k, q) {
			alike = alike && (action == nil || *action == k.rule.Action)
			action = &k.rule.Action
		}
		if wrong.key == nil && refuses(k.rule, &q.Answer) {
			wrong.key = k
		}
		s := t.spanOf(k, q)
		if s == nil {
			continue
		}
		must = max(must, s.must)
		if !refuses(k.rule, &q.Answer) {
			continue
		}
		until := s.refuses(k)
		if until >= may {
			wrong.key, wrong.since, wrong.until = k, s.maySince, until
		}
		may, ends = max(may, until), max(ends, s.may)
	}
	if may < q.Sent {
		wrong.key = t.nearest(wrong.key, keys, q)
		t.found = append(t.found, wrong)
	} else if q.Answer.Retry > 0 && seen(keys, q) {
		t.promised(q, ends, must, alike)
	}
}

// promised compares Retry-After, which is the time left on the node, rounded up to whole seconds, with
// the latest and earliest end of the mitigation. If rules with different actions refuse,
// Retry-After covers only some of them.
func (t *trial) promised(q *request, may, must int64, alike bool) {
	t.retry.Compared++
	switch seconds := int64(q.Answer.Retry) * 1e6; {
	case seconds-1e6 > max(0, may-q.Sent):
		t.retry.TooLong++
	case alike && seconds < must-q.Done:
		t.retry.TooShort++
	}
}

// prolonged is the least extension of a mitigation by refused requests that nodes act on, in
// microseconds.
const prolonged = 100_000

// settled handles the end of a request's lag: by now it has been counted.
func (t *trial) settled(q *request) {
	for n, k := range t.b.keysOf(q) {
		if t.states[k.n] == nil || t.leaked[q] {
			continue
		}
		_, must := t.counts(k, q)
		if claims := t.claims[q]; claims != nil && k.sheds() {
			must = claims[n].sure
		}
		if must {
			t.mustCount(k, q)
		}
	}
}

// mustCount records that a request must have been counted under a key.
func (t *trial) mustCount(k *key, q *request) {
	if !t.m.apart && !t.brief {
		t.see(k, q)
	}
	from, to := t.blurred(q)
	late := to + t.lag
	s := t.spanOf(k, q)
	until, back := int64(0), int64(0)
	timeout, grace := t.timeout(k), int64(0)
	if q.outcome == refused && k.rule.CountWhileMitigated {
		timeout, grace = 0, prolonged
	}
	for l, b := range t.limitsAt(k, q) {
		threshold := t.threshold(k.rule.Limits[l].Threshold)
		b.least.addLeast(from, to)
		// Some mistakes keep the estimate from falling in the meantime.
		if b.least.over(late, threshold) && b.least.back(from, threshold) >= late {
			back = max(back, b.least.back(late, threshold)-t.lag-grace)
			until = max(until, back, q.Sent+timeout-t.lag)
		}
	}
	switch {
	case !t.states[k.n].crowded(k.rule, t.b.of(q).client, q.Node, t.nodes, from, late):
	case k.sheds():
		s.sheds = max(s.sheds, back)
	case until > s.must:
		if s.must < late {
			s.mustSince = q.Sent
		}
		s.must = until
	}
}

// split returns the requests that passed and those that were refused.
func split(found []violation) (leaks, wrong []*request) {
	for _, v := range found {
		if v.leak {
			leaks = append(leaks, v.request)
		} else {
			wrong = append(wrong, v.request)
		}
	}
	return leaks, wrong
}
