package judge

import "slices"

// A Score says how correct the answers of a run were, compared with an exact limiter, which keeps
// a log of every client. A difference is explained by the estimate, if a limiter that estimates
// and learns of every request at once decides likewise; by the lag, if its bound allows for that;
// or not at all.
type Score struct {
	Requests    uint64 `json:"requests"` // that a rule matches
	Refused     uint64 `json:"refused"`
	Exact       uint64 `json:"exact_refused"` // by an exact limiter
	Unknown     uint64 `json:"unknown"`       // without an answer from the origin or a rule
	Unavailable uint64 `json:"unavailable"`   // refused because their shard was unavailable

	WronglyRefused Disagreement `json:"wrongly_refused"`
	WronglyAllowed Disagreement `json:"wrongly_allowed"`

	// Innocent clients never exceed a threshold, by the estimate or by an exact log, with
	// every request counted, even if refused. InnocentByEstimate counts requests of clients
	// that exceed one only by the estimate.
	InnocentRefused    uint64 `json:"innocent_refused"`
	InnocentByEstimate uint64 `json:"innocent_refused_by_estimate"`

	// Attack requests that passed before an exact limiter would first have refused their
	// client, and those that passed although it would have refused them.
	AttackRequests   uint64 `json:"attack_requests"`
	LetThroughBefore uint64 `json:"attack_passed_before"`
	LetThroughAfter  uint64 `json:"attack_passed_after"`
	AttackNotRefused uint64 `json:"attack_never_refused"` // attackers that should have been refused and never were
	ClientsOver      uint64 `json:"clients_over"`         // clients that an exact limiter refuses at times

	// Time since the request that crosses a threshold, in milliseconds: until the first
	// refusal, and until the last request that should not have passed.
	FirstRefusal Times `json:"first_refusal_ms"`
	AllRefuse    Times `json:"all_refuse_ms"`

	// Overshoot is how many requests beyond the threshold passed in a period, for keys that
	// exceeded it.
	Overshoot Overshoot `json:"overshoot"`

	RetryAfter RetryAfter  `json:"retry_after"`
	Headers    Headers     `json:"headers"`
	Rules      []RuleScore `json:"rules"`
	Faults     []Fault     `json:"faults"`

	// NotJudged are the rules that this package does not fully know, each with the reason.
	NotJudged []string `json:"not_judged"`
}

// A Disagreement counts answers that differ from those of an exact limiter, by cause.
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

// A RuleScore is what one rule did.
type RuleScore struct {
	Rule            string `json:"rule"`
	Refused         uint64 `json:"refused"`
	ExactRefused    uint64 `json:"exact_refused"`
	InnocentRefused uint64 `json:"innocent_refused"`
	InnocentByEst   uint64 `json:"innocent_refused_by_estimate"`
}

// score computes the Score.
func (c *court) score() *Score {
	s := &Score{Faults: []Fault{}, NotJudged: slices.Clone(c.why), Rules: []RuleScore{}}
	if s.NotJudged == nil {
		s.NotJudged = []string{}
	}
	i := c.investigate(s)
	c.compare(s, i.found)
	c.innocents(s, i)
	s.Overshoot = c.overshoot()
	i.report(s)
	return s
}

// innocents counts refused requests by rule, and those of clients that exceed no threshold.
func (c *court) innocents(s *Score, v *investigation) {
	rules := map[string]*RuleScore{}
	for i := range s.Rules {
		rules[s.Rules[i].Rule] = &s.Rules[i]
	}
	for i, o := range c.outcomes {
		if o != refused {
			continue
		}
		q := c.at(int32(i))
		overExact, overEstimate, likely := false, false, false
		var by *RuleScore
		for _, k := range c.book.keysOf(int32(i)) {
			overExact, overEstimate = overExact || v.overExact[k], overEstimate || v.overEstimate[k]
			if r := c.book.keys[k].rule; refuses(r, &q.Answer) && (by == nil || v.overEstimate[k] && !likely) {
				by, likely = rules[r.ID], v.overEstimate[k]
			}
		}
		by.Refused++
		switch {
		case overExact:
		case overEstimate:
			s.InnocentByEstimate++
			by.InnocentByEst++
		default:
			s.InnocentRefused++
			by.InnocentRefused++
		}
	}
}
