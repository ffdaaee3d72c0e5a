package limit

import (
	"math"
	"slices"
	"time"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/limit/exact"
	"github.com/edgelimit/edge/rule"
)

// A KeyState is the state of a key under a rule, for programs that replay logs: the counts of each limit, and the end
// of the mitigation. It behaves like a single node that counts each request immediately or, if exact, like one that
// keeps the time of every request. Times are in microseconds since the Unix epoch, and must not decrease from call to
// call. A KeyState is not safe for concurrent use.
type KeyState struct {
	Rule    *rule.Rule
	until   int64                            // end of the mitigation
	windows []counter.Windows[int64, uint64] // of each limit; nil if the state is exact
	logs    []exact.Log                      // of each limit, if the state is exact
}

// An Excess says by how much the requests of a key exceed a limit: of several limits, the one that is back at its
// threshold last.
type Excess struct {
	Back     int64  // when every limit is back at its threshold if no more requests come
	Period   int64  // of the limit
	Estimate uint64 // rounded up
}

// NewKeyState returns the state of a key without requests. If exactly is set, the state is exact.
func NewKeyState(r *rule.Rule, exactly bool) KeyState {
	s := KeyState{Rule: r, until: math.MinInt64}
	if exactly {
		s.logs = make([]exact.Log, len(r.Limits))
		return s
	}
	s.windows = make([]counter.Windows[int64, uint64], len(r.Limits))
	for i := range s.windows {
		s.windows[i].Index = math.MinInt64
	}
	return s
}

// Until returns when the mitigation of the key ends, if that is later than t.
func (s *KeyState) Until(t int64) (until int64, mitigated bool) { return s.until, t < s.until }

// Fetch reads the state and returns a meaningless number, so that a caller can make the cache misses of several states
// overlap.
func (s *KeyState) Fetch() (n uint64) {
	for i := range s.windows {
		n += uint64(s.windows[i].Index)
	}
	for i := range s.logs {
		n += uint64(s.logs[i].Newest())
	}
	return n
}

// nodeTick is the resolution at which nodes count, in microseconds: a request counts as if it came at the start of its
// tick, which may be in the previous sub-window. For sub-windows of whole seconds, nodes use ticks of a second, with
// the same result: such a tick lies in one sub-window.
const nodeTick = async.ShortTick * 1000

// Add counts a request, and reports whether a limit is now exceeded. It does not mitigate the key.
func (s *KeyState) Add(t int64, cost uint64) (e Excess, over bool) {
	for i := range s.Rule.Limits {
		l := s.Rule.Limits[i].Counted()
		back := t + l.Period // if the rule sheds: it counts refused requests, too
		var estimate uint64
		if s.logs != nil {
			log := &s.logs[i]
			if !log.Exceeds(cost, l.Threshold, t, l.Period) {
				continue
			}
			if s.Rule.Action != rule.Shed {
				back = log.Back(l.Threshold, l.Period)
			}
			estimate = log.Total()
		} else {
			w := &s.windows[i]
			index, elapsed := counter.WindowAt(t, l.Period)
			w.Roll(index)
			w.Cur = l.Count(w.Cur, cost, elapsed-elapsed%nodeTick)
			estimate = l.Estimate(w.Prev, w.Cur, elapsed).Ceil()
			if estimate <= l.Threshold {
				continue
			}
			back = t - elapsed + l.Back(w.Prev, w.Cur, elapsed)
		}
		if !over || back > e.Back {
			e = Excess{back, l.Period, estimate}
		}
		over = true
	}
	return e, over
}

// Mitigate starts or extends the mitigation of a key whose requests exceed a limit at t, as nodes do. It reports
// whether the mitigation now ends later.
func (s *KeyState) Mitigate(e Excess, t int64) bool {
	left := max(t, s.until) - t
	lasts, changes := async.Lasts(s.Rule, time.Duration(left)*time.Microsecond, time.Duration(e.Back-t)*time.Microsecond)
	if changes {
		s.until = t + lasts.Microseconds()
	}
	return changes
}

// Sheds reports whether requests of a client with this share of a mitigated key are refused at t: see
// [async.Loop.Sheds].
func (s *KeyState) Sheds(share async.Share, t int64) bool {
	for i := range s.Rule.Limits {
		l := s.Rule.Limits[i].Counted()
		l.Threshold = share.Of(l.Threshold)
		if s.logs != nil {
			if s.logs[i].Over(l.Threshold, t, l.Period) {
				return true
			}
			continue
		}
		w := s.windows[i]
		index, elapsed := counter.WindowAt(t, l.Period)
		w.Roll(index)
		if l.Over(w.Prev, w.Cur, elapsed) {
			return true
		}
	}
	return false
}

// Replace replaces the rule at t. Limits with the same period and, unless the state is exact, the same layout keep
// their counts. A mitigation ends if the new rule would not have started it for e.
func (s *KeyState) Replace(r *rule.Rule, e Excess, t int64) {
	old := *s
	*s = NewKeyState(r, old.logs != nil)
	for i := range r.Limits {
		l := r.Limits[i].Counted()
		same := slices.IndexFunc(old.Rule.Limits, func(o rule.Limit) bool {
			b := o.Counted()
			return b.Period == l.Period && (s.logs != nil || b.Layout == l.Layout)
		})
		switch {
		case same < 0:
		case s.logs != nil:
			s.logs[i] = old.logs[same]
		default:
			s.windows[i] = old.windows[same]
		}
	}
	s.until = old.until
	if !async.Exceeds(r, e.Period, e.Estimate) {
		s.until = min(s.until, t)
	}
}
