package judge

import (
	"cmp"
	"maps"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A limiter decides requests as if each were counted without delay.
type limiter struct {
	b    *book
	m    model
	keys []limited
}

// limited is the state of a key in a limiter.
type limited struct {
	counters []*counter
	until    int64 // of its mitigation
}

func newLimiter(b *book, m model) *limiter { return &limiter{b, m, make([]limited, len(b.keys))} }

// decide returns the key because of which a request is refused, or nil if it passes.
// status is that of the origin's answer. The limiter does not know which clients are shed: shed
// must be true if a shedding rule of the target may have refused the request, which then counts
// only for mitigated keys that count refused requests.
func (l *limiter) decide(q *request, status int, shed bool) *key {
	var by *key
	for _, k := range l.b.keysOf(q) {
		if q.Sent < l.keys[k.n].until && (by == nil || l.prevails(k, by)) {
			by = k
		}
	}
	for _, k := range l.b.keysOf(q) {
		known, timeout := &l.keys[k.n], k.rule.MitigationTimeout.Microseconds()
		mitigated := q.Sent < known.until
		if k.sheds() || !countsStatus(k.rule, status) || (by != nil || shed) && !(mitigated && k.rule.CountWhileMitigated) {
			continue
		}
		if mitigated {
			timeout = 0 // it is only prolonged
		}
		for n, limit := range k.rule.Limits {
			if !k.mayExceed(limit) {
				continue // there may be a million such keys
			}
			c := l.counter(k, n)
			c.add(q.Sent, q.Sent)
			if c.over(q.Sent, int64(limit.Threshold)) {
				known.until = max(known.until, q.Sent+timeout, c.back(q.Sent, int64(limit.Threshold)))
			}
		}
	}
	return by
}

// counter returns the counter of a key for the nth limit.
func (l *limiter) counter(k *key, n int) *counter {
	list := &l.keys[k.n].counters
	if *list == nil {
		for _, limit := range k.rule.Limits {
			*list = append(*list, l.m.counter(k.rule, limit))
		}
	}
	return (*list)[n]
}

// prevails reports whether the mitigation of a takes precedence over that of b: the more severe
// action, then the later end, then the first rule.
func (l *limiter) prevails(a, b *key) bool {
	return cmp.Or(cmp.Compare(a.rule.Action, b.rule.Action), cmp.Compare(l.keys[a.n].until, l.keys[b.n].until), cmp.Compare(b.rule.Index, a.rule.Index)) > 0
}

// compare compares each answer with that of an exact limiter, which logs every request of each
// client, and measures how soon clients that exceed a threshold are refused.
func (c *court) compare(s *Score, v *investigation) {
	unexplained := requestsOf(v.found)
	exact, estimate := newLimiter(c.book, model{kind: slidingLog}), newLimiter(c.book, model{})
	clients := map[uint64]*crossing{}
	for _, q := range c.sent {
		if len(c.book.keysOf(q)) == 0 {
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
		if shed && !over { // not because of the client's own requests
			s.Refused++
			if unexplained[q] {
				s.WronglyRefused.Requests++
				s.WronglyRefused.Unexplained++
			}
			continue
		}
		cross(s, clients, q, over)
		d := &s.WronglyAllowed
		switch q.outcome {
		case passed:
		case refused:
			s.Refused++
			d = &s.WronglyRefused
		case unavailable:
			s.Unavailable++
			continue
		default:
			s.Unknown++
			continue
		}
		if (q.outcome == refused) == over {
			continue
		}
		d.Requests++
		switch {
		case unexplained[q]:
			d.Unexplained++
		case estimated == (q.outcome == refused):
			d.Estimate++
		default:
			d.Lag++
		}
	}
	first, all := hdrhistogram.New(1, 3600_000_000, 3), hdrhistogram.New(1, 3600_000_000, 3)
	record := func(h *hdrhistogram.Histogram, micros int64) {
		_ = h.RecordValue(min(max(micros, 1), h.HighestTrackableValue())) // within its bounds
	}
	for _, x := range clients {
		switch {
		case !x.over:
			continue
		case x.refused >= 0:
			record(first, x.refused-x.at)
			record(all, max(x.refused, x.lastPass)-x.at)
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

func timesOf(h *hdrhistogram.Histogram) Times {
	if h.TotalCount() == 0 {
		return Times{}
	}
	return Times{uint64(h.TotalCount()), float64(h.ValueAtQuantile(50)) / 1e3, float64(h.ValueAtQuantile(99)) / 1e3, float64(h.Max()) / 1e3}
}

// overshoot measures how far keys exceeded their thresholds within a period.
func (c *court) overshoot() (o Overshoot) {
	logs, peaks := newLimiter(c.book, model{kind: slidingLog}), map[*key]int64{}
	for _, q := range c.done {
		for _, k := range c.book.keysOf(q) {
			if q.outcome != passed || !countsStatus(k.rule, q.Answer.Status) {
				continue
			}
			for n, limit := range k.rule.Limits {
				if !k.mayExceed(limit) {
					continue // there may be a million such keys
				}
				l := logs.counter(k, n)
				l.add(q.Done, q.Done)
				if more := l.count(q.Done) - int64(limit.Threshold); more > 0 {
					peaks[k] = max(peaks[k], more)
				}
			}
		}
	}
	beyond := slices.Sorted(maps.Values(peaks))
	n := len(beyond)
	if n == 0 {
		return o
	}
	at := func(pct int) int64 { return beyond[(n*pct+99)/100-1] }
	return Overshoot{uint64(n), at(50), at(90), at(99), beyond[n-1]}
}
