package judge

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// A model is a way to count and to mitigate. The zero value is the correct one.
type model struct {
	kind     kind  // of estimate, instead of weighted
	more     int64 // added to thresholds
	shift    int64 // delay of windows, in microseconds
	timeout  int64 // of mitigations, in microseconds, if replaced is set
	replaced bool

	apart    bool // nodes count separately
	alone    bool // nodes mitigate separately
	refused  bool // refused requests are counted
	statuses bool // all statuses are counted
	twice    bool // requests may be counted twice
}

// A bound is the greatest and the least possible count of a key for one limit, at one node if
// nodes count separately. A request may arrive at any time between being sent and being answered.
type bound struct{ most, least counter }

// A keyBounds is the state of a key while a trial goes through the requests.
type keyBounds struct {
	limits [][]bound // by node
	spans  []span    // by node

	counted []counted // by certain
	views   []view    // by node; nil if no request is counted
}

// A counted request is certainly counted from certain on.
type counted struct{ from, to, certain int64 }

// A view is the least a node must know about a key: the counts from before the node itself last
// counted a request of the key.
type view struct {
	limits []counter
	n      int   // how many of counted it has
	last   int64 // when that request was sent
}

// A span is until when requests of a key may be refused, and until when they must be.
type span struct {
	may, must           int64
	maySince, mustSince int64 // when the requests that began it were sent
}

// A violation is a request that passed although it had to be refused, or the reverse.
type violation struct {
	request, key int32 // one of its keys; noKey if no rule refuses like this
	leak         bool
	since, until int64 // of a leak: when it had to be refused; else: when it last might be; 0 if never
}

// noKey is the key of a request that no rule can have refused.
const noKey = -1

// A trial compares a trace with a model.
type trial struct {
	c      *court
	b      *book
	m      model
	lag    int64
	keys   []*keyBounds
	nodes  int
	sent   []int32       // the requests of the trial, in the order in which they were sent
	done   []int32       // and in which they were answered
	one    map[int32]int // if not nil, only these keys, treated as one
	brief  bool          // do not check the remaining requests in answers
	found  []violation
	leaked map[int32]bool // requests that passed and had to be refused: they may not have been counted
	retry  RetryAfter
	told   uint64  // passed answers that report the remaining requests
	little []int32 // those that report too few
	much   []int32 // those that report too many
}

func (c *court) trial(b *book, m model) *trial {
	return &trial{c: c, b: b, m: m, lag: c.lag, nodes: max(1, len(c.trace.Nodes())), sent: c.bySent, done: c.byDone}
}

// counters returns new counters for the limits of a key.
func (t *trial) counters(k int32) (list []bound) {
	for _, l := range t.b.keys[k].rule.Limits {
		list = append(list, bound{t.m.counter(l.Period.Microseconds(), l.SubWindows, fmt.Sprint(l.Estimate)), t.m.counter(l.Period.Microseconds(), l.SubWindows, fmt.Sprint(l.Estimate))})
	}
	return list
}

// counter returns what counts a limit.
func (m *model) counter(period int64, n int, estimate string) counter {
	if m.kind == slidingLog {
		return &log{period: period}
	}
	w := &windows{period: period, n: int64(max(1, n)), shift: m.shift, kind: kinds[estimate]}
	if m.kind != weighted {
		w.kind = m.kind
	}
	return w
}

// busy reports whether a key has enough requests to exceed a threshold. Others need no state;
// there may be a million of them.
func (t *trial) busy(k *key) bool {
	for _, l := range k.rule.Limits {
		if n := k.sent; n > t.threshold(l.Threshold) || t.m.twice && 2*n > t.threshold(l.Threshold) {
			return true
		}
	}
	return false
}

func (t *trial) threshold(n uint64) int64 { return max(0, int64(min(n, 1<<62))+t.m.more) }

// prepare makes the state of each busy key.
func (t *trial) prepare() {
	t.keys, t.leaked = make([]*keyBounds, len(t.b.keys)), map[int32]bool{}
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

// run processes the events in order: a request is sent, it is answered, its lag is over.
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
func (t *trial) counts(k int32, o outcome, q *Request) (may, must bool) {
	r := t.b.keys[k].rule
	status := q.Answer.Status
	if o == refused || o == uncertain {
		status = q.Answer.Expected
	}
	fits := r.Statuses == nil || t.m.statuses || r.Statuses.Has(status)
	switch o {
	case passed:
		return fits, fits
	case uncertain, unavailable:
		return fits, false
	case refused:
		return fits && t.m.refused, fits && t.m.refused
	}
	return false, false
}

// asked handles that a request was sent.
func (t *trial) asked(i int32, q *Request) {
	o := t.c.outcomes[i]
	if o == passed && q.Answer.Remaining >= 0 && !t.brief && int64(q.Answer.Remaining) > t.mostRemaining(t.b.keysOf(i), q) {
		t.much = append(t.much, i)
	}
	var leak *violation
	for _, k := range t.b.keysOf(i) {
		if t.keys[k] == nil {
			continue
		}
		s := &t.keys[k].spans[slot(t.m.alone, q)]
		if o == passed && q.Done <= s.must && leak == nil {
			leak = &violation{i, k, true, s.mustSince, s.must}
		}
		may, _ := t.counts(k, o, q)
		if !may {
			continue
		}
		from, to := t.blurred(q)
		limits, timeout := t.b.keys[k].rule.Limits, t.timeout(k)
		for l, b := range t.limitsAt(k, q) {
			threshold := t.threshold(limits[l].Threshold)
			latest := to
			if t.m.kind == slidingLog {
				latest += t.lag // it may use the time of counting
			}
			b.most.add(from, latest, true)
			if t.m.twice {
				b.most.add(from, latest, true)
			}
			t.mayExceed(&b, s, q, threshold, timeout)
		}
	}
	if leak != nil {
		t.found = append(t.found, *leak)
		t.leaked[i] = true
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
			s.may = max(s.may, b.most.back(at, threshold)+t.lag+t.c.skew, to+timeout+t.lag)
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

// answered handles that a request was answered.
func (t *trial) answered(i int32, q *Request) {
	keys := t.b.keysOf(i)
	switch o := t.c.outcomes[i]; {
	case o == passed && q.Answer.Remaining >= 0 && !t.brief && t.c.alone(q):
		t.remaining(i, keys, q)
		return
	case o != refused && o != foreign || t.one != nil && !slices.ContainsFunc(keys, func(k int32) bool { return t.keys[k] != nil }):
		return
	}
	wrong := violation{request: i, key: noKey}
	may, must, alike := int64(0), int64(0), true
	for _, k := range keys {
		alike = alike && t.b.keys[k].rule.Action == t.b.keys[keys[0]].rule.Action
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
		if s.may >= may {
			wrong.key, wrong.since, wrong.until = k, s.maySince, s.may
		}
		may = max(may, s.may)
	}
	if may < q.Sent {
		t.found = append(t.found, wrong)
	} else if q.Answer.Retry > 0 && seen(t.b, i, &q.Answer) {
		t.promised(q, may, must, alike)
	}
}

// promised compares Retry-After, the time left on the node rounded up to seconds, with the latest
// and earliest end of the mitigation. If rules with different actions refuse, Retry-After covers
// only some of them.
func (t *trial) promised(q *Request, may, must int64, alike bool) {
	t.retry.Compared++
	switch seconds := int64(q.Answer.Retry) * 1e6; {
	case seconds-1e6 > max(0, may-q.Sent):
		t.retry.TooLong++
	case alike && seconds < must-q.Done:
		t.retry.TooShort++
	}
}

// remaining checks that an answer does not report fewer remaining requests than the greatest
// possible count leaves.
func (t *trial) remaining(i int32, keys []int32, q *Request) {
	least := int64(math.MaxInt64)
	for _, k := range keys {
		for l, limit := range t.b.keys[k].rule.Limits {
			n := t.b.keys[k].sent
			if t.keys[k] != nil {
				c := t.limitsAt(k, q)[l].most
				n = 1 + max(c.count(q.Sent-t.c.skew), c.count(q.Done+t.c.skew)) // count rounds down
			}
			least = min(least, t.threshold(limit.Threshold)-n)
		}
	}
	t.told++
	if int64(q.Answer.Remaining) < least {
		t.little = append(t.little, i)
	}
}

// mostRemaining returns how many remaining requests a node may report at most, for any limit. A
// node need not know anything about a window in which it has counted no request of the key.
func (t *trial) mostRemaining(keys []int32, q *Request) int64 {
	if len(keys) == 0 {
		return math.MaxInt64
	}
	most := int64(0)
	for _, k := range keys {
		for l, limit := range t.b.keys[k].rule.Limits {
			n, period := int64(0), limit.Period.Microseconds()
			if t.keys[k] != nil && t.keys[k].views != nil {
				v := &t.keys[k].views[q.Node]
				if from, to := t.blurred(q); v.limits != nil && floor(v.last, period) == floor(from, period) && floor(from, period) == floor(to, period) {
					n = min(v.limits[l].count(from), v.limits[l].count(to))
				}
			}
			most = max(most, t.threshold(limit.Threshold)-n)
		}
	}
	return most
}

// see records that the node that answered q has counted it.
func (t *trial) see(k int32, q *Request) {
	b := t.keys[k]
	from, to := t.blurred(q)
	b.counted = append(b.counted, counted{from, to, to + t.lag})
	if b.views == nil {
		b.views = make([]view, t.nodes)
	}
	v := &b.views[q.Node]
	if v.limits == nil {
		for _, l := range t.counters(k) {
			v.limits = append(v.limits, l.least)
		}
	}
	for ; v.n < len(b.counted) && b.counted[v.n].certain <= from; v.n++ {
		for _, l := range v.limits {
			l.add(b.counted[v.n].from, b.counted[v.n].to, false)
		}
	}
	v.last = q.Sent
}

// settled handles that the lag of an answer is over: by now the request is counted.
func (t *trial) settled(i int32, q *Request) {
	o := t.c.outcomes[i]
	for _, k := range t.b.keysOf(i) {
		if t.keys[k] == nil || t.leaked[i] {
			continue
		}
		if _, must := t.counts(k, o, q); !must {
			continue
		}
		if !t.m.apart && !t.brief {
			t.see(k, q)
		}
		from, to := t.blurred(q)
		late := to + t.lag
		limits := t.b.keys[k].rule.Limits
		s := &t.keys[k].spans[slot(t.m.alone, q)]
		begins, until := true, int64(0)
		for l, b := range t.limitsAt(k, q) {
			threshold := t.threshold(limits[l].Threshold)
			b.least.add(from, to, false)
			// With some mistakes the estimate does not fall in the meantime.
			if b.least.over(late, threshold) && b.least.back(from, threshold) >= late {
				until = max(until, b.least.back(late, threshold)-t.lag, q.Sent+t.timeout(k)-t.lag)
			}
		}
		if until > s.must {
			begins = s.must < late
			s.must = until
			if begins {
				s.mustSince = q.Sent
			}
		}
	}
}

// split returns the requests of violations: those that passed, and those that were refused.
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
