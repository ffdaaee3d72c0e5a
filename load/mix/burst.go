package mix

import (
	"math/bits"
	"time"
)

// boundary describes clients that burst around the edges of a limit's windows: they send half of
// their requests just before an edge and half just after it.
type boundary struct {
	members
	requests      uint64 // of each client
	period, width time.Duration
	every         int64 // n, to burst at every nth edge
}

func (k *boundary) skips() bool { return true }

func (k *boundary) generator(set *setting) generator {
	step := k.period.Microseconds() * k.every
	first := set.start + k.width.Microseconds()/2 // the earliest edge whose burst begins after the component
	edge := ticks((first+step-1)/step*step-set.start) * perMicrosecond
	width, all := ticksOf(k.width), k.n*k.requests
	var sent, turn uint64 // requests of this burst, and bursts before it
	return func(a *arrival) bool {
		for edge < set.end {
			// (2·sent+1)/(2·all) of the width after the start of the burst.
			hi, lo := bits.Mul64(uint64(width), 2*sent+1)
			within, _ := bits.Div64(hi, lo, 2*all)
			a.at, a.client = edge-width/2+ticks(within), sent%k.n
			skipped := set.swing != nil && set.swing.skipped(edge, scramble(uint64(set.stream)^turn<<32^a.client))
			if sent++; sent == all {
				sent, edge, turn = 0, edge+ticks(step)*perMicrosecond, turn+1
			}
			if !skipped {
				return true
			}
		}
		return false
	}
}

// skipped reports whether a client that drew random skips the edge at a time. The lower the rate, the
// more clients do.
func (d *diurnal) skipped(at ticks, random uint64) bool {
	most := uint64((1 + d.depth) * one)
	drawn, _ := bits.Mul64(random, most)
	return drawn >= d.busy(float64(at)/float64(d.period))
}
