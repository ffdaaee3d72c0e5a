package load

import "github.com/edgelimit/edge/load/judge"

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
