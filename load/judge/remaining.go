package judge

// What a node must know about a key, and how many remaining requests it may report.

import "math"

// A view is the least that a node must know about a key: the counts from before the node itself
// last counted a request of the key.
type view struct {
	limits []*counter
	n      int   // how many entries of state.counted it has
	last   int64 // when the node's last request was sent
}

// knows reports whether v has counts of the window in which a request that arrived between from and to is counted, and
// that window is unambiguous.
func (v *view) knows(from, to, period int64) bool {
	return v.limits != nil && floor(v.last, period) == floor(from, period) && floor(from, period) == floor(to, period)
}

// remaining checks that an answer reports at least as many remaining requests as the greatest
// possible count leaves.
func (t *trial) remaining(keys []*key, q *request) {
	least := int64(math.MaxInt64)
	for _, k := range keys {
		for n, l := range k.rule.Limits {
			count := k.most()
			if t.states[k.n] != nil {
				c := t.limitsAt(k, q)[n].most
				count = 1 + max(c.count(q.Sent-t.c.skew), c.count(q.Done+t.c.skew)) // count rounds down
			}
			least = min(least, t.threshold(l.Threshold)-count)
		}
	}
	t.reported++
	if int64(q.Answer.Remaining) < least {
		t.tooFew = append(t.tooFew, q)
	}
}

// maxRemaining returns the maximum number of remaining requests that a node may report for any
// limit. A node need not know about a window in which it has counted no request of the key.
func (t *trial) maxRemaining(keys []*key, q *request) int64 {
	if len(keys) == 0 {
		return math.MaxInt64
	}
	most := int64(0)
	from, to := t.blurred(q)
	for _, k := range keys {
		for n, l := range k.rule.Limits {
			count := int64(0)
			if s := t.states[k.n]; s != nil && s.views != nil {
				if v := &s.views[q.Node]; v.knows(from, to, l.Period.Microseconds()) {
					count = min(v.limits[n].count(from), v.limits[n].count(to))
				}
			}
			most = max(most, t.threshold(l.Threshold)-count)
		}
	}
	return most
}

// see records that the node that answered q has counted it.
func (t *trial) see(k *key, q *request) {
	s := t.states[k.n]
	s.counted = append(s.counted, q)
	if s.views == nil {
		s.views = make([]view, t.nodes)
	}
	v := &s.views[q.Node]
	if v.limits == nil {
		for _, l := range k.rule.Limits {
			v.limits = append(v.limits, t.m.counter(k.rule, l))
		}
	}
	for ; v.n < len(s.counted) && s.counted[v.n].Done+t.c.skew+t.lag <= q.Sent-t.c.skew; v.n++ {
		for _, l := range v.limits {
			l.addLeast(t.blurred(s.counted[v.n]))
		}
	}
	v.last = q.Sent
}
