package load

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/edgelimit/edge/load/mix"
)

// A Log holds the outcomes of the requests of a run.
type Log struct {
	report  Report // how the run ended, and how many requests were not sent: the part that is not in records
	o       Options
	records []record // sorted by the time when they were sent
	looks   []*Look
	nodes   []string
	sources []netip.Addr // of connections to each target

	components []mix.Component
	policies   []string // RateLimit-Policy of responses
}

// log collects the records of all connections.
func (r *run) log(elapsed time.Duration) *Log {
	l := &Log{o: r.o, looks: r.looks, nodes: r.nodes, components: r.o.Source.Components(),
		policies: slices.Sorted(maps.Keys(r.policies)),
		report: Report{
			Began: r.began.UTC(), DurationS: elapsed.Seconds(), Interrupted: r.caller.Err() != nil, Full: r.full,
			GaveUp: r.gaveUp.Load(), Examples: r.examples, Sending: Sending{Connections: r.opened.Load(),
				Unsent: r.unsent.Load(), Held: r.returns.held, OwnLate: r.late.Load()},
		}}
	for _, to := range r.o.Targets {
		l.sources = append(l.sources, ownAddr(to.Addr))
	}
	if !r.o.ClosedLoop { // in a closed loop nothing is due before it is sent
		for _, queue := range r.queues {
			l.report.Sending.Unsent += uint64(queue.left())
		}
	}
	var pieces tape
	for _, c := range r.conns {
		pieces = append(pieces, c.tape...)
	}
	l.records = slices.Concat(pieces...)
	slices.SortStableFunc(l.records, func(a, b record) int { return cmp.Compare(a.sent, b.sent) })
	return l
}

// Requests returns the number of requests that were sent, or failed because no connection could be made.
func (l *Log) Requests() int { return len(l.records) }
