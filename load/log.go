package load

import (
	"cmp"
	"slices"
	"time"
)

// A Log holds the outcomes of the requests of a run.
type Log struct {
	Began       time.Time
	Elapsed     time.Duration
	Interrupted bool
	Full        bool // Options.Requests ended the run
	GaveUp      bool // the run ended early because nothing was answered

	// Unsent is the number of requests that were due but not sent when the run ended.
	Unsent uint64

	// Held is the number of requests not sent because their clients waited for Retry-After.
	Held uint64

	// Connections is the number of connections opened.
	Connections uint64

	late    uint64 // requests that were late because of the generator
	o       Options
	records []record // sorted by the time when they were sent
	looks   []*Look
	nodes   []string
	why     [failures]string
}

// log collects the records of all connections.
func (r *run) log() *Log {
	l := &Log{
		Began: r.began, Full: r.source.full, Elapsed: time.Since(r.began), Unsent: r.unsent.Load(), Held: r.returns.held,
		Connections: r.opened.Load(), late: r.late.Load(), o: r.o, looks: r.looks, nodes: r.nodes.names, why: r.why,
	}
	if !r.o.ClosedLoop { // in a closed loop nothing is due before it is sent
		for _, lane := range r.lanes {
			l.Unsent += uint64(lane.left())
		}
	}
	total := 0
	for _, c := range r.conns {
		for _, piece := range c.tape {
			total += len(piece)
		}
	}
	l.records = make([]record, 0, total)
	for _, c := range r.conns {
		for i, piece := range c.tape {
			l.records, c.tape[i] = append(l.records, piece...), nil
		}
		c.tape = nil
	}
	slices.SortStableFunc(l.records, func(a, b record) int { return cmp.Compare(a.sent, b.sent) })
	return l
}

// Requests returns the number of requests that were sent, or failed because no connection could be made.
func (l *Log) Requests() int { return len(l.records) }
