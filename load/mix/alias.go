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

// newAlias returns the distribution in which i has the share weights[i] of the sum. It overwrites weights.
func newAlias(weights []float64) alias {
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	a := make(alias, len(weights))
	small, large := make([]uint32, 0, len(a)), make([]uint32, 0, len(a))
	sort := func(i uint32) {
		if weights[i] < 1 {
			small = append(small, i)
		} else {
			large = append(large, i)
		}
	}
	for i := range a {
		weights[i] *= float64(len(a)) / sum // now the share of one slot is 1
		sort(uint32(i))
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small, large = small[:len(small)-1], large[:len(large)-1]
		a[s] = slot{uint32(weights[s] * (1 << 32)), l}
		weights[l] -= 1 - weights[s]
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
	drawn := a[i]
	if uint32(rest>>32) < drawn.keep {
		return uint32(i)
	}
	return drawn.other
}

// zipfWeights returns the weights of n ranks: (rank + offset)^−exponent, rank from 1, relative to the first.
// The offset is Mandelbrot's: it flattens the top.
func zipfWeights(n uint64, exponent, offset float64) []float64 {
	weights := make([]float64, n)
	for i := range weights {
		weights[i] = math.Pow((float64(i+1)+offset)/(1+offset), -exponent)
	}
	return weights
}
