package analysis

import (
	"math"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/rule"
)

// A survey tells which keys of a rule may exceed a limit at any time in a log, before the log is played. Most keys
// never do, so simulated nodes need not count them. Keys share cells, so a survey may be wrong about a key that exceeds
// no limit, but not about one that does.
type survey struct {
	cells [][]surveyCell // of each limit; their number is a power of two
	hot   []bool         // by the index of a cell
}

// A surveyCell counts the requests of some keys, passed or not, up to 65,535.
type surveyCell = counter.Windows[uint32, uint16]

// surveyMemory is the maximum size of all cells, in bytes.
const surveyMemory = 64 << 20

func newSurvey(r *rule.Rule, cells int) *survey {
	s := &survey{cells: make([][]surveyCell, len(r.Limits)), hot: make([]bool, cells)}
	for i := range s.cells {
		s.cells[i] = make([]surveyCell, cells)
	}
	return s
}

// count counts a request under a key. In its two windows, no estimate exceeds the number of all requests.
func (s *survey) count(k *requestKey, now int64) {
	at := s.at(k.hash)
	for i, l := range k.Limits {
		c := &s.cells[i][at]
		index, _ := counter.WindowAt(now, l.Period.Microseconds())
		c.Roll(uint32(index))
		c.Cur = uint16(min(uint64(c.Cur)+k.CostOf(1)+k.Reserve, math.MaxUint16))
		if uint64(c.Prev)+uint64(c.Cur) > l.Threshold || c.Cur == math.MaxUint16 {
			s.hot[at] = true
		}
	}
}

// fetch reads the cells of a key: see instantPoP.fetch.
func (s *survey) fetch(hash uint64) (n uint64) {
	for i := range s.cells {
		n += uint64(s.cells[i][s.at(hash)].Index)
	}
	return n
}

// at returns the index of a key's cells.
func (s *survey) at(hash uint64) uint64 { return hash & uint64(len(s.hot)-1) }

// isCold reports whether a key never exceeds a limit.
func (s *survey) isCold(hash uint64) bool { return !s.hot[s.at(hash)] }
