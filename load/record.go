package load

import "container/heap"

// A record is what became of one request. Times are in microseconds since the beginning of
// the run.
type record struct {
	due, sent, done int64
	client          uint64
	look            uint32 // in run.looks, from 1
	retry           uint32 // seconds of Retry-After, 0 if there was none; see retryZero
	remaining       int32  // the least r of RateLimit, or X-RateLimit-Remaining; −1 if there was none
	status          uint16 // 0 if there was no answer
	node            uint16 // in run.nodes
	target          uint16 // in run.Options.Targets
	failure         failure
	flags           flags
}

// A failure is why a request has no answer.
type failure uint8

const (
	answered  failure = iota
	notSent           // there was no connection
	closed            // the connection ended before the answer did
	timedOut          // Options.Timeout
	malformed         // the answer was no HTTP
	cutOff            // the run was interrupted
	failures
)

var failureNames = [failures]string{"", "not_connected", "closed", "timeout", "malformed", "cut_off"}

type flags uint8

const (
	prepared    flags = 1 << iota // its body is one that a rule answers with
	otherTime                     // nothing remains of limits that are back at another time than Retry-After says
	beyondLimit                   // more remains than the limit is
	reused                        // its connection had carried others: if it is closed, the target may have ended it before it read the request
	retryZero                     // Retry-After is 0
	retryBad                      // Retry-After is not a number of seconds
)

// A tape holds the records of a connection in the order in which they were sent: in pieces, so
// that none is ever moved.
type tape struct{ pieces [][]record }

const tapePiece = 2048

func (t *tape) add(r *record) {
	last := len(t.pieces) - 1
	if last < 0 || len(t.pieces[last]) == tapePiece {
		t.pieces = append(t.pieces, make([]record, 0, tapePiece))
		last++
	}
	t.pieces[last] = append(t.pieces[last], *r)
}

// merged returns the records of all tapes in the order in which they were sent. The tapes are
// used up, so that there is hardly ever more than one copy.
func merged(tapes []tape) []record {
	total := 0
	h := make(heads, 0, len(tapes))
	for i := range tapes {
		for _, piece := range tapes[i].pieces {
			total += len(piece)
		}
		if len(tapes[i].pieces) > 0 {
			h = append(h, &tapes[i])
		}
	}
	heap.Init(&h)
	all := make([]record, 0, total)
	for len(h) > 0 {
		t := h[0]
		all = append(all, t.pieces[0][0])
		if t.pieces[0] = t.pieces[0][1:]; len(t.pieces[0]) == 0 {
			t.pieces[0] = nil
			t.pieces = t.pieces[1:]
		}
		if len(t.pieces) > 0 {
			heap.Fix(&h, 0)
		} else {
			heap.Pop(&h)
		}
	}
	return all
}

// heads are tapes that are not used up: a heap by the first record of each.
type heads []*tape

func (h heads) Len() int           { return len(h) }
func (h heads) Less(i, j int) bool { return h[i].pieces[0][0].sent < h[j].pieces[0][0].sent }
func (h heads) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *heads) Push(t any)        { *h = append(*h, t.(*tape)) }
func (h *heads) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	*h = (*h)[:last]
	return t
}
