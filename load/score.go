package load

import (
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/edgelimit/edge/pop/rule"
)

// A Score says how right the answers of a run were. An exact limiter counts by a sliding log,
// as that of the replay. Requests that passed or were refused otherwise are explained by the
// estimate, where one that knows everything at once decides so too; by the lag, where the
// bound on it allows for that; or not at all.
type Score struct {
	Requests uint64 `json:"requests"` // that a rule concerns
	Refused  uint64 `json:"refused"`
	Exact    uint64 `json:"exact_refused"` // by an exact limiter
	Unknown  uint64 `json:"unknown"`       // without an answer

	WronglyRefused Disagreement `json:"wrongly_refused"`
	WronglyAllowed Disagreement `json:"wrongly_allowed"`

	// Innocent clients never exceed a threshold, with every request counted, refused or
	// not, by the estimate or by an exact log. InnocentByEstimate are requests of those that
	// only the estimate finds over.
	InnocentRefused    uint64 `json:"innocent_refused"`
	InnocentByEstimate uint64 `json:"innocent_refused_by_estimate"`

	// Of the attack: what passed before an exact limiter would have refused anything of its
	// client, and what passed that it would have refused.
	AttackRequests   uint64 `json:"attack_requests"`
	LetThroughBefore uint64 `json:"attack_passed_before"`
	LetThroughAfter  uint64 `json:"attack_passed_after"`
	AttackNotRefused uint64 `json:"attack_never_refused"` // clients of whom something should have been
	ClientsOver      uint64 `json:"clients_over"`         // clients of whom an exact limiter refuses something

	// Since the request that crosses a threshold, in milliseconds: until the first refusal,
	// and until the last request passed that should not have.
	FirstRefusal Times `json:"first_refusal_ms"`
	AllRefuse    Times `json:"all_refuse_ms"`

	// Overshoot is how many requests passed in a period beyond the threshold, of each key
	// for which that is any.
	Overshoot Overshoot `json:"overshoot"`

	RetryAfter RetryAfter  `json:"retry_after"`
	Headers    Headers     `json:"headers"`
	Rules      []RuleScore `json:"rules"`
	Faults     []Fault     `json:"faults"`
}

// A Disagreement is what was answered otherwise than by an exact limiter.
type Disagreement struct {
	Requests    uint64 `json:"requests"`
	Estimate    uint64 `json:"estimate"`
	Lag         uint64 `json:"lag"`
	Unexplained uint64 `json:"unexplained"`
}

// Times is a distribution over clients, in milliseconds.
type Times struct {
	Clients uint64  `json:"clients"`
	P50     float64 `json:"p50"`
	P99     float64 `json:"p99"`
	Max     float64 `json:"max"`
}

// An Overshoot is a distribution over keys, in requests.
type Overshoot struct {
	Keys uint64 `json:"keys"`
	P50  int64  `json:"p50"`
	P90  int64  `json:"p90"`
	P99  int64  `json:"p99"`
	Max  int64  `json:"max"`
}

// RetryAfter says whether those who came back when they were told to were let in.
type RetryAfter struct {
	Checked uint64 `json:"checked"`
	Untrue  uint64 `json:"untrue"` // they were refused
}

// Headers says whether what answers say agrees with their status.
type Headers struct {
	NoRetryAfter uint64 `json:"refused_without_retry_after"`
	Remaining    uint64 `json:"refused_with_remaining"` // they say that more requests may come

	// OtherTime are refusals whose limits of which nothing remains are all back, by the t of
	// RateLimit or by X-RateLimit-Reset, at another time than that of Retry-After.
	OtherTime uint64 `json:"refused_with_other_time"`

	PassedRetryAfter uint64 `json:"passed_with_retry_after"` // they say to come back later

	// NoneRemains are answers that pass with an r of 0 in RateLimit, though all requests of
	// their client, in the whole run, are fewer than each threshold. What was counted before
	// the run is over when they are looked at.
	NoneRemains uint64 `json:"passed_with_none_remaining"`

	// BeyondLimit are answers that say that more remains than the limit is.
	BeyondLimit uint64 `json:"remaining_beyond_limit"`
}

// sum is how many answers disagree.
func (h Headers) sum() uint64 {
	return h.NoRetryAfter + h.Remaining + h.OtherTime + h.PassedRetryAfter + h.NoneRemains + h.BeyondLimit
}

// A RuleScore is what one rule did.
type RuleScore struct {
	Rule            string `json:"rule"`
	Refused         uint64 `json:"refused"`
	ExactRefused    uint64 `json:"exact_refused"`
	InnocentRefused uint64 `json:"innocent_refused"`
	InnocentByEst   uint64 `json:"innocent_refused_by_estimate"`
}

// Score holds what a run was answered against rules.
func (l *Log) Score(o OracleOptions) (*Score, error) {
	x := newOracle(l, o)
	if err := x.decide(); err != nil {
		return nil, err
	}
	j := x.judge(model{})
	s := &Score{}
	x.compare(s, j)
	x.innocents(s, j)
	x.crossings(s)
	x.overshoot(s, j)
	s.RetryAfter = x.returned(j)
	s.Headers = x.headers()
	x.faults(s, j)
	return s, nil
}

// compare holds each answer against what the exact limiter says.
func (x *oracle) compare(s *Score, j *judgement) {
	for _, r := range x.rules {
		s.Rules = append(s.Rules, RuleScore{Rule: r.ID})
	}
	unexplained := map[int32]bool{}
	for _, i := range slices.Concat(j.leaks, j.wrong) {
		unexplained[i] = true
	}
	for i, o := range x.outcomes {
		if o == unmade || o == outside {
			continue
		}
		s.Requests++
		if x.exact[i] {
			s.Exact++
			if n := x.exactRules[i]; n >= 0 {
				s.Rules[n].ExactRefused++
			}
		}
		switch o {
		case unknown:
			s.Unknown++
			continue
		case refused:
			s.Refused++
			if r := x.ruleOf(j, int32(i)); r != nil {
				s.Rules[r.Index].Refused++
			}
		}
		d := &s.WronglyAllowed
		if o == refused {
			d = &s.WronglyRefused
		}
		if (o == refused) == x.exact[i] {
			continue
		}
		d.Requests++
		switch {
		case unexplained[int32(i)]:
			d.Unexplained++
		case x.estimate[i] == (o == refused):
			d.Estimate++
		default:
			d.Lag++
		}
	}
}

// ruleOf returns the rule that refused a request, as far as can be told.
func (x *oracle) ruleOf(j *judgement, i int32) *rule.Rule {
	q := &x.log.records[i]
	var first *rule.Rule
	for _, n := range x.keysOf[x.first[i]] {
		r := x.keys[n].rule
		if first == nil && (r.Response.Status == int(q.status) || q.status == 0 && r.Action == rule.Close) {
			first = r
		}
		if k := j.keys[n]; k != nil && k.mayUntil >= x.began+q.sent && r.Response.Status == int(q.status) {
			return r
		}
	}
	return first
}

// innocents counts what was refused of those who exceed nothing.
func (x *oracle) innocents(s *Score, j *judgement) {
	for i, o := range x.outcomes {
		if o != refused || x.log.records[i].status == 503 {
			continue
		}
		overExact, overEstimate := false, false
		for _, n := range x.keysOf[x.first[i]] {
			if k := j.keys[n]; k != nil {
				overExact, overEstimate = overExact || k.overExact, overEstimate || k.overEstimate
			}
		}
		r := x.ruleOf(j, int32(i))
		switch {
		case overExact:
		case overEstimate:
			s.InnocentByEstimate++
			if r != nil {
				s.Rules[r.Index].InnocentByEst++
			}
		default:
			s.InnocentRefused++
			if r != nil {
				s.Rules[r.Index].InnocentRefused++
			}
		}
	}
}

// A crossing is when a client exceeded a threshold first, and what followed.
type crossing struct {
	attack   bool
	at       int64 // when it sent the request that crossed
	over     bool  // the exact limiter refuses it since
	ended    bool  // and no longer does
	refused  int64 // when it was refused first; −1 before
	lastPass int64 // when the last request was answered that should not have passed
}

// crossings measures how fast those were refused who had to be.
func (x *oracle) crossings(s *Score) {
	clients := map[uint64]*crossing{}
	for i, o := range x.outcomes {
		if o == unmade || o == outside {
			continue
		}
		q := &x.log.records[i]
		attack := x.log.o.Source.Components()[x.log.looks[q.look-1].Component].Attack
		c := clients[q.client]
		if c == nil {
			c = &crossing{refused: -1}
			clients[q.client] = c
		}
		c.attack = c.attack || attack
		if attack {
			s.AttackRequests++
		}
		switch {
		case !x.exact[i]:
			if !c.over {
				c.at = q.sent
			}
			c.ended = c.over
			if attack && o == passed && !c.over {
				s.LetThroughBefore++
			}
		default:
			c.over = true
			if o == passed {
				if attack {
					s.LetThroughAfter++
				}
				if !c.ended {
					c.lastPass = q.done
				}
			}
		}
		if o == refused && c.refused < 0 {
			c.refused = q.done
		}
	}
	first, all := newHistogram(), newHistogram()
	for _, c := range clients {
		if !c.over {
			continue
		}
		s.ClientsOver++
		if c.refused < 0 {
			if c.attack {
				s.AttackNotRefused++
			}
			continue
		}
		recordIn(first, c.refused-c.at)
		recordIn(all, max(c.refused, c.lastPass)-c.at)
	}
	s.FirstRefusal, s.AllRefuse = timesOf(first), timesOf(all)
}

func timesOf(h *hdrhistogram.Histogram) Times {
	if h.TotalCount() == 0 {
		return Times{}
	}
	return Times{uint64(h.TotalCount()), float64(h.ValueAtQuantile(50)) / 1e3, float64(h.ValueAtQuantile(99)) / 1e3, float64(h.Max()) / 1e3}
}

// overshoot measures how much more passed in a period than the threshold.
func (x *oracle) overshoot(s *Score, j *judgement) {
	var beyond []int64
	for _, k := range j.keys {
		if k == nil {
			continue
		}
		most := int64(0)
		for _, b := range k.bounds {
			most = max(most, int64(b.peak)-int64(b.limit.Threshold))
		}
		if most > 0 {
			beyond = append(beyond, most)
		}
	}
	n := len(beyond)
	if n == 0 {
		return
	}
	slices.Sort(beyond)
	at := func(pct int) int64 { return beyond[(n*pct+99)/100-1] }
	s.Overshoot = Overshoot{uint64(n), at(50), at(90), at(99), beyond[n-1]}
}

// A promise is what was said of a key last.
type promise struct {
	sent     int64 // when the request was that was refused
	until    int64 // when it may come back; 0 before any refusal
	lastPass int64 // when a request of the key was answered last that was not refused
}

// returned checks requests that came when Retry-After was over, with nothing of their keys
// having passed since, nor so shortly before that it was not counted yet.
//
// Where several rules refuse alike, Retry-After is that of the longest mitigation. So it is
// said of each key of the request that its own is over by then, and a request has to pass when
// that was said of all its keys. Where the actions of the rules differ, the most severe one
// answers, and says nothing of the others.
func (x *oracle) returned(j *judgement) (r RetryAfter) {
	promises := make([]promise, len(x.keys))
	for n := range promises {
		promises[n].lastPass = -x.slack.lag
	}
	wrong := make(map[int32]bool, len(j.wrong))
	for _, i := range j.wrong {
		wrong[i] = true
	}
	for i, o := range x.outcomes {
		q, keys := &x.log.records[i], x.keysOf[x.first[i]]
		if o == unmade || o == outside {
			continue
		}
		due := !slices.ContainsFunc(keys, func(n int32) bool {
			p := &promises[n]
			return p.until == 0 || q.sent < p.until+returnMargin.Microseconds() || p.sent < p.lastPass+x.slack.lag
		})
		told := o == refused && x.prominent(q, int32(i)) // by a rule, not for want of a shard
		switch {
		case due && o == passed:
			r.Checked++
		case due && told && !wrong[int32(i)]:
			r.Checked++
			r.Untrue++
		}
		for _, n := range keys {
			switch p := &promises[n]; {
			case o != refused:
				p.lastPass = max(p.lastPass, q.done)
			case told && q.retry > 0 && x.actAlike(keys):
				p.sent, p.until = q.sent, q.done+int64(q.retry)*1e6
			}
		}
	}
	return r
}

// actAlike reports whether the rules of keys have one action.
func (x *oracle) actAlike(keys []int32) bool {
	return !slices.ContainsFunc(keys, func(n int32) bool { return x.keys[n].rule.Action != x.keys[keys[0]].rule.Action })
}

// headers holds what answers say against their status.
func (x *oracle) headers() (h Headers) {
	for i, o := range x.outcomes {
		q := &x.log.records[i]
		visible := o == passed || o == refused && q.status != 0 && x.prominent(q, int32(i))
		if visible && q.flags&beyondLimit != 0 {
			h.BeyondLimit++
		}
		switch {
		case visible && o == refused:
			if q.retry == 0 {
				h.NoRetryAfter++
			}
			if q.remaining > 0 {
				h.Remaining++
			}
			if q.flags&otherTime != 0 {
				h.OtherTime++
			}
		case o == passed && q.retry > 0 && q.status < 400:
			h.PassedRetryAfter++
		case o == passed && q.flags&noneRemains != 0 && x.alone(q) && x.modest(x.first[i]):
			h.NoneRemains++
		}
	}
	return h
}

// prominent reports whether the refusal of a request is to be seen as one.
func (x *oracle) prominent(q *record, i int32) bool {
	return slices.ContainsFunc(x.keysOf[x.first[i]], func(n int32) bool {
		r := x.keys[n].rule
		return (r.Action == rule.Block || r.Action == rule.Close) && r.Response.Status == int(q.status)
	})
}
