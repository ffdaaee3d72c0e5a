package analysis

import (
	"log/slog"
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/count"
	"github.com/edgelimit/edge/pop/limit"
	"github.com/edgelimit/edge/pop/rule"
)

// An exactPoP is what a PoP stands in for: one node that remembers the time of each request
// which it has counted, and mitigates a key at once when more than the threshold lie in the
// period that ends with one of them. It decides by a real limiter, which counts nothing.
type exactPoP struct {
	limiter *limit.Limiter
	table   *mitigation.Table
	now     int64
	due     int64 // when a record ends or is forgotten
	rules   []exactRule
}

// An exactRule has the logs of the keys of a rule.
type exactRule struct {
	logs aging[counter.Key, []SlidingLog] // one for each limit
}

func newExactPoP(o PoPOptions, rules *rule.Set) (*exactPoP, error) {
	table, err := mitigation.New(mitigation.Options{Size: 1 << 24}) // it must not forget
	if err != nil {
		return nil, err
	}
	limiter, err := limit.New(limit.Options{
		Secret: secret, Rules: rules, Table: table, Client: o.Client, Queue: 16, Logger: slog.New(slog.DiscardHandler),
		// It holds nothing. Without one that is available, rules that fail closed would refuse everything.
		Shards: []count.Shard{newMemoryShard("exact")},
	})
	if err != nil {
		return nil, err
	}
	x := &exactPoP{limiter: limiter, table: table, now: -never, rules: make([]exactRule, len(rules.Rules()))}
	for i, r := range rules.Rules() {
		for _, l := range r.Limits {
			x.rules[i].logs.life = max(x.rules[i].logs.life, l.Period.Microseconds())
		}
	}
	return x, nil
}

// decide decides about a request, and counts it if it passes. See Simulation.Decide.
func (x *exactPoP) decide(e *accesslog.Entry, req *rule.Request) limit.Decision {
	x.now = max(x.now, e.Time)
	now := time.UnixMicro(x.now)
	if x.now >= x.due {
		x.due = never
		if next := x.table.Expire(now, func(mitigation.Record) {}); !next.IsZero() {
			x.due = next.UnixMicro()
		}
	}
	d := x.limiter.Look(req, now)
	for r, key := range d.Counts {
		if counts(r, e.Status) {
			x.count(r, key, now)
		}
	}
	return d
}

// count counts a request, and mitigates its key if a limit is exceeded: until the rule's
// timeout is over and no limit is.
func (x *exactPoP) count(r *rule.Rule, key counter.Key, now time.Time) {
	logs, known := x.rules[r.Index].logs.get(key, x.now)
	if !known {
		*logs = make([]SlidingLog, len(r.Limits))
	}
	until, over := x.now+r.MitigationTimeout.Microseconds(), false
	for i, l := range r.Limits {
		if n := (*logs)[i].Add(x.now, l.Period.Microseconds()); n > l.Threshold {
			over = true
			until = max(until, (*logs)[i].Back(l.Threshold, l.Period.Microseconds()))
		}
	}
	if !over {
		return
	}
	lifetime := min(time.Duration(until-x.now)*time.Microsecond, mitigation.MaxLifetime)
	x.table.Merge(mitigation.Record{Key: key, Start: x.now, Lifetime: lifetime, Deadline: now.Add(lifetime)}, now)
	x.due = min(x.due, until)
}
