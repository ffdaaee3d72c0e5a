package judge

import (
	"cmp"
	"maps"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/edgelimit/edge/pop/rule"
)

// A limiter decides requests like a limiter that counts every request without delay.
type limiter struct {
	b    *book
	m    model
	keys []limited
}

// limited is the state of a key in a limiter.
type limited struct {
	counters []counter
	until    int64 // of its mitigation
}

func newLimiter(b *book, m model) *limiter { return &limiter{b, m, make([]limited, len(b.keys))} }

// decide returns the index of the key because of which a request is refused, or −1 if it passes.
// status is that of the origin's answer. The limiter does not know which clients are shed: shed
// must be true if a shedding rule of the target may have refused the request, which then counts
// only for mitigated keys that count refused requests.
func (l *limiter) decide(i int32, q *Request, status int, shed bool) int32 {
	by := int32(-1)
	for _, k := range l.b.keysOf(i) {
		if q.Sent < l.keys[k].until && (by < 0 || l.prevails(k, by)) {
			by = k
		}
	}
	for _, k := range l.b.keysOf(i) {
		r := l.b.keys[k].rule
		timeout := r.MitigationTimeout.Microseconds()
		if r.Action == rule.Shed {
			continue
		}
		if mitigated := q.Sent < l.keys[k].until; (by >= 0 || shed) && !(mitigated && r.CountWhileMitigated) {
			continue
		} else if mitigated {
			timeout = 0 // it is only prolonged
		}
		if !countsStatus(r, status) {
			continue
		}
		for n, limit := range r.Limits {
			if l.b.keys[k].most() <= int64(min(limit.Threshold, 1<<62)) {
				continue // never exceeded; there may be a million such keys
			}
			known := &l.keys[k]
			if known.counters == nil {
				known.counters = make([]counter, len(r.Limits))
			}
			if known.counters[n] == nil {
				known.counters[n] = l.m.counter(r, limit)
			}
			c := known.counters[n]
			c.add(q.Sent, q.Sent, true)
			if c.over(q.Sent, int64(limit.Threshold)) {
				known.until = max(known.until, q.Sent+timeout, c.back(q.Sent, int64(limit.Threshold)))
			}
		}
	}
	return by
}

// prevails reports whether the mitigation of a takes precedence over that of b: the more severe
// action, then the later end, then the first rule.
func (l *limiter) prevails(a, b int32) bool {
	x, y := l.b.keys[a].rule, l.b.keys[b].rule
	return cmp.Or(cmp.Compare(x.Action, y.Action), cmp.Compare(l.keys[a].until, l.keys[b].until), cmp.Compare(y.Index, x.Index)) > 0
}

// compare compares each answer with that of an exact limiter, which logs every request of each
// client, and measures how soon clients that exceed a threshold are refused.
func (c *court) compare(s *Score, v *investigation) {
	for _, r := range c.rules {
		s.Rules = append(s.Rules, RuleScore{Rule: r.ID})
	}
	rules := map[string]*RuleScore{}
	for i := range s.Rules {
		rules[s.Rules[i].Rule] = &s.Rules[i]
	}
	unexplained := requestsOf(v.found)
	exact, estimate := newLimiter(c.book, model{kind: slidingLog}), newLimiter(c.book, model{})
	clients := map[uint64]*crossing{}
	for i, o := range c.outcomes {
		i := int32(i)
		if o == unsent || len(c.book.keysOf(i)) == 0 {
			continue
		}
		q := c.at(i)
		status := q.Answer.Status
		if o != passed {
			status = q.Answer.Expected
		}
		shed := o == refused && v.last.sheds(i)
		k := exact.decide(i, &q, status, shed)
		over, estimated := k >= 0, estimate.decide(i, &q, status, shed) >= 0
		s.Requests++
		if over {
			s.Exact++
			rules[c.book.keys[k].rule.ID].ExactRefused++
		}
		if shed && !over { // not because of the client's own requests
			s.Refused++
			if q.Attack {
				s.AttackRequests++
			}
			if unexplained[i] {
				s.WronglyRefused.Requests++
				s.WronglyRefused.Unexplained++
			}
			continue
		}
		cross(s, clients, &q, o, over)
		d := &s.WronglyAllowed
		switch o {
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
		if (o == refused) == over {
			continue
		}
		d.Requests++
		switch {
		case unexplained[i]:
			d.Unexplained++
		case estimated == (o == refused):
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
func cross(s *Score, clients map[uint64]*crossing, q *Request, o outcome, over bool) {
	x := clients[q.Client]
	if x == nil {
		x = &crossing{at: q.Sent, refused: -1}
		clients[q.Client] = x
	}
	x.attack = x.attack || q.Attack
	if q.Attack {
		s.AttackRequests++
	}
	switch {
	case !over:
		if !x.over {
			x.at = q.Sent
		}
		x.ended = x.over
		if q.Attack && o == passed && !x.over {
			s.LetThroughBefore++
		}
	default:
		x.over = true
		if o == passed && q.Attack {
			s.LetThroughAfter++
		}
		if o == passed && !x.ended {
			x.lastPass = q.Done
		}
	}
	if o == refused && x.refused < 0 {
		x.refused = q.Done
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
	logs, peaks := map[int32][]log{}, map[int32]int64{}
	for _, i := range c.byDone {
		if c.outcomes[i] != passed {
			continue
		}
		q := c.at(i)
		for _, k := range c.book.keysOf(i) {
			r := c.book.keys[k].rule
			if !countsStatus(r, q.Answer.Status) {
				continue
			}
			for n, limit := range r.Limits {
				if c.book.keys[k].most() <= int64(min(limit.Threshold, 1<<62)) {
					continue
				}
				if logs[k] == nil {
					logs[k] = make([]log, len(r.Limits))
				}
				l := &logs[k][n]
				l.period, l.cost = limit.Period.Microseconds(), costOf(r)
				l.add(q.Done, q.Done, true)
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
