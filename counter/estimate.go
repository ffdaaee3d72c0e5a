package counter

import "math/bits"

// An Estimate is the estimated number of requests in a period:
//
//	Whole + Part·Left/Of
//
// Whole are requests that are certainly in the period. Of Part requests, which lie in a
// stretch of time that the period begins in, the share Left/Of is taken to be in it.
// 0 ≤ Left ≤ Of, both in microseconds; Of is positive.
type Estimate struct {
	Whole, Part uint64
	Left, Of    int64
}

// Over reports whether e is greater than threshold. It is exact in 128-bit integers:
//
//	Whole·Of + Part·Left > threshold·Of
func (e Estimate) Over(threshold uint64) bool {
	if e.Whole > threshold {
		return true
	}
	return times(e.Part, e.Left).greater(times(threshold-e.Whole, e.Of))
}

// room returns how many more requests may come before e is greater than threshold:
// ⌊threshold − e⌋, or 0 if it is already.
func (e Estimate) room(threshold uint64) uint64 {
	if e.Over(threshold) {
		return 0
	}
	part, _ := times(e.Part, e.Left).over(uint64(e.Of)) // at most threshold, which fits
	if times(part, e.Of) != times(e.Part, e.Left) {
		part++
	}
	return threshold - e.Whole - part
}

// Float returns e rounded. It is for showing: decisions are made by Over.
func (e Estimate) Float() float64 {
	if e.Part == 0 {
		return float64(e.Whole)
	}
	return float64(e.Whole) + float64(e.Part)*float64(e.Left)/float64(e.Of)
}

// wide is an unsigned integer of 128 bits. A count is below 2^64 and a period below
// 2^40 µs, so that no product here overflows.
type wide struct{ hi, lo uint64 }

func times(a uint64, b int64) wide {
	hi, lo := bits.Mul64(a, uint64(b))
	return wide{hi, lo}
}

// over returns ⌊a/d⌋, and whether it fits in 64 bits.
func (a wide) over(d uint64) (q uint64, fits bool) {
	if a.hi >= d {
		return 0, false
	}
	q, _ = bits.Div64(a.hi, a.lo, d)
	return q, true
}

func (a wide) greater(b wide) bool {
	return a.hi > b.hi || a.hi == b.hi && a.lo > b.lo
}
