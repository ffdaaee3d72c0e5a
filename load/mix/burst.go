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
	half := k.width.Microseconds() / 2
	first := set.start + half // the earliest edge whose burst begins after the component
	edge := (first + step - 1) / step * step
	return &edges{
		swing: set.swing,
		key:   uint64(set.stream),
		at:    ticks(edge-set.start) * perMicrosecond,
		step:  ticks(step) * perMicrosecond,
		width: ticksOf(k.width),
		n:     k.n,
		all:   k.n * k.requests,
		end:   set.end,
	}
}

// edges generates bursts in which all clients send at once, each evenly spaced.
type edges struct {
	swing           *diurnal
	key             uint64
	at              ticks // the current edge
	step, width     ticks
	n, all, k, turn uint64
	end             ticks
}

func (g *edges) next(a *arrival) bool {
	for g.at < g.end {
		// (2k+1)/2n of the width after the start of the burst.
		hi, lo := bits.Mul64(uint64(g.width), 2*g.k+1)
		within, _ := bits.Div64(hi, lo, 2*g.all)
		a.at, a.client = g.at-g.width/2+ticks(within), g.k%g.n
		skipped := g.skipped(a.client)
		if g.k++; g.k == g.all {
			g.k, g.at, g.turn = 0, g.at+g.step, g.turn+1
		}
		if !skipped {
			return true
		}
	}
	return false
}

// skipped reports whether a client skips the current edge. The lower the rate, the more clients do.
func (g *edges) skipped(client uint64) bool {
	if g.swing == nil {
		return false
	}
	busy := g.swing.busy(float64(g.at) / float64(g.swing.period))
	most := uint64((1 + g.swing.depth) * one)
	at, _ := bits.Mul64(scramble(g.key^g.turn<<32^client), most)
	return at >= busy
}
