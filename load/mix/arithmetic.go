package mix

// The functions of package math may differ in their last bit from machine to machine, and
// compilers may fuse a product and a sum. These are for setting up: they use only what
// IEEE 754 rounds in one way, and a conversion behind every product keeps it apart, here
// and where they are used, except where one factor is a power of two: that product is
// exact, and the sum rounded once either way.

import "math"

const ln2 = math.Ln2

// ln returns the natural logarithm of a normal x > 0, within 10⁻¹⁵ of it.
func ln(x float64) float64 {
	b := math.Float64bits(x)
	exponent := int(b>>52) - 1022
	m := math.Float64frombits(b&(1<<52-1) | 1022<<52) // in [½, 1)
	if m < math.Sqrt2/2 {
		m, exponent = m*2, exponent-1
	}
	// ln m = 2·artanh((m−1)/(m+1))
	s := (m - 1) / (m + 1)
	square := float64(s * s)
	sum := 0.0
	for k := 25; k > 0; k -= 2 {
		sum = float64(sum*square) + 1/float64(k)
	}
	return float64(2*float64(s*sum)) + float64(float64(exponent)*ln2)
}

// exp returns eˣ, with a relative error below 10⁻¹³ for |x| < 700.
func exp(x float64) float64 {
	k := math.Floor(float64(x/ln2) + 0.5)
	r := x - float64(k*ln2)
	sum := 1.0
	for n := 20; n > 0; n-- {
		sum = 1 + float64(float64(r*sum)/float64(n))
	}
	return math.Ldexp(sum, int(k))
}

// cosine returns the cosine of an angle in turns.
func cosine(turns float64) float64 {
	x := turns - math.Floor(turns+0.5)
	square := float64(float64(2*math.Pi) * x)
	square = float64(square * square)
	sum := 1.0
	for n := 30; n > 0; n -= 2 {
		sum = 1 - float64(float64(square*sum)/float64(n*(n-1)))
	}
	return sum
}
