package limit

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/limit/decision"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

// A Verdict says what happens to a request.
type Verdict uint8

const (
	Passed       Verdict = iota // to the origin
	Allowed                     // to the origin, by the allow list
	Own                         // to the origin, without a decision: a trusted proxy's own request
	Denied                      // refused by the deny list
	Malformed                   // refused: rules cannot match it
	Unavailable                 // refused: a rule fails closed, and its key's shard is unavailable
	byAction                    // the first of those of active records, by their rule's action
	Logged       = byAction + Verdict(rule.Log)
	Shed         = byAction + Verdict(rule.Shed)
	ShadowBanned = byAction + Verdict(rule.ShadowBan)
	Blocked      = byAction + Verdict(rule.Block)
	Closed       = byAction + Verdict(rule.Close)
	verdicts     = byAction + rule.Actions
)

var verdictNames = append(strings.Fields("passed allowed own denied malformed unavailable"), rule.Verdicts()...)

// String returns the verdict as metrics and logs write it.
func (v Verdict) String() string { return verdictNames[v] }

// Refused reports whether the request is kept from the origin.
func (v Verdict) Refused() bool { return v >= Denied && (v < byAction || v.Action().Refuses()) }

// Refused reports whether verdict is the name of one that keeps requests from the origin.
func Refused(verdict string) bool {
	i := slices.Index(verdictNames, verdict)
	return i >= 0 && Verdict(i).Refused()
}

// VerdictOf returns the verdict of an active record of a rule with action a.
func VerdictOf(a rule.Action) Verdict { return byAction + Verdict(a) }

// Action returns the action that v results from, or Log for the verdicts without one.
func (v Verdict) Action() rule.Action { return rule.Action(max(v, byAction) - byAction) }

// A Decision tells whether one request passes, and which rules count it.
type Decision struct {
	Verdict Verdict

	// Rule and Record are the mitigation that determined the verdict, if one did: of several, the one with the most severe
	// action, then the one that ends last, then that of the first rule in the files. If the verdict is Unavailable, Rule
	// is the first rule that fails closed, and Record is nil. The record must not be changed.
	Rule   *rule.Rule
	Record *mitigation.Record

	still       bool            // a rule may count the request even if it is refused: see Decision.counted
	by          int8            // 1 + the Width of the narrowest mitigation that refuses; 0 if none does
	refusedWith bool            // refused because another request is: see Limiter.DecideBy
	tail        *tail           // end of the answer's body, while a rule waits for it; else nil
	decided     int64           // time of the decision, in microseconds; 0 after Look and Report
	logged      *decision.Batch // keys in the log's sample; nil if none

	// The counts to offer if the request passes, grouped by rule. Few requests have more than fit in counts.
	n      int
	counts [4]count
	more   []count
	sample mitigation.Sample
}

// Deadline returns when the mitigation that determined the verdict ends on this node, or the zero time if none did.
func (d *Decision) Deadline() time.Time {
	if d.Record == nil {
		return time.Time{}
	}
	return d.Record.Deadline
}

// RetryAfter returns how long a refused client should wait: until the deadline, but at most as long as the rule's
// response says. It is not positive without a mitigation.
func (d *Decision) RetryAfter(now time.Time) time.Duration {
	left := d.Deadline().Sub(now)
	if d.Rule != nil && d.Rule.Response.MaxRetryAfter > 0 {
		left = min(left, d.Rule.Response.MaxRetryAfter)
	}
	return left
}

// RefusesClient reports whether the request is not counted, and all requests of its client will be refused until end,
// unless an operator changes that.
func (d *Decision) RefusesClient(end time.Time) bool {
	for range d.Counts {
		return false
	}
	if d.Record == nil {
		return d.Verdict == Denied
	}
	return d.Deadline().After(end) && (d.Verdict == Denied || d.Rule.RefusesClient())
}

// A count describes how a rule counts a request under a key.
type count struct {
	rule       *rule.Rule
	key        counter.Key
	generation uint32 // how often the key's mitigation was lifted before
	mitigated  bool   // the key is mitigated, but the rule counts the request anyway
	refuses    bool   // a key of the rule, this one or another, is mitigated
	waits      bool   // the rule waits for the end of the answer's body
	within     bool   // counted by the answer, it exceeded no limit: see [async.Loop.Offer]
	answered   int64  // when it was counted by the answer, in microseconds since the Unix epoch
	cost       uint64 // how much was counted
}

func (d *Decision) add(c count) {
	if d.n < len(d.counts) {
		d.counts[d.n] = c
	} else {
		d.more = append(d.more, c)
	}
	d.n++
}

func (d *Decision) at(i int) *count {
	if i < len(d.counts) {
		return &d.counts[i]
	}
	return &d.more[i-len(d.counts)]
}

// Decide decides whether a request that arrived at now passes, and counts it if it does. A refused request counts only
// under mitigated keys of rules with CountWhileMitigated, and for rules that count refused requests. A malformed
// request counts for the rules that match it, and is always refused. Decide canonicalizes req, except for the path of a
// request that it refuses and does not count.
//
// Rules that count by the origin's answer count nothing yet: when the origin has answered, the caller passes the
// decision to Answered.
func (l *Limiter) Decide(req *rule.Request, now time.Time) (d Decision) {
	l.DecideTo(&d, req, now)
	return d
}

// DecideTo is Decide for a caller that has memory for the decision, which must be zero.
func (l *Limiter) DecideTo(d *Decision, req *rule.Request, now time.Time) {
	rules := l.rules.Load()
	d.decided = now.UnixMicro()
	l.look(d, rules.set, req, now)
	l.countArrival(d, req, 1, now)
	if d.logged != nil {
		l.log(d, req, 1)
	}
	if req.Malformed && !d.Verdict.Refused() {
		*d = Decision{Verdict: Malformed}
	}
	rules.count(d)
}

// Exempt makes d, which must be zero, the decision for a trusted proxy's own request, which passes regardless of rules.
// It brings req into its canonical form.
func (l *Limiter) Exempt(d *Decision, req *rule.Request) {
	req.Canonicalize(l.o.Client)
	d.Verdict = Own
	l.rules.Load().count(d)
}

// Look makes the same decision as Decide, but does not count the request, in keys or in metrics.
func (l *Limiter) Look(req *rule.Request, now time.Time) (d Decision) {
	l.look(&d, l.Rules(), req, now)
	return d
}

// Counts yields the rules that count the request, once for each of their keys, with the keys of a rule in a row. A rule
// that mitigates the key counts the request only with CountWhileMitigated, or if it sheds. Other rules count a refused
// request only if they count refused requests. A rule that counts by the answer counts the request only if the answer
// matches.
func (d *Decision) Counts(yield func(*rule.Rule, counter.Key) bool) {
	for i := range d.n {
		if c := d.at(i); d.counted(c) && !yield(c.rule, c.key) {
			return
		}
	}
}

// CountsAnswer reports whether a rule counts the request by the origin's answer.
func (d *Decision) CountsAnswer() bool {
	for range d.byAnswer {
		return true
	}
	return false
}

// byAnswer yields the keys under which the request counts by the origin's answer.
func (d *Decision) byAnswer(yield func(*count) bool) {
	for i := range d.n {
		if c := d.at(i); !d.Verdict.Refused() && c.rule.CountsAnswer() && !yield(c) {
			return
		}
	}
}

// counted reports whether c counts. A rule that counts refused requests does not count those that a narrower rule
// refuses. A rule that sheds counts its own refusals.
func (d *Decision) counted(c *count) bool {
	switch r := c.rule; {
	case !d.refused():
		return true
	case r.Action == rule.Shed, r.CountRefused && !c.refuses:
		return r.Width() < int(d.by)
	}
	return c.mitigated
}

// refused reports whether the request is kept from the origin, by this decision or another.
func (d *Decision) refused() bool { return d.refusedWith || d.Verdict.Refused() }

// look makes the decision about req, by the access lists and the rules that match it. It does not canonicalize the path
// of a refused request that does not count.
//
// Rules that can refuse a request, or count a refused one, are matched first. If one refuses it, the others are not
// matched, so that a client cannot make its refusals expensive with a long path or many fields.
func (l *Limiter) look(d *Decision, set *rule.Set, req *rule.Request, now time.Time) {
	var matched [8]*rule.Rule // fits ordinary requests, so that it stays on the stack
	req.Identify(l.o.Client)
	if !l.listed(d, set, req, now) {
		first, others := matched[:0], (func(*rule.Rule) bool)(nil)
		if !req.Malformed && (req.Unusual() || set.ReadsFields()) {
			first = set.MatchOf(func(r *rule.Rule) bool { return l.matters(r, req, now) }, req, first)
			l.lookUp(d, first, req, now)
			others = func(r *rule.Rule) bool { return !slices.Contains(first, r) }
		}
		if !d.Verdict.Refused() {
			l.lookUp(d, set.MatchOf(others, req, first)[len(first):], req, now)
			l.failClosed(d)
		}
	}
	if d.still || !d.Verdict.Refused() {
		req.ReadPath()
	}
}

// matters reports whether r may refuse req, count it although another rule refuses it, or have a key in the sample of
// the decision log. It does not read the path: if the keys depend on it, r matters if any of its keys is mitigated.
func (l *Limiter) matters(r *rule.Rule, req *rule.Request, now time.Time) bool {
	switch {
	case r.CountsRefused():
		return true
	case l.decisions == nil && !l.o.Table.MayRule(r.Fingerprint()):
		return false
	case r.CountsBy(rule.Path):
		return true
	}
	var buffer [256]byte
	keys := r.Keys(buffer[:0], req)
	for i := range keys.Len() {
		key := l.o.Secret.Tag(keys.At(i))
		if _, held := l.o.Table.Held(key, now); held || l.decisions.Samples(key) {
			return true
		}
	}
	return false
}

// listed reports whether the access lists, or an operator who refuses the client, determine the verdict on req.
func (l *Limiter) listed(d *Decision, set *rule.Set, req *rule.Request, now time.Time) bool {
	switch set.Access(req.Addr) {
	case rule.Allowed:
		d.Verdict = Allowed
	case rule.Denied:
		d.Verdict = Denied
	default:
		if !l.o.Table.MayRule(mitigation.AnyRule) {
			return false
		}
		d.Record = l.o.Table.Get(l.ClientKey(req.Client()), now, func(*mitigation.Record) bool { return true })
		if d.Record != nil {
			d.Verdict = Denied
		}
	}
	return d.Verdict != Passed
}

// lookUp finds the record, under a key of rules, that mitigates req.
func (l *Limiter) lookUp(d *Decision, rules []*rule.Rule, req *rule.Request, now time.Time) {
	var buffer [256]byte
	sampled := l.decisions != nil && d.decided != 0
	for _, base := range rules {
		keys := base.Keys(buffer[:0], req)
		first, refuses := d.n, false
		for i := range keys.Len() {
			material := keys.At(i)
			r := base.Override(material)
			key := l.o.Secret.Tag(material)
			c := count{rule: r, key: key}
			byHand := false
			acts := func(record *mitigation.Record) bool { return l.mitigates(r, record, req, now) }
			if record := l.o.Table.Get(key, now, acts); record != nil {
				d.consider(r, record)
				c.mitigated, c.generation, byHand, refuses = true, record.Generation, record.ByHand, true
			} else {
				c.generation = l.o.Table.Generation(key)
			}
			d.still = d.still || r.CountsRefused() || c.mitigated && r.CountsMitigated()
			if !c.mitigated || r.CountsMitigated() {
				d.add(c)
			}
			if sampled && l.decisions.Samples(key) {
				d.logged = l.decisions.Add(d.logged,
					decision.Key{Rule: r, Key: key, Generation: c.generation, Mitigated: c.mitigated, ByHand: byHand})
			}
		}
		for ; refuses && first < d.n; first++ {
			d.at(first).refuses = true
		}
	}
}

// failClosed refuses a request that would pass if one of its rules fails closed and the shard of the key is
// unavailable.
func (l *Limiter) failClosed(d *Decision) {
	var closed *rule.Rule
	for i := range d.n {
		c := d.at(i)
		if c.rule.FailsClosed() && l.Unavailable(c.key) && (closed == nil || c.rule.Index < closed.Index) {
			closed = c.rule
		}
	}
	if closed != nil && !d.Verdict.Refused() {
		d.Verdict, d.Rule, d.Record = Unavailable, closed, nil
	}
}

// mitigates reports whether record, of a key of r, refuses req or, if r only logs, would do so.
func (l *Limiter) mitigates(r *rule.Rule, record *mitigation.Record, req *rule.Request, now time.Time) bool {
	return async.Acts(r, record) && (r.Action != rule.Shed || l.Sheds(r, record.Key, req.Client(), now))
}

// consider makes the active record of r determine the verdict if it takes precedence over the current one.
func (d *Decision) consider(r *rule.Rule, record *mitigation.Record) {
	if width := int8(r.Width()); r.Action.Refuses() && (d.by == 0 || width < d.by) {
		d.by = width + 1
	}
	if d.Rule != nil {
		switch remains := record.Deadline.Compare(d.Record.Deadline); {
		case r.Action < d.Rule.Action,
			r.Action == d.Rule.Action && remains < 0,
			r.Action == d.Rule.Action && remains == 0 && r.Index > d.Rule.Index:
			return
		}
	}
	d.Verdict, d.Rule, d.Record = VerdictOf(r.Action), r, record
}

func sampleOf(req *rule.Request) mitigation.Sample {
	return mitigation.Sample{Client: req.Addr, Method: req.Method, Host: req.Host, Path: req.Path}
}

// countArrival counts req n times if it passes, for rules that do not wait for the answer, and the reserve for others.
func (l *Limiter) countArrival(d *Decision, req *rule.Request, n uint64, now time.Time) {
	if d.refused() && !d.still || d.n == 0 || n == 0 {
		return
	}
	d.sample = sampleOf(req)
	if req.Borrowed {
		d.sample = async.Copy(d.sample)
	}
	for i := range d.n {
		c := d.at(i)
		if cost := c.rule.CostOnArrival(n); cost > 0 && d.counted(c) {
			c.cost = cost
			l.Offer(c.rule, c.key, c.generation, &d.sample, cost, now)
		}
	}
}

// Fields are the header of an origin's answer, such as an http.Header.
type Fields interface{ Values(name string) []string }

// Answered counts a request that passed, for the rules that count by the origin's answer, at now. Do not call it for
// answers that the node generates, such as 502. A request counts even if its key was mitigated in the meantime. fields
// may be nil. Rules with a CostJSON count it at the end of the body: see EndBody.
func (l *Limiter) Answered(d *Decision, status int, fields Fields, now time.Time) {
	if d.Verdict.Refused() {
		return
	}
	for i := range d.n {
		c := d.at(i)
		if !c.rule.CountsAnswer() || c.rule.Statuses != nil && !c.rule.Statuses.Has(status) {
			continue
		}
		if c.waits = c.rule.CostJSON != ""; c.waits {
			if d.tail == nil {
				d.tail = newTail(status, fields)
			}
			continue
		}
		l.countAnswer(d, c, l.cost(c.rule, valuesOf(fields, c.rule.CostHeader), costMissing), now)
	}
}

// Withholds reports whether the answer to a request must not reach its client. The request passed, and Answered has
// counted it; now a rule that counts answers mitigates one of its keys. Then d becomes the decision that refuses the
// request. A node that starts a mitigation delivers the answers that were counted before, and the one that exceeds the
// threshold. So a client gets no more answers to requests that it sends at the same time than to requests one after
// another.
func (l *Limiter) Withholds(d *Decision, client netip.Addr, now time.Time) bool {
	req := rule.Request{Addr: client}
	req.Identify(l.o.Client)
	for i := range d.n {
		if c := d.at(i); c.rule.CountsAnswer() && c.rule.Action.Refuses() {
			acts := func(record *mitigation.Record) bool { return l.mitigates(c.rule, record, &req, now) }
			record := l.o.Table.Get(c.key, now, acts)
			if record != nil && (record.Node != l.o.Node || !c.precedes(record) && !l.o.Table.Take(c.key)) {
				d.consider(c.rule, record)
			}
		}
	}
	if d.Verdict.Refused() {
		l.EndBody(d, false, now)
	}
	return d.Verdict.Refused()
}

// precedes reports whether the answer was counted before the mitigation of its key began. c.within alone does not show
// that, because the count is within the threshold again in a later window. So the times must also be close.
func (c *count) precedes(record *mitigation.Record) bool {
	return c.within && c.answered-record.Start < time.Second.Microseconds()
}

// cost returns how much a request counts by the values in its answer. missing is the result of an answer without
// values.
func (l *Limiter) cost(r *rule.Rule, values []string, missing int) uint64 {
	if r.CostSource() == "" {
		return r.CostOf(1)
	}
	cost, ok := r.CostIn(values)
	switch {
	case ok:
		l.metrics.costs[costValid].Inc()
	case len(values) == 0:
		l.metrics.costs[missing].Inc()
	default:
		l.metrics.costs[costInvalid].Inc()
	}
	return cost
}
