package limit

import (
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/count"
	"github.com/edgelimit/edge/pop/rule"
)

// merge starts or prolongs the mitigation of a key whose counts exceed a limit of r. The
// mitigation ends at the later of its start + the rule's timeout and the moment when every limit
// is back at its threshold. merge merges the record into the table and reports whether that
// changed it. The record has the sample if the mitigation is new.
func (l *Limiter) merge(key counter.Key, r *rule.Rule, f count.Finding, sample *mitigation.Sample, now time.Time) (record mitigation.Record, changed bool) {
	l.merging.Lock()
	defer l.merging.Unlock()
	if l.o.Table.Generation(key) > f.Generation {
		return record, false // a lift came in between
	}
	record = mitigation.Record{Key: key, Start: now.UnixMicro(), Node: l.o.Node, Why: f.Why}
	last, known := l.o.Table.Last(key)
	record.Generation = max(last.Generation, f.Generation)
	if known && !last.Lifted && now.Before(last.Deadline) {
		// Its start may be by another node's clock, so add a duration rather than set an end.
		more := (f.Back.Sub(last.Deadline) + time.Microsecond - 1).Truncate(time.Microsecond)
		if more <= 0 {
			return last, false
		}
		record.Start = last.Start
		record.Lifetime = min(last.Lifetime+more, mitigation.MaxLifetime)
		record.Deadline = last.Deadline.Add(record.Lifetime - last.Lifetime)
		return record, l.o.Table.Merge(record, now)
	}
	kept := *sample
	kept.Rule = r.ID
	record.Sample = &kept
	record.Lifetime = min(max(r.MitigationTimeout, f.Back.Sub(now).Truncate(time.Microsecond)), mitigation.MaxLifetime)
	record.Deadline = now.Add(record.Lifetime)
	// The previous mitigation may end later if a clock was set in the meantime.
	if known && !last.Lifted && record.End() <= last.End() {
		record.Generation++
	}
	return record, l.o.Table.Merge(record, now)
}

// started publishes and logs a record that merge made.
func (l *Limiter) started(record mitigation.Record, r *rule.Rule) {
	if l.o.Publish != nil {
		l.o.Publish(record)
	}
	if record.Sample != nil {
		l.metrics.startedBy(r).Inc()
		l.logStart(record, r)
	}
}
