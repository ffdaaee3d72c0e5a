package analysis

import (
	"math"

	"github.com/edgelimit/edge/rule"
)

// keyStates hold the states of the keys of a group of rules. A key that has been unused for longer than life
// no longer has an effect.
type keyStates struct {
	agingTable[fewTimes] // its life is at least twice the longest period

	rules      []*member
	limits     int        // of one key
	counts     int64      // maximum time that a request counts
	least      uint64     // maximum number of requests that cannot exceed a limit
	sheds      bool       // a rule sheds
	minClients bool       // a rule has MinClients
	sent       *keyStates // counts refused requests too; nil if no rule needs it
}

// maxRules is the maximum number of rules in a group: fewTimes has a bit for each.
const maxRules = 8

// decidedAtOnce is the number of requests that are decided together.
const decidedAtOnce = 1 << 6

// fewTimes are the times of a key's requests, as long as they are too few to exceed a limit. Most keys of most
// logs never have more. Its size is that of a cache line.
type fewTimes struct {
	base  int64
	state *state    // replaces the times; nil while they are few
	after [8]uint32 // microseconds since base
	rules [8]uint8  // the rules that counted each request, one bit per rule
	n     uint8
}

// A state is the state of a key that may exceed a limit.
type state struct {
	untils  []keyUntil
	limits  []limitState
	clients [][ways]keyClients // by the place of the rule; nil if no rule has MinClients
}

func newKeyStates(life int64) *keyStates {
	return &keyStates{agingTable: newAgingTable[fewTimes](life), least: math.MaxUint64}
}

// alike returns empty states for the same rules, which need not contain clients or mitigations.
func (g *keyStates) alike() *keyStates {
	other := *g
	other.agingTable, other.minClients = newAgingTable[fewTimes](g.counts), false
	return &other
}

// add makes room for the states of a rule.
func (g *keyStates) add(m *member) {
	m.place, m.from = len(g.rules), g.limits
	g.rules, g.limits = append(g.rules, m), g.limits+len(m.limits)
	g.bound(m)
	g.sheds = g.sheds || m.Action == rule.Shed
	if m.MinClients > 1 {
		g.minClients, g.least = true, 0 // fewTimes do not contain clients
	}
	g.life = max(g.life, g.counts, m.MitigationTimeout.Microseconds())
}

// bound adds the limits of a rule.
func (g *keyStates) bound(m *member) {
	for _, l := range m.limits {
		g.counts, g.least = max(g.counts, 2*l.Period), min(g.least, l.Threshold/m.CostOf(1))
	}
}

// newState returns the state of a key without requests.
func (g *keyStates) newState() *state {
	s := &state{untils: make([]keyUntil, len(g.rules)), limits: make([]limitState, g.limits)}
	for i := range s.untils {
		s.untils[i] = keyUntil{-never, -never}
	}
	for i := range s.limits {
		s.limits[i].Index = -never
	}
	if g.minClients {
		s.clients = make([][ways]keyClients, len(g.rules))
	}
	return s
}

// add adds a request, and reports whether there is room for it.
func (t *fewTimes) add(now int64, rules uint8, g *keyStates) bool {
	most := min(uint64(len(t.after)), g.least)
	if uint64(t.n) >= most || now-t.base > math.MaxUint32 {
		t.forget(now - g.counts)
	}
	if t.n == 0 {
		t.base = now
	}
	if uint64(t.n) >= most || now-t.base > math.MaxUint32 {
		return false
	}
	t.after[t.n], t.rules[t.n] = uint32(now-t.base), rules
	t.n++
	return true
}

// forget removes the requests at or before a time.
func (t *fewTimes) forget(until int64) {
	old := uint8(0)
	for old < t.n && t.base+int64(t.after[old]) <= until {
		old++
	}
	if old == 0 || old == t.n {
		t.n -= old
		return
	}
	begin := t.after[old]
	copy(t.rules[:], t.rules[old:t.n])
	t.n -= old
	for i := range t.n {
		t.after[i] = t.after[i+old] - begin
	}
	t.base += int64(begin)
}
