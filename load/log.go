package load

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/edgelimit/edge/load/judge"
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

// A record is the outcome of one request. Times are in microseconds since the start of the run.
type record struct {
	due, sent, done int64
	client          uint64
	look            uint32 // in run.looks, from 1
	retry           int32  // as judge.Answer.Retry
	remaining       int32  // the least r of RateLimit, or X-RateLimit-Remaining; −1 without either
	status          uint16 // 0 if there was no answer
	node            uint16 // index in run.nodes
	target          uint16 // index in Options.Targets
	failure         judge.Failure
	flags           flags
}

// Failures that the judge does not distinguish.
const (
	timedOut  = judge.NoAnswer + iota // Options.Timeout
	malformed                         // the answer was not HTTP
	cutOff                            // the run was interrupted
)

var failureNames = [...]string{judge.NotSent: "not_connected", judge.Closed: "closed", timedOut: "timeout",
	malformed: "malformed", cutOff: "cut_off"}

type flags uint8

const (
	prepared  flags = 1 << iota // the body or ID shows that a rule refused the request
	otherTime                   // the reset time of exhausted limits contradicts Retry-After
	// The connection had carried requests before; the target may have closed it before reading this one.
	reused
)

// A tape holds the records of a connection in the order in which they were sent. It consists of
// pieces so that records are never moved.
type tape [][]record

const tapePiece = 2048

func (t *tape) add(r *record) {
	last := len(*t) - 1
	if last < 0 || len((*t)[last]) == tapePiece {
		*t = append(*t, make([]record, 0, tapePiece))
		last++
	}
	(*t)[last] = append((*t)[last], *r)
}
