package counter

import "math/bits"

// An Estimate is the estimated number of requests in a period:
//
//	Whole + Part·Left/Of
//
// Whole requests are certainly in the period. Part requests lie in the sub-window in which the
// period begins; the share Left/Of of them is assumed to be in it.
// 0 ≤ Left ≤ Of, both in microseconds; Of is positive.
type Estimate struct {
	Whole, Part uint64
	Left, Of    int64
}

// Over reports whether e is greater than threshold. It is exact in 128-bit integers:
//
//	Whole·Of + Part·Left > threshold·Of
func (e Estimate) Over(threshold uint64) bool {
	switch {
	case e.Whole > threshold:
		return true
	case e.Part <= threshold-e.Whole: // even all of it would fit
		return false
	}
	return times(e.Part, e.Left).greater(times(threshold-e.Whole, e.Of))
}

// room returns how many more requests may come before e exceeds threshold: ⌊threshold − e⌋, or 0 if e already exceeds
// it.
func (e Estimate) room(threshold uint64) uint64 {
	if e.Over(threshold) {
		return 0
	}
	part, _ := times(e.Part, e.Left).div(uint64(e.Of)) // at most threshold, which fits
	if times(part, e.Of) != times(e.Part, e.Left) {
		part++
	}
	return threshold - e.Whole - part
}

// rounded returns e rounded down.
func (e Estimate) rounded() Estimate {
	share, _ := times(e.Part, e.Left).div(uint64(e.Of)) // at most Part, which fits
	return Estimate{e.Whole + min(share, ^e.Whole), 0, e.Left, e.Of}
}

// Float returns e rounded, for display only.
func (e Estimate) Float() float64 {
	if e.Part == 0 {
		return float64(e.Whole)
	}
	return float64(e.Whole) + float64(e.Part)*float64(e.Left)/float64(e.Of)
}

// A wide is an unsigned integer of 128 bits. Counts are below 2^64 and periods below 2^40 µs, so no product overflows.
type wide struct{ hi, lo uint64 }

func times(a uint64, b int64) wide {
	hi, lo := bits.Mul64(a, uint64(b))
	return wide{hi, lo}
}

func (a wide) plus(n uint64) wide {
	lo, carry := bits.Add64(a.lo, n, 0)
	return wide{a.hi + carry, lo}
}

// div returns ⌊a/d⌋, and whether it fits in 64 bits.
func (a wide) div(d uint64) (q uint64, fits bool) {
	if a.hi >= d {
		return 0, false
	}
	q, _ = bits.Div64(a.hi, a.lo, d)
	return q, true
}

func (a wide) greater(b wide) bool {
	return a.hi > b.hi || a.hi == b.hi && a.lo > b.lo
}
