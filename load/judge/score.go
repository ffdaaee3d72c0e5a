package judge

import "slices"

// A Score says how right the answers of a run were. An exact limiter keeps a log of every client.
// Requests that passed or were refused otherwise are explained by the estimate, where a limiter
// that estimates and knows everything at once decides so too; by the lag, where the bound on it
// allows for that; or not at all.
type Score struct {
	Requests    uint64 `json:"requests"` // that a rule concerns
	Refused     uint64 `json:"refused"`
	Exact       uint64 `json:"exact_refused"` // by an exact limiter
	Unknown     uint64 `json:"unknown"`       // without an answer of the origin or of a rule
	Unavailable uint64 `json:"unavailable"`   // refused because their shard was out

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

	// NotJudged are the rules that say something that this package does not know, with what
	// that is.
	NotJudged []string `json:"not_judged"`
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

// A RuleScore is what one rule did.
type RuleScore struct {
	Rule            string `json:"rule"`
	Refused         uint64 `json:"refused"`
	ExactRefused    uint64 `json:"exact_refused"`
	InnocentRefused uint64 `json:"innocent_refused"`
	InnocentByEst   uint64 `json:"innocent_refused_by_estimate"`
}

// score finds out everything.
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

// innocents counts what was refused, by rule, and of it what was refused of those that exceed
// nothing.
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
