package accuracy

import (
	"math/bits"

	"github.com/edgelimit/edge/counter"
)

// firstLast assumes that the requests of the previous window are spread evenly from its first to its last request,
// not over the whole window. A client's words are the index of its window and, for the previous and the current
// window, the number of requests and the times of the first and the last one.
type firstLast struct {
	period     int64
	resolution int64 // of times: a request may have arrived up to this much later than its time says
}

func (firstLast) words() int { return 7 }

func (f firstLast) arrive(state []uint64, at []moment, estimates []counter.Estimate) {
	for i, m := range at {
		switch uint64(m.index) - state[0] {
		case 0:
		case 1:
			copy(state[1:4], state[4:7])
			clear(state[4:])
		default:
			clear(state[1:])
		}
		state[0] = uint64(m.index)
		if state[4] == 0 {
			state[5] = uint64(m.t)
		}
		state[4]++
		state[6] = uint64(m.t)
		first, end := int64(state[2]), int64(state[3])+f.resolution
		e := counter.Estimate{Whole: state[4], Part: state[1], Left: min(end-(m.t-f.period), end-first), Of: end - first}
		if e.Part == 0 || e.Left <= 0 {
			e.Part, e.Left, e.Of = 0, 0, 1
		}
		estimates[i] = e
	}
}

// bucket is the leaky bucket as a meter, which the generic cell rate algorithm represents as a single time: every
// request adds one, and the threshold drains from it in each period. Requests count even if it is full: there is no
// feedback. A client's words are the level in requests·µs, and the time of the last request.
//
// If stops is set, it is the token bucket as usually deployed: it holds at most threshold tokens,
// which are refilled evenly over a period, and a request that finds no token takes none. The
// level is then the number of missing tokens, and the estimate includes the request.
type bucket struct {
	limit Limit
	stops bool
}

func (bucket) words() int { return 2 }

func (b bucket) arrive(state []uint64, at []moment, estimates []counter.Estimate) {
	for i, m := range at {
		hi, drained := bits.Mul64(uint64(m.t-int64(state[1])), b.limit.Threshold)
		if hi > 0 || drained > state[0] {
			drained = state[0]
		}
		state[0] -= drained
		state[1] = uint64(m.t)
		full := state[0] + uint64(b.limit.Period)
		period := uint64(b.limit.Period)
		estimates[i] = counter.Estimate{Whole: full / period, Part: 1, Left: int64(full % period), Of: b.limit.Period}
		if !b.stops || !estimates[i].Over(b.limit.Threshold) {
			state[0] = full
		}
	}
}
