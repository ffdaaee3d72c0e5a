package judge

// What a node must know about a key, and how many remaining requests it may report.

import (
	"math"

	"github.com/edgelimit/edge/pop/rule"
)

// A counted request is certain to have been counted by the time certain. If sure is false, a narrower rule may have
// refused it, so it may not count at all.
type counted struct {
	from, to, certain int64
	sure              bool
}

// A view is the least that a node must know about a key: the counts from before the node itself
// last counted a request of the key.
type view struct {
	limits []counter
	all    []counter // including requests that are not sure; nil unless the rule sheds
	n      int       // how many entries of keyBounds.counted it has
	last   int64     // when the node's last request was sent
}

// knows reports whether v has counts of the window in which a request from between from and to is counted, and
// that window is unambiguous.
func (v *view) knows(from, to, period int64) bool {
	return v.limits != nil && floor(v.last, period) == floor(from, period) && floor(from, period) == floor(to, period)
}

// remaining checks that an answer reports at least as many remaining requests as the greatest
// possible count leaves.
func (t *trial) remaining(i int32, keys []int32, q *Request) {
	least := int64(math.MaxInt64)
	for _, k := range keys {
		for l, limit := range t.b.keys[k].rule.Limits {
			n := t.b.keys[k].most()
			if t.keys[k] != nil {
				c := t.limitsAt(k, q)[l].most
				n = 1 + max(c.count(q.Sent-t.c.skew), c.count(q.Done+t.c.skew)) // count rounds down
			}
			least = min(least, t.threshold(limit.Threshold)-n)
		}
	}
	t.reported++
	if int64(q.Answer.Remaining) < least {
		t.tooFew = append(t.tooFew, i)
	}
}

// maxRemaining returns the maximum number of remaining requests that a node may report for any
// limit. A node need not know about a window in which it has counted no request of the key.
func (t *trial) maxRemaining(keys []int32, q *Request) int64 {
	if len(keys) == 0 {
		return math.MaxInt64
	}
	most := int64(0)
	for _, k := range keys {
		for l, limit := range t.b.keys[k].rule.Limits {
			n, period := int64(0), limit.Period.Microseconds()
			if t.keys[k] != nil && t.keys[k].views != nil {
				v := &t.keys[k].views[q.Node]
				if from, to := t.blurred(q); v.knows(from, to, period) {
					n = min(v.limits[l].count(from), v.limits[l].count(to))
				}
			}
			most = max(most, t.threshold(limit.Threshold)-n)
		}
	}
	return most
}

// see records that the node that answered q has counted it or, if sure is false, may have.
func (t *trial) see(k int32, q *Request, sure bool) {
	b := t.keys[k]
	from, to := t.blurred(q)
	b.counted = append(b.counted, counted{from, to, to + t.lag, sure})
	if b.views == nil {
		b.views = make([]view, t.nodes)
	}
	v := &b.views[q.Node]
	if v.limits == nil {
		for _, l := range t.counters(k) {
			v.limits = append(v.limits, l.least)
			if t.b.keys[k].rule.Action == rule.Shed {
				v.all = append(v.all, l.most)
			}
		}
	}
	if !sure {
		return
	}
	for ; v.n < len(b.counted) && b.counted[v.n].certain <= from; v.n++ {
		of := &b.counted[v.n]
		for n, l := range v.limits {
			if of.sure {
				l.add(of.from, of.to, false)
			}
			if v.all != nil {
				v.all[n].add(of.from, of.to, false)
			}
		}
	}
	v.last = q.Sent
}
