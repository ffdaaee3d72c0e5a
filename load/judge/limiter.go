package judge

import (
	"cmp"
	"maps"
	"slices"
)

// A limiter decides requests as if each were counted without delay.
type limiter struct {
	k    *keying
	m    model
	keys []limited
}

// limited is the state of a key in a limiter.
type limited struct {
	counters []*counter
	created  bool
	until    int64 // of its mitigation
}

func newLimiter(k *keying, m model) *limiter { return &limiter{k, m, make([]limited, len(k.keys))} }

// decide returns the key because of which a request is refused, or nil if it passes. status is that of the origin's
// answer. The limiter does not know which clients are shed: shed must be true if a shedding rule of the target may have
// refused the request, which then counts only for mitigated keys that count refused requests.
func (l *limiter) decide(q *request, status int, shed bool) *key {
	var by *key
	for _, k := range l.k.of(q) {
		if q.Sent < l.keys[k.n].until && (by == nil || l.prevails(k, by)) {
			by = k
		}
	}
	for _, k := range l.k.of(q) {
		known, timeout := &l.keys[k.n], k.rule.MitigationTimeout.Microseconds()
		mitigated := q.Sent < known.until
		if k.sheds() || !countsStatus(k.rule, status) || (by != nil || shed) && !(mitigated && k.rule.CountWhileMitigated) {
			continue
		}
		if mitigated {
			timeout = 0 // it is only prolonged
		}
		l.count(k, q.Sent, func(c *counter) {
			if c.over(q.Sent) {
				known.until = max(known.until, q.Sent+timeout, c.back(q.Sent))
			}
		})
	}
	return by
}

// count counts a request under a key and calls see for each limit that the key may exceed. Few of a million keys may.
func (l *limiter) count(k *key, at int64, see func(c *counter)) {
	known := &l.keys[k.n]
	for _, limit := range k.rule.Limits {
		if !known.created && k.most(k.rule) > threshold(limit) {
			known.counters = append(known.counters, l.m.counter(k.rule, limit))
		}
	}
	known.created = true
	for _, c := range known.counters {
		c.add(at, at)
		see(c)
	}
}

// prevails reports whether the mitigation of a takes precedence over that of b: the more severe action, then the later
// end, then the first rule.
func (l *limiter) prevails(a, b *key) bool {
	return cmp.Or(cmp.Compare(a.rule.Action, b.rule.Action), cmp.Compare(l.keys[a.n].until, l.keys[b.n].until), cmp.Compare(b.rule.Index, a.rule.Index)) > 0
}

// compare compares each answer with that of an exact limiter, which logs every request of each client, and measures how
// soon clients that exceed a threshold are refused.
func (j *judgment) compare(s *Score, v *investigation) {
	unexplained := requestsOf(v.found)
	exact, estimate := newLimiter(j.keys, model{kind: slidingLog}), newLimiter(j.keys, model{})
	clients := map[uint64]*crossing{}
	for _, q := range j.sent {
		if len(j.keys.of(q)) == 0 {
			continue
		}
		status := q.Answer.Status
		if q.outcome != passed {
			status = q.Answer.Expected
		}
		shed := q.outcome == refused && v.last.shed[q]
		k := exact.decide(q, status, shed)
		over, estimated := k != nil, estimate.decide(q, status, shed) != nil
		s.Requests++
		if q.Attack {
			s.AttackRequests++
		}
		if over {
			s.Exact++
			s.rule(k).ExactRefused++
		}
		d := &s.WronglyAllowed
		switch q.outcome {
		case passed:
		case refused:
			s.Refused++
			d = &s.WronglyRefused
		case unavailable:
			s.Unavailable++
		default:
			s.Unknown++
		}
		wrong := q.outcome == passed && over || q.outcome == refused && !over
		if shed && !over { // not because of the client's own requests
			wrong = unexplained[q]
		} else {
			cross(s, clients, q, over)
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
	var first, all []int64
	for _, x := range clients {
		switch {
		case !x.over:
			continue
		case x.refused >= 0:
			first, all = append(first, x.refused-x.at), append(all, max(x.refused, x.lastPass)-x.at)
		case x.attack:
			s.AttackNotRefused++
		}
		s.ClientsOver++
	}
	s.FirstRefusal, s.AllRefuse = timesOf(first), timesOf(all)
}

// A crossing records when a client first exceeded a threshold, and what followed.
type crossing struct {
	attack   bool
	at       int64 // when the crossing request was sent
	over     bool  // the exact limiter refuses the client
	ended    bool  // the exact limiter no longer refuses it
	refused  int64 // first refusal; −1 if none yet
	lastPass int64 // when the last request that should have been refused was answered
}

// cross records the outcome of a request. over is whether an exact limiter would refuse it.
func cross(s *Score, clients map[uint64]*crossing, q *request, over bool) {
	x := clients[q.Client]
	if x == nil {
		x = &crossing{at: q.Sent, refused: -1}
		clients[q.Client] = x
	}
	x.attack = x.attack || q.Attack
	x.ended = x.ended || x.over && !over
	x.over = x.over || over
	if !x.over {
		x.at = q.Sent
	}
	switch {
	case q.outcome == refused && x.refused < 0:
		x.refused = q.Done
	case q.outcome != passed:
	case over:
		if q.Attack {
			s.LetThroughAfter++
		}
		if !x.ended {
			x.lastPass = q.Done
		}
	case !x.over && q.Attack:
		s.LetThroughBefore++
	}
}

func timesOf(micros []int64) Times {
	at := quantiles(micros)
	return Times{uint64(len(micros)), float64(at(50)) / 1e3, float64(at(99)) / 1e3, float64(at(100)) / 1e3}
}

// quantiles returns a function for the percentiles of values, which it sorts.
func quantiles(values []int64) func(pct int) int64 {
	slices.Sort(values)
	return func(pct int) int64 {
		if len(values) == 0 {
			return 0
		}
		return values[(len(values)*pct+99)/100-1]
	}
}

// overshoot measures how far keys exceeded their thresholds within a period.
func (j *judgment) overshoot() Overshoot {
	logs, peaks := newLimiter(j.keys, model{kind: slidingLog}), map[*key]int64{}
	for _, q := range j.done {
		for _, k := range j.keys.of(q) {
			if q.outcome != passed || !countsStatus(k.rule, q.Answer.Status) {
				continue
			}
			logs.count(k, q.Done, func(c *counter) {
				if more := c.count(q.Done) - c.threshold; more > 0 {
					peaks[k] = max(peaks[k], more)
				}
			})
		}
	}
	at := quantiles(slices.Collect(maps.Values(peaks)))
	return Overshoot{uint64(len(peaks)), at(50), at(90), at(99), at(100)}
}
