package mix

import (
	"math"
	"math/bits"
	"time"
)

// ticks is the time since the start of a component, in units of 2⁻¹⁶ µs. This is fine enough to
// preserve the mean of gaps of a few µs, and 64 bits hold four years.
type ticks int64

const (
	perMicrosecond = 1 << 16
	never          = ticks(1 << 61) // adding two of them does not overflow
)

func ticksOf(d time.Duration) ticks { return ticks(d.Microseconds()) * perMicrosecond }

// A profile is the rate of a component over time relative to its average, in constant steps. It returns
// the length of the ith step and its relative rate. Both are 0 after the last step.
type profile func(i int) (length ticks, busy float64)

// A warp maps the even time of a generator to real time so that its requests follow a profile:
// where its rate is 2, requests are twice as dense as on average. No request is lost or added, and
// evenly spaced requests stay evenly spaced locally. Times must be passed in order.
type warp struct {
	profile profile
	next    int   // the step after the current one
	from    ticks // start of the current step, in real time
	even    ticks // the same, in even time
	length  ticks
	evenly  ticks // length in even time
}

// real converts an even time to real time. It returns never after the end of the profile.
func (w *warp) real(t ticks) ticks {
	for t-w.even >= w.evenly {
		w.from, w.even = w.from+w.length, w.even+w.evenly
		var busy float64
		w.length, busy = w.profile(w.next)
		w.next, w.evenly = w.next+1, ticks(float64(w.length)*busy)
		if w.length == 0 {
			return never
		}
	}
	part := float64(t-w.even) / float64(w.evenly)
	return w.from + ticks(part*float64(w.length))
}

// portion returns k nths of whole, rounded down. The result must fit in 64 bits, even if the product does not.
func portion(whole ticks, k, n uint64) ticks {
	hi, lo := bits.Mul64(uint64(whole), k)
	quotient, _ := bits.Div64(hi, lo, n)
	return ticks(quotient)
}

// step returns the length of the kth of n steps that take whole together.
func step(whole ticks, k, n int) ticks {
	return portion(whole, uint64(k+1), uint64(n)) - portion(whole, uint64(k), uint64(n))
}

// diurnalSteps is the number of steps per period: for a day, each is 5 minutes.
const diurnalSteps = 288

// profile returns a profile that swings once per period, by depth around the average, of a component
// that starts at start.
func (s swing) profile(start int64) profile {
	period := ticksOf(s.period)
	behind := (start - s.peak.Microseconds()) % s.period.Microseconds()
	offset := float64(behind) / float64(s.period.Microseconds()) // from a peak to start, in periods
	return func(i int) (ticks, float64) {
		within := i % diurnalSteps
		periods := (float64(within) + 0.5) / diurnalSteps // since start
		return step(period, within, diurnalSteps), 1 + s.depth*math.Cos(2*math.Pi*(periods+offset))
	}
}

// rampSteps is the number of steps per slope.
const rampSteps = 256

// crowd returns a profile that rises, holds its peak and falls. Its average is its peak. Each step of a part
// without a length takes one tick, since a length of 0 would end the profile.
func crowd(ramp, hold, decay ticks) profile {
	return func(i int) (ticks, float64) {
		busy := (float64(min(i, 2*rampSteps-i)) + 0.5) / rampSteps
		switch {
		case i < rampSteps:
			return max(1, step(ramp, i, rampSteps)), busy
		case i == rampSteps:
			return max(1, hold), 1
		case i <= 2*rampSteps:
			return max(1, step(decay, i-rampSteps-1, rampSteps)), busy
		}
		return 0, 0
	}
}
