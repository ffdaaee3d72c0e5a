package limit

import (
	"slices"
	"time"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/rule"
)

// An Ask asks whether one rule lets a request pass. It does not matter whether the rule matches.
type Ask struct {
	Rule    *rule.Rule
	Request *rule.Request
	Times   uint64 // how often to count the request; 0 only asks
	Listed  bool   // whether the access lists decide first

	// Report says that the request has already passed, and that its answer gives Times: how often it counts or, for a rule
	// with a CostSource, how much. It counts even if its key is mitigated, and the mitigation does not refuse it.
	Report bool
}

// DecideBy answers each of asks by its rule. If it refuses one, all except reports count as refused. A rule that counts
// by the answer counts only reports.
func (l *Limiter) DecideBy(asks []Ask, now time.Time) []Decision {
	rules := l.rules.Load()
	decisions := make([]Decision, len(asks))
	refused, by := false, int8(0)
	for i, ask := range asks {
		d := &decisions[i]
		ask.Request.Canonicalize(l.o.Client)
		only := []*rule.Rule{ask.Rule}
		switch {
		case ask.Request.Malformed:
			d.Verdict = Malformed
		case ask.Listed && l.listed(d, rules.set, ask.Request, now):
		case ask.Report:
			l.passed(d, only, ask.Request)
		default:
			d.decided = now.UnixMicro()
			l.lookUp(d, only, ask.Request, now)
			l.failClosed(d)
		}
		refused = refused || d.Verdict.Refused()
		if by == 0 || 0 < d.by && d.by < by {
			by = d.by
		}
		if !ask.Report {
			rules.count(d)
		}
	}
	for i, ask := range asks {
		d := &decisions[i]
		if ask.Report {
			l.countReport(d, ask.Times, now)
			continue
		}
		d.refusedWith, d.by = refused, by
		l.countArrival(d, ask.Request, ask.Times, now)
		if d.logged != nil {
			l.log(d, ask.Request, ask.Times)
		}
	}
	return decisions
}

// Report counts a request that another proxy has passed, as Answered does, for a caller that no longer
// has the decision: the request is matched again, by the rules now in force. Report canonicalizes
// req.
func (l *Limiter) Report(req *rule.Request, status int, fields Fields, now time.Time) {
	set := l.Rules()
	req.Canonicalize(l.o.Client)
	var d Decision
	if req.Malformed || l.listed(&d, set, req, now) {
		return
	}
	var matched [8]*rule.Rule
	rules := slices.DeleteFunc(set.Match(req, matched[:0]), func(r *rule.Rule) bool { return !r.CountsAnswer() })
	if len(rules) > 0 {
		l.passed(&d, rules, req)
		l.Answered(&d, status, fields, now)
		l.countWaiting(&d, func(path string) []string { return valuesOf(fields, path) }, costMissing, now)
	}
}

// passed makes d the decision for req, which has passed: every key of rules counts it, even if it is
// mitigated now.
func (l *Limiter) passed(d *Decision, rules []*rule.Rule, req *rule.Request) {
	var material [256]byte
	d.sample = async.Copy(sampleOf(req))
	for _, r := range rules {
		keys := r.Keys(material[:0], req)
		for i := range keys.Len() {
			key := l.o.Secret.Tag(keys.At(i))
			d.add(count{rule: r.Override(keys.At(i)), key: key, generation: l.o.Table.Generation(key)})
		}
	}
}

// countReport counts a request that has passed: n times or, for a rule with a CostSource, as n. It adds the reserve,
// which countAnswer subtracts: unlike a request that was decided here, a reported one has not counted it yet.
func (l *Limiter) countReport(d *Decision, n uint64, now time.Time) {
	for i := range d.n {
		c, cost := d.at(i), n
		if c.rule.CostSource() == "" {
			cost = c.rule.CostOf(n)
		}
		if cost > 0 {
			l.countAnswer(d, c, c.rule.Reserve+max(cost, c.rule.Reserve), now)
		}
	}
}
