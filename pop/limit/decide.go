package limit

import (
	"strings"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/rule"
)

// A Verdict says what happens to a request.
type Verdict uint8

const (
	Passed       Verdict = iota // to the origin
	Allowed                     // to the origin, by the allow list
	Logged                      // to the origin; a rule would mitigate if its action were not log
	Denied                      // refused by the deny list
	Malformed                   // refused: rules cannot match it
	Unavailable                 // refused: a rule fails closed, and its key's shard is unavailable
	ShadowBanned                // answered without the origin
	Blocked                     // refused
	Closed                      // refused without an answer
	verdicts
)

var verdictNames = [verdicts]string{"passed", "allowed", "logged", "denied", "malformed", "unavailable", "shadow_banned", "blocked", "closed"}

// String returns the verdict as metrics and logs write it.
func (v Verdict) String() string { return verdictNames[v] }

// Refused reports whether the request is kept from the origin.
func (v Verdict) Refused() bool { return v >= Denied }

// verdictOf is the verdict of an active record, by its rule's action.
var verdictOf = [...]Verdict{rule.Log: Logged, rule.ShadowBan: ShadowBanned, rule.Block: Blocked, rule.Close: Closed}

// A Decision is the answer for one request.
type Decision struct {
	Verdict Verdict

	// Rule and Record are the mitigation that decided, if one did. Of several, the most
	// severe action decides, then the one that ends last, then the first rule in the files.
	// If the verdict is Unavailable, Rule is the first rule that fails closed, and Record is
	// zero.
	Rule   *rule.Rule
	Record mitigation.Record

	// The counts under keys without an active record. A rule's keys are adjacent. Requests
	// rarely have more than a few.
	counts [4]counted
	more   []counted
	n      int
	sample mitigation.Sample
}

// A counted is a request that a rule counts under a key.
type counted struct {
	rule       *rule.Rule
	key        counter.Key
	generation uint32 // how often the key's mitigation was lifted before
}

// add appends c to the counts.
func (d *Decision) add(c counted) {
	if d.n < len(d.counts) {
		d.counts[d.n] = c
	} else {
		d.more = append(d.more, c)
	}
	d.n++
}

// at returns the ith count.
func (d *Decision) at(i int) counted {
	if i < len(d.counts) {
		return d.counts[i]
	}
	return d.more[i-len(d.counts)]
}

// Decide decides a request that arrived at now, and counts it if it passes. A request that any
// rule refuses, under any key, is counted by no rule. A malformed request is counted by the rules
// that match it, and always refused. Decide canonicalizes req.
//
// Rules that count by the origin's answer count nothing yet: the caller passes the
// decision to Answered when the origin has answered.
func (l *Limiter) Decide(req *rule.Request, now time.Time) (d Decision) {
	rules := l.rules.Load()
	l.look(&d, rules.set, req, now)
	if !d.Verdict.Refused() && d.n > 0 {
		l.countArrival(&d, req, now)
	}
	if req.Malformed && !d.Verdict.Refused() {
		d = Decision{Verdict: Malformed}
	}
	rules.metrics(d.Rule).verdicts[d.Verdict].Inc()
	return d
}

// Look decides a request as Decide does, but does not count it, in keys or in metrics.
func (l *Limiter) Look(req *rule.Request, now time.Time) (d Decision) {
	l.look(&d, l.Rules(), req, now)
	return d
}

// Counts yields the rules that count the request, each with its key: those that match it and have
// no record. It yields nothing for a refused request. A rule that counts the request under several
// keys is yielded once for each, in a row. A rule with statuses counts the request only if the
// origin answers with one of them.
func (d *Decision) Counts(yield func(*rule.Rule, counter.Key) bool) {
	if d.Verdict.Refused() {
		return
	}
	for i := range d.n {
		if c := d.at(i); !yield(c.rule, c.key) {
			return
		}
	}
}

// look looks req up in the access lists and in the table.
func (l *Limiter) look(d *Decision, set *rule.Set, req *rule.Request, now time.Time) {
	req.Canonicalize(l.o.Client)
	switch set.Access(req.Addr) {
	case rule.Allowed:
		d.Verdict = Allowed
	case rule.Denied:
		d.Verdict = Denied
	default:
		l.lookUp(d, set, req, now)
	}
}

// lookUp finds the record that mitigates req, or else a matching rule that fails closed.
func (l *Limiter) lookUp(d *Decision, set *rule.Set, req *rule.Request, now time.Time) {
	// Both fit ordinary requests, so that they stay on the stack.
	var matched [8]*rule.Rule
	var key [256]byte
	var closed *rule.Rule
	for _, r := range set.Match(req, matched[:0]) {
		keys := r.Keys(key[:0], req)
		for i := range keys.Len() {
			tag := l.o.Secret.Tag(keys.At(i))
			if record, ok := l.o.Table.Get(tag, now); ok {
				d.consider(r, &record)
				continue
			}
			d.add(counted{r, tag, l.o.Table.Generation(tag)})
			if r.FailsClosed() && l.Unavailable(tag) && (closed == nil || r.Index < closed.Index) {
				closed = r
			}
		}
	}
	if closed != nil && !d.Verdict.Refused() {
		d.Verdict, d.Rule, d.Record = Unavailable, closed, mitigation.Record{}
	}
}

// consider lets the active record of r decide if it takes precedence over the current one.
func (d *Decision) consider(r *rule.Rule, record *mitigation.Record) {
	if d.Rule != nil {
		switch remains := record.Deadline.Compare(d.Record.Deadline); {
		case r.Action < d.Rule.Action,
			r.Action == d.Rule.Action && remains < 0,
			r.Action == d.Rule.Action && remains == 0 && r.Index > d.Rule.Index:
			return
		}
	}
	d.Verdict, d.Rule, d.Record = verdictOf[r.Action], r, *record
}

// countArrival counts req for the rules that do not wait for the answer.
func (l *Limiter) countArrival(d *Decision, req *rule.Request, now time.Time) {
	d.sample = mitigation.Sample{Client: req.Addr, Method: req.Method, Host: req.Host, Path: req.Path}
	if req.Borrowed {
		d.sample.Method, d.sample.Host, d.sample.Path = strings.Clone(req.Method), strings.Clone(req.Host), strings.Clone(req.Path)
	}
	for i := range d.n {
		if c := d.at(i); c.rule.Statuses == nil {
			l.Offer(c.rule, c.key, c.generation, d.sample, now)
		}
	}
}

// Answered counts a request that passed, for the rules that count by the status of the origin's
// answer, at now. It must not be called for answers that the node itself makes, such as 502. A
// request counts even if its key was mitigated in the meantime.
func (l *Limiter) Answered(d *Decision, status int, now time.Time) {
	if d.Verdict.Refused() {
		return
	}
	for i := range d.n {
		if c := d.at(i); c.rule.Statuses != nil && c.rule.Statuses.Has(status) {
			l.Offer(c.rule, c.key, c.generation, d.sample, now)
		}
	}
}
