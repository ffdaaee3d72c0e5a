package count

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/edgelimit/edge/counter"
)

// nearSet remembers which keys are near a threshold. Several keys share a bit. A wrong bit makes
// a flush early or late; no decision depends on it.
type nearSet [1 << 12]atomic.Uint64

func (s *nearSet) of(k counter.Key) (word *atomic.Uint64, bit uint64) {
	h := binary.LittleEndian.Uint64(k[8:])
	return &s[h>>6%uint64(len(s))], 1 << (h & 63)
}

func (s *nearSet) has(k counter.Key) bool {
	word, bit := s.of(k)
	return word.Load()&bit != 0
}

func (s *nearSet) set(k counter.Key, near bool) {
	switch word, bit := s.of(k); {
	case near == (word.Load()&bit != 0):
	case near:
		word.Or(bit)
	default:
		word.And(^bit)
	}
}
