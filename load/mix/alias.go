package mix

import (
	"math"
	"math/bits"
)

// An alias is a discrete distribution with draws in constant time: every slot has an equal share,
// split between its own number and one other (Walker; Vose: "A linear algorithm for generating
// random numbers with a given distribution", IEEE Trans. Software Eng. 17 (1991)).
type alias []slot

type slot struct {
	keep  uint32 // the share of its own number, in units of 2⁻³²
	other uint32
}

// newAlias returns the distribution in which i has the share weights[i] of the sum. The sum, and
// every weight times len(weights), must be less than 2⁶⁴. It overwrites weights.
func newAlias(weights []uint64) alias {
	n := uint64(len(weights))
	var sum uint64
	for _, w := range weights {
		sum += w
	}
	a := make(alias, n)
	small, large := make([]uint32, 0, n), make([]uint32, 0, n)
	sort := func(i uint32) {
		if weights[i] < sum {
			small = append(small, i)
		} else {
			large = append(large, i)
		}
	}
	for i := range a {
		weights[i] *= n // now sum is the share of one slot
		sort(uint32(i))
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small, large = small[:len(small)-1], large[:len(large)-1]
		keep, _ := bits.Div64(weights[s]>>32, weights[s]<<32, sum)
		a[s] = slot{uint32(keep), l}
		weights[l] -= sum - weights[s]
		sort(l)
	}
	for _, i := range append(small, large...) {
		a[i] = slot{1<<32 - 1, i}
	}
	return a
}

// draw draws a number from the distribution.
func (a alias) draw(s *stream) uint32 {
	i, rest := bits.Mul64(s.next(), uint64(len(a)))
	one := a[i]
	if uint32(rest>>32) < one.keep {
		return uint32(i)
	}
	return one.other
}

// zipfWeights returns the weights of n ranks: (rank + offset)^−exponent, rank from 1. The
// offset is Mandelbrot's: it flattens the top. No weight is 0.
func zipfWeights(n uint64, exponent, offset float64) []uint64 {
	const heaviest = 1 << 36 // so that maxClients of them sum to less than 2⁶⁴
	weights := make([]uint64, n)
	first := math.Log(1 + offset)
	for i := range weights {
		w := math.Exp(-exponent * (math.Log(float64(i+1)+offset) - first))
		weights[i] = max(uint64(float64(w*heaviest)), 1)
	}
	return weights
}
