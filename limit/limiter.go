// Package limit decides whether requests pass.
//
// # The decision
//
// [Limiter.Decide] matches a request against the rules, computes the key for each matching rule, and looks it up in the
// table of mitigations. It reads memory only: it never waits, never allocates for ordinary requests and never returns
// an error. Metrics count infrastructure failures, and the request passes: the limiter fails open, except for rules
// with on_failure: closed. While the shard that owns the key of such a rule is unavailable, a request that no
// mitigation refuses has the verdict [Unavailable] and is not counted. That check reads the ring's table and a flag of
// the shard.
//
// Requests that pass are offered to package async. When the counts of a key exceed a limit, that package merges a
// record into this node's table, sends it to the peers, and stores it alongside the counters. A request starts the
// mitigation immediately if it exceeds a limit together with the known counts of its key and the requests that wait to
// be counted.
package limit

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/limit/decision"
	"github.com/edgelimit/edge/rule"
)

// Options configures a Limiter.
type Options = async.Options

// A Limiter decides which requests pass, and counts them with its Loop. Its methods may be called concurrently, except
// Run, which may be called once.
type Limiter struct {
	*async.Loop
	o         Options
	rules     atomic.Pointer[rules]
	metrics   *metrics
	decisions *decision.Log // nil logs nothing

	loading    sync.Mutex          // held by SetRules, so that the loop and the limiter get the same last set
	abandoning sync.Mutex          // guards abandoned
	abandoned  map[counter.Key]int // requests that wait for the origin's answer without their clients
}

// New returns a Limiter. It decides immediately, but counts nothing until Run is called. decisions logs the decisions
// about a sample of the keys, and may be nil.
func New(o Options, decisions *decision.Log) (l *Limiter, err error) {
	l = &Limiter{o: o, decisions: decisions, metrics: newMetrics(o.Registerer),
		abandoned: map[counter.Key]int{}}
	if l.Loop, err = async.New(o, l.metrics.start, l.counted); err != nil {
		return nil, err
	}
	l.SetRules(o.Rules)
	return l, nil
}

// SetRules replaces the rules atomically. Active mitigations keep their deadlines. For the counts, see
// [async.Loop.SetRules].
func (l *Limiter) SetRules(set *rule.Set) {
	l.loading.Lock()
	defer l.loading.Unlock()
	l.Loop.SetRules(set)
	l.rules.Store(l.metrics.bind(set))
}

// counted adds n to the metric of r, a rule of the counting loop's set.
func (l *Limiter) counted(r *rule.Rule, n uint64) {
	if rules := l.rules.Load(); r.Index < len(rules.metered) && rules.set.Rules()[r.Index] == r {
		rules.metered[r.Index].counted.Add(float64(n))
	}
}

// rules is a set of rules with their metrics.
type rules struct {
	set     *rule.Set
	none    *ruleCounters
	metered []*ruleCounters // by Rule.Index
}

func (r *rules) count(d *Decision) {
	counters := r.none
	if d.Rule != nil {
		counters = r.metered[d.Rule.Index]
	}
	counters.verdicts[d.Verdict].Inc()
	if d.by > 1 {
		counters.bystanders.Inc()
	}
}

// Rules returns the rules in force.
func (l *Limiter) Rules() *rule.Set { return l.rules.Load().set }

// An ID identifies the cause of a refusal to people.
type ID = counter.ID

// ID returns the ID of the mitigated key, or of the entry of the deny list, that refuses the request of a client. It is
// zero if the request passes, is malformed, or has the verdict Unavailable. All nodes of a PoP have the same IDs. ID
// does not allocate.
func (l *Limiter) ID(d *Decision, client netip.Addr) (id ID) {
	switch {
	case d.Verdict == Denied && d.Record == nil:
		if entry, access := l.Rules().Entry(client); access == rule.Denied { // else the rules have changed
			id = l.o.Secret.ID(l.entryKey(entry))
		}
	case d.Verdict.Refused() && d.Record != nil:
		id = d.Record.ID
	}
	return id
}

// DenyEntry returns the entry of the deny list that has an ID, and reports whether there is one.
func (l *Limiter) DenyEntry(id ID) (netip.Prefix, bool) {
	for entry, access := range l.Rules().Entries() {
		if access == rule.Denied && l.o.Secret.ID(l.entryKey(entry)) == id {
			return entry, true
		}
	}
	return netip.Prefix{}, false
}

// entryKey returns the key that stands for an entry of the deny list. Nothing is counted under it.
func (l *Limiter) entryKey(entry netip.Prefix) counter.Key {
	var buf [64]byte
	return l.o.Secret.Tag(entry.AppendTo(append(buf[:0], "deny "...)))
}

// A Quota describes what is left of one limit, for the client.
type Quota = async.Quota

// Quotas appends to dst the quotas that the client of d may learn at now: see rule.Rule.TellsQuota. For a mitigated
// request, it appends those of the rule that refuses it. For a rule with several keys, the smallest remaining quota
// counts, or an unknown one if there is one.
func (l *Limiter) Quotas(dst []Quota, d *Decision, now time.Time) []Quota {
	if d.Verdict.Refused() {
		if d.Record == nil || d.Rule == nil || !d.Rule.TellsQuota() {
			return dst
		}
		for _, limit := range d.Rule.Limits {
			q := Quota{Rule: d.Rule, Limit: limit}
			if q.Known = limit.Period.Microseconds() == d.Record.Why.Limit.Period; q.Known {
				q.Reset = d.RetryAfter(now)
			}
			dst = append(dst, q)
		}
		return dst
	}
	var last *rule.Rule
	at := 0 // index of its first quota
	for i := range d.n {
		c := d.at(i)
		if !c.rule.TellsQuota() {
			continue
		}
		end := len(dst)
		p := async.Passing{Cost: c.cost, Arrived: time.UnixMicro(d.decided), Now: now}
		if c.rule.CountsAnswer() && c.cost > c.rule.Reserve {
			p.Arrived = now // when it was counted
		}
		dst = l.Remaining(dst, c.rule, c.key, p)
		if c.rule.Base() != last {
			last, at = c.rule.Base(), end
			continue
		}
		for j, q := range dst[end:] {
			if known := &dst[at+j]; !q.Known || q.Remaining < known.Remaining {
				*known = q
			}
		}
		dst = dst[:end]
	}
	return dst
}
