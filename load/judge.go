package load

import "github.com/edgelimit/edge/pop/rule"

// A judgement is what no order of arrival, and no lag within its bound, explains.
type judgement struct {
	keys  []*key
	leaks []int32 // records that passed, and should have been refused
	wrong []int32 // records that were refused, and should have passed
}

// judge goes through what happened in its order. A request may have arrived at any moment
// between the one when it was sent and the one when it was answered, and counts may be known
// late. What it finds wrong is wrong whichever way that was.
func (x *oracle) judge(m model) *judgement {
	j := &judgement{keys: make([]*key, len(x.keys))}
	for i, k := range x.keys {
		// A key of few requests is never over, and there may be a million of them.
		for _, l := range k.rule.Limits {
			if int64(k.sent) > int64(l.Threshold)+m.more {
				j.keys[i] = newKey(k.rule, m)
			}
		}
	}
	for i, o := range x.outcomes {
		if o == refused {
			for _, k := range x.keysOf[x.first[i]] {
				if j.keys[k] != nil {
					j.keys[k].refused = true
				}
			}
		}
	}
	// Answers are taken in when their lag is over: behind what was sent by then.
	late := 0
	for _, e := range x.events {
		for ; late < len(x.events) && x.events[late].at+x.slack.lag <= e.at; late++ {
			if x.events[late].answer {
				x.settled(j, x.events[late].record, m)
			}
		}
		if e.answer {
			x.answered(j, e.record)
		} else {
			x.sent(j, e.record, m)
		}
	}
	for ; late < len(x.events); late++ {
		if x.events[late].answer {
			x.settled(j, x.events[late].record, m)
		}
	}
	return j
}

// counted reports whether a rule counts a request that passes.
func (x *oracle) counted(r *rule.Rule, q *record) bool {
	if r.Statuses == nil {
		return true
	}
	status := int(q.status)
	if status == 0 {
		status = x.log.looks[q.look-1].Status
	}
	return r.Statuses.Has(status)
}

// sent takes in that a request was sent.
func (x *oracle) sent(j *judgement, i int32, m model) {
	q, o := &x.log.records[i], x.outcomes[i]
	leak := false
	for _, n := range x.keysOf[x.first[i]] {
		k := j.keys[n]
		if k == nil {
			continue
		}
		leak = leak || x.began+q.done <= k.mustUntil
		if k.refused && x.counts(k.rule, q, o) {
			k.asked(x.began+q.sent, x.began+q.done, x.slack)
		}
		if o != refused && x.counted(k.rule, q) {
			k.sent(x.began+q.sent, x.began+q.done, x.slack, m)
		}
	}
	if leak && o == passed {
		j.leaks = append(j.leaks, i)
	}
}

// counts reports whether a rule would count a request if it passed.
func (x *oracle) counts(r *rule.Rule, q *record, o outcome) bool {
	if o != refused || r.Statuses == nil {
		return x.counted(r, q)
	}
	return r.Statuses.Has(x.log.looks[q.look-1].Status)
}

// answered takes in that a request was answered.
func (x *oracle) answered(j *judgement, i int32) {
	q := &x.log.records[i]
	if x.outcomes[i] != refused || q.status == 503 {
		return
	}
	for _, n := range x.keysOf[x.first[i]] {
		if k := j.keys[n]; k != nil && k.mayUntil >= x.began+q.sent {
			return
		}
	}
	j.wrong = append(j.wrong, i)
}

// settled takes in that the lag of an answer is over.
func (x *oracle) settled(j *judgement, i int32, m model) {
	q := &x.log.records[i]
	if x.outcomes[i] != passed {
		return
	}
	for _, n := range x.keysOf[x.first[i]] {
		k := j.keys[n]
		if k == nil || !x.counted(k.rule, q) {
			continue
		}
		k.passed(x.began+q.sent, x.began+q.done, x.slack, m)
		for l := range k.bounds {
			b := &k.bounds[l]
			b.peak = max(b.peak, b.seen.Add(x.began+q.done, b.limit.Period))
		}
	}
}
