package load

import (
	"time"
)

// A Log is what became of the requests of a run.
type Log struct {
	Began       time.Time
	Elapsed     time.Duration
	Interrupted bool
	Full        bool // more would have been sent, but for Options.Requests
	GaveUp      bool // it was ended early, since nothing was answered

	// Unsent is how many requests were due and not sent when the run ended.
	Unsent uint64

	// Held is how many were not sent since their clients waited for their Retry-After.
	Held uint64

	// ClockStep is by how much this machine's clock was set meanwhile. The run does not follow,
	// and is off by as much from the windows of nodes that do.
	ClockStep time.Duration

	// Connections is how many were opened.
	Connections uint64

	late    uint64 // requests that the generator itself was late with
	o       Options
	records []record // by the time when they were sent
	looks   []*Look
	nodes   []string
	why     [failures]string
}

// log gathers what was recorded.
func (r *run) log() *Log {
	now := time.Now()
	l := &Log{
		Began: r.began, Full: r.source.full, Elapsed: now.Sub(r.began), ClockStep: clockStep(r.began, now), Unsent: r.unsent.Load(), Held: r.returns.held,
		Connections: r.opened.Load(), late: r.late.Load(), o: r.o, looks: r.looks, nodes: r.nodes.names, why: r.why,
	}
	if !r.o.ClosedLoop { // there nothing is due before it is sent
		for _, lane := range r.lanes {
			l.Unsent += uint64(lane.left())
		}
	}
	tapes := make([]tape, len(r.conns))
	for i, c := range r.conns {
		tapes[i], c.tape = c.tape, tape{}
	}
	l.records = merged(tapes)
	return l
}

// clockStep returns by how much the wall clock has gone ahead of the monotonic one.
func clockStep(from, to time.Time) time.Duration {
	return to.Round(0).Sub(from.Round(0)) - to.Sub(from)
}

// Requests returns how many requests were sent, or not sent because no connection could be made.
func (l *Log) Requests() int { return len(l.records) }
