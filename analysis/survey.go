package analysis

import (
	"math"

	"github.com/edgelimit/edge/counter"
)

// A survey tells which keys may exceed a limit at any time in a log, before the log is played. Most keys
// never do, so simulated nodes need not count them. Keys share cells, so a survey may be wrong about a key that exceeds
// no limit, but not about one that does.
type survey struct {
	limits uint64       // of all rules
	mask   uint64       // of hashes
	cells  []surveyCell // for each masked hash, one of each limit; those of rules that count by client are read together
	hot    []uint64     // bit set, by the index of the first cell of a key
}

// A surveyCell counts the requests of some keys, passed or not, up to 65,535.
type surveyCell = counter.Windows[uint32, uint16]

// surveyMemory is the maximum size of all cells, in bytes.
const surveyMemory = 64 << 20

// newSurvey returns a survey with this number of cells for each limit, a power of two.
func newSurvey(limits, cells int) *survey {
	return &survey{uint64(limits), uint64(cells - 1), make([]surveyCell, cells*limits), make([]uint64, cells*limits/64+1)}
}

// count counts a request under a key. No estimate exceeds the number of all requests in its two windows.
func (s *survey) count(k *requestKey, now int64) {
	at := s.at(k)
	for i, l := range k.Limits {
		c := &s.cells[at+uint64(i)]
		index, _ := counter.WindowAt(now, l.Period.Microseconds())
		c.Roll(uint32(index))
		c.Cur = uint16(min(uint64(c.Cur)+k.CostOf(1)+k.Reserve, math.MaxUint16))
		if uint64(c.Prev)+uint64(c.Cur) > l.Threshold || c.Cur == math.MaxUint16 {
			s.hot[at/64] |= 1 << (at % 64)
		}
	}
}

// fetch reads a cell of a key: see instantPoP.fetch.
func (s *survey) fetch(k *requestKey) uint64 { return uint64(s.cells[s.at(k)].Index) }

// at returns the index of a key's first cell.
func (s *survey) at(k *requestKey) uint64 { return (k.hash&s.mask)*s.limits + k.cell }

// isCold reports whether a key never exceeds a limit.
func (s *survey) isCold(k *requestKey) bool {
	at := s.at(k)
	return s.hot[at/64]>>(at%64)&1 == 0
}
