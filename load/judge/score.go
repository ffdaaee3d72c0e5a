package judge

import (
	"net/netip"
	"slices"
)

// A Score compares the answers of a run with those of an exact limiter, which logs every request of each client. A
// difference is attributed to the estimate if a limiter that estimates, but counts every request without delay, decides
// the same way; to the lag if its bound allows for the difference; otherwise, it is unexplained.
type Score struct {
	Requests    uint64 `json:"requests"` // matched by a rule
	Refused     uint64 `json:"refused"`
	Exact       uint64 `json:"exact_refused"` // by an exact limiter
	Unknown     uint64 `json:"unknown"`       // without an answer from the origin or a rule
	Unavailable uint64 `json:"unavailable"`   // refused because their shard was unavailable

	WronglyRefused Disagreement `json:"wrongly_refused"`
	WronglyAllowed Disagreement `json:"wrongly_allowed"`

	// InnocentRefused counts refused requests of clients that never exceed a threshold, neither by the estimate nor by
	// an exact log, with every request counted, even refused ones. InnocentByEstimate counts those of clients that
	// exceed one only by the estimate.
	InnocentRefused    uint64 `json:"innocent_refused"`
	InnocentByEstimate uint64 `json:"innocent_refused_by_estimate"`

	// Bystanders are clients that were refused because of a key that they share with others, such as their network, and
	// that never exceed a threshold of their own. Legitimate bystanders are those that are not attackers: see
	// Request.Attack.
	BystandersRefused  uint64 `json:"bystanders_refused"` // requests
	Bystanders         uint64 `json:"bystanders"`
	LegitimateRefused  uint64 `json:"legitimate_bystanders_refused"` // requests
	Legitimate         uint64 `json:"legitimate_bystanders"`
	LegitimateRequests uint64 `json:"legitimate_requests"` // of all legitimate clients, matched by a rule

	// LetThroughBefore counts attack requests that passed before an exact limiter would first have refused their
	// client, LetThroughAfter those that passed although it would have refused them.
	AttackRequests   uint64 `json:"attack_requests"`
	LetThroughBefore uint64 `json:"attack_passed_before"`
	LetThroughAfter  uint64 `json:"attack_passed_after"`
	AttackNotRefused uint64 `json:"attack_never_refused"` // attackers that should have been refused and never were
	ClientsOver      uint64 `json:"clients_over"`         // clients that an exact limiter refuses at least once

	// Overshoot is the number of requests beyond the threshold that passed in a period, for keys that exceeded it.
	Overshoot Spread `json:"overshoot"`

	// FirstRefusal is the time in milliseconds from a client's request that exceeds a limit to its first refusal.
	FirstRefusal Spread `json:"first_refusal_ms"`

	// Shed describes what each shedding rule let through.
	Shed []Shed `json:"shed"`

	RetryAfter RetryAfter  `json:"retry_after"`
	Headers    Headers     `json:"headers"`
	Rules      []RuleScore `json:"rules"`
	Faults     []Fault     `json:"faults"`

	// NotJudged lists the rules that this package does not fully understand, each with the reason.
	NotJudged []string `json:"not_judged"`
}

// A Disagreement counts answers that differ from those of an exact limiter, by cause.
type Disagreement struct {
	Requests    uint64 `json:"requests"`
	Estimate    uint64 `json:"estimate"`
	Lag         uint64 `json:"lag"`
	Unexplained uint64 `json:"unexplained"`
}

// A Spread is a distribution over keys or clients.
type Spread struct {
	Keys uint64  `json:"keys"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// A RuleScore is the part of a Score for one rule.
type RuleScore struct {
	Rule            string `json:"rule"`
	Refused         uint64 `json:"refused"`
	ExactRefused    uint64 `json:"exact_refused"`
	InnocentRefused uint64 `json:"innocent_refused"`
	InnocentByEst   uint64 `json:"innocent_refused_by_estimate"`
	Bystanders      uint64 `json:"bystanders_refused"`
}

// rule returns the part of s for a key's rule.
func (s *Score) rule(k *key) *RuleScore {
	return &s.Rules[slices.IndexFunc(s.Rules, func(r RuleScore) bool { return r.Rule == k.rule.ID })]
}

// score computes the Score.
func (j *judgment) score() *Score {
	s := &Score{Faults: []Fault{}, NotJudged: append([]string{}, j.why...), Rules: []RuleScore{}, Shed: []Shed{}}
	for _, r := range j.rules {
		s.Rules = append(s.Rules, RuleScore{Rule: r.ID})
	}
	i := j.investigate()
	j.compare(s, i)
	s.Overshoot = j.overshoot()
	i.report(s)
	return s
}

// refusal counts a refused request by rule, and as innocent if its client exceeds no threshold. It looks first at the
// client's own keys, such as its address, and then at the keys that it shares with others. bystanders holds the
// bystanders so far, and whether any of them is legitimate.
func (j *judgment) refusal(s *Score, q *request, bystanders map[netip.Prefix]bool) {
	overExact, overEstimate, overShared := false, false, false
	var by *key
	for _, k := range j.keys.of(q) {
		if k.width > 0 {
			overShared = overShared || k.over()
		} else {
			overExact, overEstimate = overExact || k.overExact, overEstimate || k.overEstimate
		}
		if refuses(k.rule, &q.Answer) && (by == nil || k.overEstimate && !by.overEstimate) {
			by = k
		}
	}
	r := s.rule(by)
	s.Refused++
	r.Refused++
	switch {
	case overExact:
	case overEstimate:
		s.InnocentByEstimate++
		r.InnocentByEst++
	case overShared:
		client := j.keys.senders[q.i].client
		legitimate, known := bystanders[client]
		bystanders[client] = legitimate || !q.Attack
		s.BystandersRefused++
		r.Bystanders++
		addIf(&s.LegitimateRefused, !q.Attack)
		addIf(&s.Bystanders, !known)
		addIf(&s.Legitimate, !q.Attack && !legitimate)
	default:
		s.InnocentRefused++
		r.InnocentRefused++
	}
}

// addIf increments n if a condition holds.
func addIf(n *uint64, holds bool) {
	if holds {
		*n++
	}
}
