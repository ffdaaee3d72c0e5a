package mix

import (
	"math"
	"math/bits"
)

// A stream is a source of random bits: splitmix64 (Steele, Lea, Flood: "Fast splittable
// pseudorandom number generators", OOPSLA 2014), implemented here because the standard library
// does not promise stable distributions. All draws for requests use it in integers.
type stream uint64

func (s *stream) next() uint64 {
	*s += 0x9e3779b97f4a7c15
	return scramble(uint64(*s))
}

// scramble is the finisher of splitmix64, a bijection.
func scramble(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// newStream returns the stream of seed for a purpose. Streams for different purposes are
// independent.
func newStream(seed uint64, purpose string) stream {
	return stream(scramble(seed ^ hash(purpose)))
}

// hash is FNV-1a, scrambled.
func hash(s string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 0x100000001b3
	}
	return scramble(h)
}

// below returns a number in [0, n). The probability of each is off by at most 2⁻⁶⁴.
func (s *stream) below(n uint64) uint64 {
	v, _ := bits.Mul64(s.next(), n)
	return v
}

// The table of logarithms has 2^logBits entries. Linear interpolation between them has an error of
// less than 2·10⁻⁷.
const logBits = 10

// logs holds log₂(1 + i/1024) in units of 2⁻³².
var logs = func() (t [1<<logBits + 1]uint64) {
	for i := range t {
		t[i] = uint64(math.Log2(1+float64(i)/(1<<logBits))*(1<<32) + 0.5)
	}
	return t
}()

// exponential turns uniform bits into an exponentially distributed number with mean 1/ln 2, in units of
// 2⁻³²: −log₂ of the bits as a fraction.
func exponential(uniform uint64) uint64 {
	x := uniform | 1
	zeros := bits.LeadingZeros64(x)
	fraction := x << zeros << 1 // without the leading one
	i := fraction >> (64 - logBits)
	rest := fraction << logBits >> 32
	log := logs[i] + (logs[i+1]-logs[i])*rest>>32
	return uint64(zeros+1)<<32 - log
}

// A mean is the mean gap of a Poisson process, times ln 2, in ticks.
type mean uint64

// newMean returns the mean gap for n requests in t.
func newMean(t ticks, n uint64) mean {
	const ln2 = 0xb17217f7d1cf79ab // in units of 2⁻⁶⁴
	hi, _ := bits.Mul64(uint64(t), ln2)
	return mean(max(hi/n, 1))
}

// draw returns one gap.
func (m mean) draw(s *stream) ticks {
	hi, lo := bits.Mul64(exponential(s.next()), uint64(m))
	if hi >= 1<<29 {
		return never
	}
	return ticks(hi<<32 | lo>>32)
}

// A cadence yields evenly spaced gaps without accumulating rounding errors.
type cadence struct {
	gap      ticks
	rest, of uint64 // the gap is rest/of ticks longer
	debt     uint64
}

func newCadence(t ticks, n uint64) cadence {
	return cadence{gap: ticks(uint64(t) / n), rest: uint64(t) % n, of: n}
}

func (c *cadence) draw() ticks {
	if c.debt += c.rest; c.debt >= c.of {
		c.debt -= c.of
		return c.gap + 1
	}
	return c.gap
}
