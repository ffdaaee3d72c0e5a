package analysis

import (
	"math"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/client"
	"github.com/edgelimit/edge/pop/rule"
)

// keyStates hold the states of the keys of a group of rules. A key that was not used for longer than life has
// no effect any more and is forgotten, so the size depends on the number of active keys, not on the length of
// the log.
type keyStates struct {
	rules       []*member
	limits      int   // of one key
	life        int64 // at least twice the longest period
	counts      int64 // maximum time that a request counts
	least       uint64
	sheds       bool  // a rule sheds
	minClients  bool  // a rule has MinClients
	since, used int64 // when young began, and when it was last used
	young, old  *generation
	sent        *keyStates // counts the same requests and refused ones; nil if no rule needs it
}

// maxRules is the maximum number of rules in a group: fewTimes has a bit for each.
const maxRules = 8

// A generation holds the states of keys in blocks, so that nothing is copied when it grows.
type generation struct {
	numbers *client.Table
	times   [][]fewTimes
	states  []stateBlock
	many    uint32 // states in use
}

const keysInStateBlock = 1 << 8

// decidedAtOnce is the number of requests that are decided together.
const decidedAtOnce = 1 << 6

// fewTimes are the times of a key's requests, as long as they are too few to exceed a limit. Most keys of most
// logs never have more. Its size is that of a cache line.
type fewTimes struct {
	base  int64
	after [10]uint32 // microseconds since base; if isMany, the first is the place of the state
	rules [10]uint8  // the rules that counted it, one bit each
	n     uint8
}

const manyTimes = math.MaxUint8 // for n

// isMany reports whether a key has a state.
func (t *fewTimes) isMany() bool { return t.n == manyTimes }

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

// forget removes the requests at and before a time.
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

// A state is the state of a key that may exceed a limit.
type state struct {
	untils []keyUntil
	limits []limitState
}

// A stateBlock holds the states of keysInStateBlock keys.
type stateBlock struct {
	state
	clients [][ways]keyClients // if a rule has MinClients
}

func newKeyStates(life int64) *keyStates {
	return &keyStates{life: life, least: math.MaxUint64, young: newGeneration()}
}

func newGeneration() *generation { return &generation{numbers: client.NewTable()} }

// alike returns empty states for the same rules, which need not contain clients or mitigations.
func (g *keyStates) alike() *keyStates {
	other := *g
	other.life, other.minClients, other.young = g.counts, false, newGeneration()
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

// at returns the times at a place.
func (g *generation) at(place uint32) *fewTimes {
	return &g.times[place/keysInStateBlock][place%keysInStateBlock]
}

// state returns the state of a young key with many times.
func (g *keyStates) state(t *fewTimes) state { return g.young.state(g, t) }

func (g *generation) state(ks *keyStates, t *fewTimes) state {
	place := t.after[0]
	b, i, rules := &g.states[place/keysInStateBlock], int(place%keysInStateBlock), len(ks.rules)
	return state{b.untils[i*rules : (i+1)*rules], b.limits[i*ks.limits : (i+1)*ks.limits]}
}

// clientsOf returns the clients of a key with many times, by the place of the rule, or nil if no rule has
// MinClients.
func (g *generation) clientsOf(ks *keyStates, t *fewTimes) [][ways]keyClients {
	if !ks.minClients {
		return nil
	}
	place, rules := t.after[0], len(ks.rules)
	i := int(place % keysInStateBlock)
	return g.states[place/keysInStateBlock].clients[i*rules : (i+1)*rules]
}

// extend gives a key a new state.
func (g *generation) extend(ks *keyStates, t *fewTimes) state {
	if g.many%keysInStateBlock == 0 {
		b := stateBlock{state: state{make([]keyUntil, keysInStateBlock*len(ks.rules)), make([]limitState, keysInStateBlock*ks.limits)}}
		if ks.minClients {
			b.clients = make([][ways]keyClients, keysInStateBlock*len(ks.rules))
		}
		g.states = append(g.states, b)
	}
	*t = fewTimes{after: [10]uint32{g.many}, n: manyTimes}
	g.many++
	s := g.state(ks, t)
	for i := range s.untils {
		s.untils[i] = keyUntil{-never, -never}
	}
	for i := range s.limits {
		s.limits[i].Index = -never
	}
	return s
}

// age forgets unused keys before requests in a stretch of time, which must not be before that of the last call.
// Results of get are valid until the next call.
func (g *keyStates) age(from, to int64) {
	switch {
	case g.young.numbers.Len() == 0:
		g.since = from
	case from-g.since > g.life:
		if g.old = g.young; from-g.used > g.life {
			g.old = nil
		}
		g.young, g.since = newGeneration(), from
	}
	g.used = to
}

// get returns the times of a key.
func (g *keyStates) get(key *accesslog.Client, hash uint64) *fewTimes {
	known := g.young.numbers.Len()
	place := g.young.numbers.At(hash, key)
	if place < known {
		return g.young.at(place)
	}
	if place%keysInStateBlock == 0 {
		g.young.times = append(g.young.times, client.Make[fewTimes](keysInStateBlock))
	}
	t := g.young.at(place)
	if g.old == nil {
		return t
	}
	if before, ok := g.old.numbers.Find(hash, key); ok {
		if *t = *g.old.at(before); t.isMany() {
			from, clients := g.old.state(g, t), g.old.clientsOf(g, t)
			to := g.young.extend(g, t)
			copy(to.untils, from.untils)
			copy(to.limits, from.limits)
			copy(g.young.clientsOf(g, t), clients)
		}
	}
	return t
}
