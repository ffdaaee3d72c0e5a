package judge

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// A limiter passes or refuses requests as if each were counted without delay.
type limiter struct {
	k    *keying
	keys []limitedKey
}

// A limitedKey is the state of a key in a limiter.
type limitedKey struct {
	counters []*counter // of the limits that it may exceed; few of a million keys may
	until    int64      // of its mitigation
}

func newLimiter(k *keying, m model) *limiter {
	l := &limiter{k, make([]limitedKey, len(k.keys))}
	for n, k := range k.keys {
		for _, limit := range k.rule.Limits {
			if k.most(k.rule) > threshold(limit) {
				l.keys[n].counters = append(l.keys[n].counters, m.counter(k.rule, limit))
			}
		}
	}
	return l
}

// decide returns the key that a request is refused for, or nil if it passes. status is that of the origin's
// answer. The limiter does not know which clients are shed: shed must be true if a shedding rule of the target may have
// refused the request, which then counts only under rules that count refused requests.
func (l *limiter) decide(q *request, status int, shed bool) *key {
	by := without(l.k.of(q), func(k *key) bool { return q.Sent >= l.keys[k.n].until })
	var strongest *key
	if len(by) > 0 {
		strongest = slices.MaxFunc(by, func(a, b *key) int { // by action, then by the later end, then the first rule
			return cmp.Or(cmp.Compare(a.rule.Action, b.rule.Action), cmp.Compare(l.keys[a.n].until, l.keys[b.n].until),
				cmp.Compare(b.rule.Index, a.rule.Index))
		})
	}
	for _, k := range l.k.of(q) {
		known, timeout := &l.keys[k.n], k.rule.MitigationTimeout.Microseconds()
		mitigated := q.Sent < known.until
		counts := len(by) == 0 && !shed || mitigated && k.rule.CountWhileMitigated ||
			k.rule.CountRefused && k.reachedDespite(by...)
		if k.sheds() || !countsStatus(k.rule, status) || !counts {
			continue
		}
		least := int64(0)
		if mitigated {
			timeout, least = 0, minExtension
		}
		until := known.until
		for _, c := range known.counters {
			c.add(q.Sent, q.Sent)
			if c.over(q.Sent) {
				until = max(until, q.Sent+timeout, c.back(q.Sent))
			}
		}
		if until-known.until >= least {
			known.until = until
		}
	}
	return strongest
}

// compare compares each answer with that of an exact limiter, which logs every request of each client, and counts the
// refusals of innocents.
func (j *judgment) compare(s *Score, v *investigation) {
	unexplained := requestsOf(v.found)
	exact, estimate := newLimiter(j.keys, model{kind: slidingLog}), newLimiter(j.keys, model{})
	clients, bystanders := map[uint64]verdicts{}, map[netip.Prefix]bool{}
	for _, q := range j.sent {
		if len(j.keys.of(q)) == 0 {
			continue
		}
		status := q.Answer.Status
		if q.outcome != passed {
			status = q.Answer.Expected
		}
		shed := q.outcome == refused && v.last.mayShed[q]
		k := exact.decide(q, status, shed)
		over, estimated := k != nil, estimate.decide(q, status, shed) != nil
		s.Requests++
		addIf(&s.AttackRequests, q.Attack)
		if over {
			s.Exact++
			s.rule(k).ExactRefused++
		}
		d := &s.WronglyAllowed
		switch q.outcome {
		case passed:
		case refused:
			d = &s.WronglyRefused
			j.refusal(s, q, bystanders)
		case unavailable:
			s.Unavailable++
		default:
			s.Unknown++
		}
		wrong := q.outcome == passed && over || q.outcome == refused && !over
		if shed && !over { // not because of the client's own requests
			wrong = unexplained[q]
		} else {
			x := clients[q.Client]
			x.attack, x.over = x.attack || q.Attack, x.over || over
			if !x.over {
				x.crossed = q.Sent
			}
			if q.outcome == refused && x.over && !x.refused {
				x.refused, x.first = true, q.Done
			}
			clients[q.Client] = x
			through := q.outcome == passed && q.Attack
			addIf(&s.LetThroughAfter, through && over)
			addIf(&s.LetThroughBefore, through && !x.over)
		}
		if !wrong {
			continue
		}
		d.Requests++
		switch {
		case unexplained[q]:
			d.Unexplained++
		case estimated != over:
			d.Estimate++
		default:
			d.Lag++
		}
	}
	var waits []int64
	for _, x := range clients {
		switch {
		case !x.over:
			continue
		case x.refused:
			waits = append(waits, x.first-x.crossed)
		case x.attack:
			s.AttackNotRefused++
		}
		s.ClientsOver++
	}
	s.FirstRefusal = spreadOf(waits, 1e3)
	s.LegitimateRequests = s.Requests - s.AttackRequests
}

// Verdicts tell whether a client is an attacker, whether it was refused, and whether an exact limiter refuses it.
type verdicts struct {
	attack, refused, over bool
	crossed, first        int64 // when the first request beyond a limit was sent, and the first refusal arrived
}

// overshoot measures how far keys exceeded their thresholds within a period.
func (j *judgment) overshoot() Spread {
	logs, peaks := newLimiter(j.keys, model{kind: slidingLog}), map[*key]int64{}
	for _, q := range j.done {
		for _, k := range j.keys.of(q) {
			if q.outcome != passed || !countsStatus(k.rule, q.Answer.Status) {
				continue
			}
			for _, c := range logs.keys[k.n].counters {
				c.add(q.Done, q.Done)
				if more := c.count(q.Done) - c.threshold; more > 0 {
					peaks[k] = max(peaks[k], more)
				}
			}
		}
	}
	return spreadOf(slices.Collect(maps.Values(peaks)), 1)
}

// spreadOf returns the distribution of values, in a unit.
func spreadOf(values []int64, unit float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	slices.Sort(values)
	at := func(pct int) float64 { return float64(values[(len(values)*pct+99)/100-1]) / unit }
	return Spread{uint64(len(values)), at(50), at(90), at(99), at(100)}
}
