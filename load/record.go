package load

// A record is what became of one request. Times are in microseconds since the beginning of
// the run.
type record struct {
	due, sent, done int64
	client          uint64
	look            uint32 // in run.looks, from 1
	retry           uint32 // seconds of Retry-After, 0 if there was none
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
	failures
)

var failureNames = [failures]string{"", "not_connected", "closed", "timeout", "malformed"}

type flags uint8

const (
	hasLimits flags = 1 << iota // it had RateLimit-Policy or X-RateLimit-Limit
	prepared                    // its body is one that a rule answers with
	probed                      // it came back when Retry-After was over
)

// A tape holds records in pieces, so that none is ever moved.
type tape struct {
	full [][]record
	last []record
}

const tapePiece = 2048

func (t *tape) add(r *record) {
	if len(t.last) == cap(t.last) {
		if t.last != nil {
			t.full = append(t.full, t.last)
		}
		t.last = make([]record, 0, tapePiece)
	}
	t.last = append(t.last, *r)
}
