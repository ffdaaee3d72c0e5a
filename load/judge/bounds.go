package judge

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/edgelimit/edge/pop/rule"
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
type bound struct{ most, least counter }

// keyBounds is the state of a key during a trial.
type keyBounds struct {
	limits [][]bound // by node
	spans  []span    // by node

	counted []counted // by certain
	views   []view    // by node; nil if no request is counted

	crowd  crowd   // of all requests that may have been counted, if the rule has min_clients
	crowds []crowd // by node: of those that must have been
	tally  *tally  // nil unless the rule sheds
}

// A span holds the times until which requests of a key may be refused, and must be.
type span struct {
	may, must           int64
	maySince, mustSince int64 // when the requests that caused them were sent

	// Only used if the rule sheds, and must stays 0: the times until which the estimate may exceed
	// a threshold, and until which all nodes shed.
	over, sheds int64
}

// A violation is a request that passed although it had to be refused, or vice versa.
type violation struct {
	request, key int32 // one of its keys; noKey if no rule refuses this way
	leak         bool
	since, until int64 // if leak, when it had to be refused, else when it last may have been; 0 if never
}

// noKey is the key of a request that no rule can have refused.
const noKey = -1

// A trial compares a trace with a model.
type trial struct {
	c        *court
	b        *book
	m        model
	lag      int64
	keys     []*keyBounds
	nodes    int
	sent     []int32        // the requests of the trial, in the order in which they were sent
	done     []int32        // the same, in the order in which they were answered
	one      map[int32]bool // if not nil, only these keys, treated as one
	brief    bool           // do not check the remaining requests in answers
	found    []violation
	leaked   map[int32]bool // requests that passed but had to be refused: they may not have been counted
	retry    RetryAfter
	reported uint64  // passed answers that report the remaining requests
	tooFew   []int32 // those that report too few
	tooMany  []int32 // those that report too many

	offers map[int32]*offer // requests with keys of shedding rules; passed ones are removed when answered
}

func (c *court) trial(b *book, m model) *trial {
	return &trial{c: c, b: b, m: m, lag: c.lag, nodes: max(1, len(c.trace.Nodes())), sent: c.bySent, done: c.byDone}
}

// counters returns new counters for the limits of a key.
func (t *trial) counters(k int32) (list []bound) {
	r := t.b.keys[k].rule
	for _, l := range r.Limits {
		list = append(list, bound{t.m.counter(r, l), t.m.counter(r, l)})
	}
	return list
}

// counter returns a new counter for limit l of r.
func (m *model) counter(r *rule.Rule, l rule.Limit) counter {
	period, cost := l.Period.Microseconds(), costOf(r)
	if m.once {
		cost = 1
	}
	if m.kind == slidingLog {
		return &log{period: period, cost: cost}
	}
	w := &windows{period: period, cost: cost, n: int64(max(1, l.SubWindows)), shift: m.shift, kind: kinds[fmt.Sprint(l.Estimate)]}
	if m.kind != weighted {
		w.kind = m.kind
	}
	return w
}

// busy reports whether a key has enough requests to exceed a threshold. Other keys need no state,
// and there may be a million of them.
func (t *trial) busy(k *key) bool {
	for _, l := range k.rule.Limits {
		if n := k.most(); n > t.threshold(l.Threshold) || t.m.twice && 2*n > t.threshold(l.Threshold) {
			return true
		}
	}
	return false
}

func (t *trial) threshold(n uint64) int64 { return max(0, int64(min(n, 1<<62))+t.m.more) }

// prepare creates the state of each busy key.
func (t *trial) prepare() {
	t.keys, t.leaked, t.offers = make([]*keyBounds, len(t.b.keys)), map[int32]bool{}, map[int32]*offer{}
	for i := range t.keys {
		if t.one == nil && t.busy(&t.b.keys[i]) {
			t.keys[i] = t.newKey()
		}
	}
	one := t.newKey()
	for k := range t.one {
		t.keys[k] = one
	}
}

func (t *trial) newKey() *keyBounds {
	return &keyBounds{limits: make([][]bound, t.slots(t.m.apart)), spans: make([]span, t.slots(t.m.alone))}
}

func (t *trial) slots(each bool) int {
	if each {
		return t.nodes
	}
	return 1
}

func slot(each bool, q *Request) int {
	if each {
		return q.Node
	}
	return 0
}

// limitsAt returns the bounds of a key at the node that answered q.
func (t *trial) limitsAt(k int32, q *Request) []bound {
	at := &t.keys[k].limits[slot(t.m.apart, q)]
	if *at == nil {
		*at = t.counters(k)
	}
	return *at
}

// run processes the events of all requests in order: sent, answered, and settled, that is, the
// lag has passed since the answer. It returns the violations found.
func (t *trial) run() []violation {
	t.prepare()
	sent, answered, settled := &cursor{c: t.c, order: t.sent}, &cursor{c: t.c, order: t.done}, &cursor{c: t.c, order: t.done}
	for {
		some, more := sent.more(), answered.more()
		if !some && !more {
			return t.found
		}
		first := some && (!more || sent.q.Sent <= answered.q.Done)
		now := answered.q.Done
		if first {
			now = sent.q.Sent
		}
		for ; settled.more() && settled.q.Done+t.c.skew+t.lag <= now; settled.next() {
			t.settled(settled.i, &settled.q)
		}
		if first {
			t.asked(sent.i, &sent.q)
			sent.next()
		} else {
			t.answered(answered.i, &answered.q)
			answered.next()
		}
	}
}

// A cursor iterates over requests.
type cursor struct {
	c     *court
	order []int32
	at    int
	read  int // requests read into i and q
	i     int32
	q     Request
}

// more reports whether there is another request, and reads it into q.
func (s *cursor) more() bool {
	if s.at == len(s.order) {
		return false
	}
	if s.read == s.at {
		s.read++
		s.i = s.order[s.at]
		s.q = s.c.at(s.i)
	}
	return true
}

func (s *cursor) next() { s.at++ }

// blurred returns the earliest and latest time at which a request may have been counted.
func (t *trial) blurred(q *Request) (from, to int64) { return q.Sent - t.c.skew, q.Done + t.c.skew }

// counts reports whether a request may and must be counted under a key.
func (t *trial) counts(k int32, i int32, q *Request) (may, must bool) {
	o := t.c.outcomes[i]
	r := t.b.keys[k].rule
	status := q.Answer.Status
	if o == refused || o == uncertain {
		status = q.Answer.Expected
	}
	fits := t.m.statuses || countsStatus(r, status)
	switch o {
	case passed:
		return fits, fits
	case uncertain, unavailable:
		return fits, false
	case refused:
		if r.Action == rule.Shed {
			return t.offered(k, i, q)
		}
		// It certainly counts only if no other rule can have refused it.
		rule := r.CountWhileMitigated && !t.m.passed
		return fits && (t.m.refused || rule), fits && (t.m.refused || rule && len(t.b.keysOf(i)) == 1)
	}
	return false, false
}

// asked handles the sending of a request.
func (t *trial) asked(i int32, q *Request) {
	o := t.c.outcomes[i]
	if o == passed && q.Answer.Remaining >= 0 && !t.brief && int64(q.Answer.Remaining) > t.maxRemaining(t.b.keysOf(i), q) {
		t.tooMany = append(t.tooMany, i)
	}
	var leak *violation
	var later []int32
	for _, k := range t.b.keysOf(i) {
		if t.keys[k] == nil {
			continue
		}
		s := t.spanOf(k, q)
		if o == passed && q.Done <= s.must && leak == nil {
			leak = &violation{i, k, true, s.mustSince, s.must}
		}
		if may, _ := t.counts(k, i, q); may {
			t.mayCount(k, i, q)
		} else if o == refused && t.b.keys[k].rule.Action == rule.Shed {
			later = append(later, k)
		}
	}
	t.offer(i, t.b.keysOf(i), later, q)
	if leak != nil {
		t.found = append(t.found, *leak)
		t.leaked[i] = true
	}
}

// mayCount records that a request may have been counted under a key.
func (t *trial) mayCount(k, i int32, q *Request) {
	from, to := t.blurred(q)
	r, timeout := t.b.keys[k].rule, t.timeout(k)
	s := t.spanOf(k, q)
	enough := t.keys[k].crowd.enough(r, t.b.client[t.b.of[i]], from, to, r.MinClients)
	for l, b := range t.limitsAt(k, q) {
		latest := to
		if t.m.kind == slidingLog {
			latest += t.lag // it may use the time of counting
		}
		b.most.add(from, latest, true)
		if t.m.twice && r.Action != rule.Shed {
			b.most.add(from, latest, true)
		}
		if enough || s.may >= from {
			t.mayExceed(&b, s, q, t.threshold(r.Limits[l].Threshold), timeout)
		}
	}
}

// mayExceed extends s if a request that may have been counted can begin a mitigation: at once, or
// at the start of each sub-window in which it may have been counted.
func (t *trial) mayExceed(b *bound, s *span, q *Request, threshold, timeout int64) {
	from, to := t.blurred(q)
	next := from
	for at := from; ; at = next {
		if b.most.over(at, threshold) {
			if s.may < at {
				s.maySince = q.Sent
			}
			back := b.most.back(at, threshold) + t.lag + t.c.skew
			s.may, s.over = max(s.may, back, to+timeout+t.lag), max(s.over, back)
		}
		if at == to {
			return
		}
		next = to
		if w, ok := b.most.(*windows); ok {
			next = min(to, w.begin(w.index(at)+1))
		}
	}
}

func (t *trial) timeout(k int32) int64 {
	if t.m.replaced {
		return t.m.timeout
	}
	return t.b.keys[k].rule.MitigationTimeout.Microseconds()
}

// answered handles the answer to a request.
func (t *trial) answered(i int32, q *Request) {
	keys := t.b.keysOf(i)
	t.settle(i, keys, q)
	switch o := t.c.outcomes[i]; {
	case o == passed && q.Answer.Remaining >= 0 && !t.brief && t.c.alone(q):
		t.remaining(i, keys, q)
		return
	case o != refused && o != foreign || t.one != nil && !slices.ContainsFunc(keys, func(k int32) bool { return t.keys[k] != nil }):
		return
	}
	wrong := violation{request: i, key: noKey}
	may, must, ends, alike := int64(0), int64(0), int64(0), true
	var action *rule.Action
	for _, k := range keys {
		if a := t.b.keys[k].rule.Action; a != rule.Shed || t.canRefuse(k, q) {
			alike = alike && (action == nil || *action == a)
			action = &a
		}
		if wrong.key == noKey && refuses(t.b.keys[k].rule, &q.Answer) {
			wrong.key = k
		}
		if t.keys[k] == nil {
			continue
		}
		s := t.keys[k].spans[slot(t.m.alone, q)]
		must = max(must, s.must)
		if !refuses(t.b.keys[k].rule, &q.Answer) {
			continue
		}
		until := s.refuses(t.b.keys[k].rule)
		if until >= may {
			wrong.key, wrong.since, wrong.until = k, s.maySince, until
		}
		may, ends = max(may, until), max(ends, s.may)
	}
	if may < q.Sent {
		wrong.key = t.nearest(wrong.key, keys, q)
		t.found = append(t.found, wrong)
	} else if q.Answer.Retry > 0 && seen(t.b, i, &q.Answer) {
		t.promised(q, ends, must, alike)
	}
}

// promised compares Retry-After, which is the time left on the node rounded up to seconds, with
// the latest and earliest end of the mitigation. If rules with different actions refuse,
// Retry-After covers only some of them.
func (t *trial) promised(q *Request, may, must int64, alike bool) {
	t.retry.Compared++
	switch seconds := int64(q.Answer.Retry) * 1e6; {
	case seconds-1e6 > max(0, may-q.Sent):
		t.retry.TooLong++
	case alike && seconds < must-q.Done:
		t.retry.TooShort++
	}
}

// prolonged is the minimum, in microseconds, by which refused requests must extend a mitigation
// before nodes extend it.
const prolonged = 100_000

// settled handles the end of a request's lag: by now it has been counted.
func (t *trial) settled(i int32, q *Request) {
	o := t.c.outcomes[i]
	for _, k := range t.b.keysOf(i) {
		if t.keys[k] == nil || t.leaked[i] {
			continue
		}
		_, must := t.counts(k, i, q)
		if !t.m.apart && !t.brief && (must || t.unsure(k, i)) {
			t.see(k, q, must)
		}
		if !must {
			continue
		}
		from, to := t.blurred(q)
		late := to + t.lag
		limits := t.b.keys[k].rule.Limits
		s := t.spanOf(k, q)
		until, back := int64(0), int64(0)
		timeout, grace := t.timeout(k), int64(0)
		if o == refused && t.b.keys[k].rule.CountWhileMitigated {
			timeout, grace = 0, prolonged
		}
		for l, b := range t.limitsAt(k, q) {
			threshold := t.threshold(limits[l].Threshold)
			b.least.add(from, to, false)
			// Some mistakes keep the estimate from falling in the meantime.
			if b.least.over(late, threshold) && b.least.back(from, threshold) >= late {
				back = max(back, b.least.back(late, threshold)-t.lag-grace)
				until = max(until, back, q.Sent+timeout-t.lag)
			}
		}
		r := t.b.keys[k].rule
		if !t.keys[k].crowded(r, t.b.client[t.b.of[i]], q.Node, t.nodes, from, late) {
			continue
		}
		if r.Action == rule.Shed {
			s.sheds = max(s.sheds, back)
			continue
		}
		if until > s.must {
			if s.must < late {
				s.mustSince = q.Sent
			}
			s.must = until
		}
	}
}

// split returns the requests that passed and those that were refused, the latter sorted.
func split(found []violation) (leaks, wrong []int32) {
	for _, v := range found {
		if v.leak {
			leaks = append(leaks, v.request)
		} else {
			wrong = append(wrong, v.request)
		}
	}
	slices.SortFunc(wrong, cmp.Compare[int32])
	return leaks, wrong
}
