package mix

import (
	"hash/fnv"
	"math"
	"math/bits"
)

// A stream is a source of random bits: splitmix64 (Steele, Lea, Flood: "Fast splittable
// pseudorandom number generators", OOPSLA 2014). It is one word, so that its seeds are also keys.
type stream uint64

func (s *stream) next() uint64 {
	*s += 0x9e3779b97f4a7c15
	return Scramble(uint64(*s))
}

// Scramble maps z to a pseudorandom number. It is the finalizer of splitmix64, a bijection.
func Scramble(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// newStream returns the stream of seed for a purpose. Streams for different purposes are
// independent.
func newStream(seed uint64, purpose string) stream {
	return stream(Scramble(seed ^ hash(purpose)))
}

// hash is FNV-1a, scrambled.
func hash(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return Scramble(h.Sum64())
}

// below returns a number in [0, n). The probability of each is off by at most 2⁻⁶⁴.
func (s *stream) below(n uint64) uint64 {
	v, _ := bits.Mul64(s.next(), n)
	return v
}

// A mean is the mean gap of a Poisson process, in ticks.
type mean float64

// draw returns one gap.
func (m mean) draw(s *stream) ticks {
	const scale = 1.0 / (1 << 64)
	return min(ticks(-float64(m)*math.Log(float64(s.next()|1)*scale)), never)
}
