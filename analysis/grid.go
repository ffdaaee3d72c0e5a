package analysis

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/pop/rule"
)

// A grid is the rules of a Sweep with the same characteristics.
type grid struct {
	o       *SweepOptions
	rule    rule.Rule              // for its keys
	keys    map[counter.Key]uint32 // place of each key seen, or nowhere
	bytes   []byte                 // memory for the bytes of keys
	columns []column               // one for each period
	blocks  []block
	free    []uint32 // places
	kept    int      // places in use after the last release
}

// A block holds places, which keys with counts have for their windows. Places grow by blocks, so
// that nothing is copied.
type block struct {
	keys    []counter.Key
	windows []keyWindow // one for each key and period
}

// nowhere is the place of a key without counts.
const nowhere = math.MaxUint32

// A column is the rules of a grid with the same period.
type column struct {
	over  []overKey // keys that have exceeded the smallest threshold
	cells []cell    // one for each threshold
}

// A cell is one rule.
type cell struct {
	refused  uint64
	refusals perPart // the same over time
}

// A keyWindow holds the counts of a key for a period, independent of thresholds: of the window of
// its last request and the previous one, as if no request was refused.
type keyWindow struct {
	counter.Windows[uint32, uint32]
	over uint32 // 1 + its place in column.over; 0 if it is not there
}

// An overKey is a key that has exceeded the smallest threshold.
type overKey struct {
	name   string // once something was refused
	states []keyState
}

// A keyState is the state of a key for one threshold: the requests in its windows that were refused
// and so not counted, and until when it is mitigated. A key that has not exceeded the threshold has
// no state. Since all thresholds have the same counts until then, it exceeds smaller ones first.
type keyState struct {
	refused           uint64
	until             int64
	lessPrev, lessCur uint32
}

// keysInBlock is the number of places in a block.
const keysInBlock = 1 << 12

func newGrid(list []rule.Characteristic, o *SweepOptions) *grid {
	g := &grid{o: o, rule: rule.Rule{ID: "sweep", Characteristics: list}, keys: map[counter.Key]uint32{}, bytes: make([]byte, 0, 512)}
	for range o.Periods {
		g.columns = append(g.columns, column{cells: make([]cell, len(o.Thresholds))})
	}
	return g
}

// add adds a request. part is its part of the log's time.
func (g *grid) add(e *accesslog.Entry, req *rule.Request, moments []moment, part int) error {
	keys := g.rule.Keys(g.bytes[:0], req)
	var counted [rule.MaxKeys][]keyWindow // each with one for each period
	for i := range keys.Len() {
		windows, err := g.of(secret.Tag(keys.At(i)), moments)
		if err != nil {
			return err
		}
		if err := g.count(windows, moments); err != nil {
			return err
		}
		counted[i] = windows
	}
	for p := range g.columns {
		m, c := &moments[p], &g.columns[p]
		if keys.Len() != 1 {
			var windows [rule.MaxKeys]*keyWindow
			for i := range keys.Len() {
				windows[i] = &counted[i][p]
			}
			for i, refused := range c.decideTogether(windows[:keys.Len()], m, e.Time, g.o, part) {
				if refused != nil && refused.name == "" {
					refused.name = g.name(keys.At(i), e, req)
				}
			}
			continue
		}
		w := &counted[0][p]
		// The estimate is at most the sum of both windows.
		if w.over == 0 && uint64(w.Prev)+uint64(w.Cur) <= g.o.Thresholds[0] {
			continue
		}
		if refused := c.decide(w, m, e.Time, g.o, part); refused != nil && refused.name == "" {
			refused.name = g.name(keys.At(0), e, req)
		}
	}
	return nil
}

// count counts a request in the windows of a key.
func (g *grid) count(windows []keyWindow, moments []moment) error {
	for i := range windows {
		w := &windows[i]
		if w.Index != moments[i].number {
			g.columns[i].roll(w, moments[i].number)
		}
		if w.Cur == math.MaxUint32 {
			return fmt.Errorf("analysis: more than %d requests in one window of %v have the same %s", w.Cur, g.o.Periods[i], join(g.rule.Characteristics))
		}
		w.Cur++
	}
	return nil
}

// of returns the windows of a key.
func (g *grid) of(key counter.Key, moments []moment) ([]keyWindow, error) {
	at, known := g.keys[key]
	if known && at != nowhere {
		_, windows := g.at(at)
		return windows, nil
	}
	if len(g.free) == 0 {
		if len(g.blocks) == nowhere/keysInBlock {
			return nil, fmt.Errorf("analysis: there are too many different %s", join(g.rule.Characteristics))
		}
		g.extend(moments)
	}
	at = g.free[len(g.free)-1]
	g.free = g.free[:len(g.free)-1]
	g.keys[key] = at
	holder, windows := g.at(at)
	*holder = key
	for i := range windows {
		windows[i] = keyWindow{Windows: counter.Windows[uint32, uint32]{Index: moments[i].number}}
	}
	return windows, nil
}

// at returns the key and the windows at a place.
func (g *grid) at(place uint32) (*counter.Key, []keyWindow) {
	b := &g.blocks[place/keysInBlock]
	i, n := int(place%keysInBlock), len(g.columns)
	return &b.keys[i], b.windows[i*n : i*n+n]
}

// extend makes free places. When twice as many are in use as after the last release, it releases
// those of keys whose windows have passed. So there are about as many places as keys active at
// once, and the cost per taken place is constant.
func (g *grid) extend(moments []moment) {
	used := len(g.blocks) * keysInBlock
	if used >= 2*g.kept {
		for place := range uint32(used) {
			key, windows := g.at(place)
			if idle(windows, moments) {
				g.keys[*key] = nowhere
				g.free = append(g.free, place)
			}
		}
		g.kept = used - len(g.free)
	}
	if len(g.free) > 0 {
		return
	}
	g.blocks = append(g.blocks, block{make([]counter.Key, keysInBlock), make([]keyWindow, keysInBlock*len(g.columns))})
	for i := range uint32(keysInBlock) {
		g.free = append(g.free, uint32(used)+keysInBlock-1-i)
	}
}

// idle reports whether the windows have no counts any more.
func idle(windows []keyWindow, moments []moment) bool {
	for i := range windows {
		if windows[i].over > 0 || moments[i].number-windows[i].Index < 2 {
			return false
		}
	}
	return true
}

// roll makes the window at number the current one.
func (c *column) roll(w *keyWindow, number uint32) {
	next := number == w.Index+1
	w.Roll(number)
	if w.over == 0 {
		return
	}
	states := c.over[w.over-1].states
	for i := range states {
		k := &states[i]
		k.lessPrev, k.lessCur = k.lessCur, 0
		if !next {
			k.lessPrev = 0
		}
	}
}

// decide decides a request at t, which w has counted, for each threshold. It returns the key if
// one of them refuses it.
func (c *column) decide(w *keyWindow, m *moment, t int64, o *SweepOptions, part int) (refused *overKey) {
	known := 0
	if w.over > 0 {
		over := &c.over[w.over-1]
		known = len(over.states)
		for i := range over.states {
			k := &over.states[i]
			if t < k.until {
				k.refused++
				k.lessCur++
				c.cells[i].refused++
				c.cells[i].refusals.add(part)
				refused = over
				continue
			}
			k.mitigate(o, i, uint64(w.Prev-k.lessPrev), uint64(w.Cur-k.lessCur), m, t)
		}
	}
	for i := known; i < len(o.Thresholds); i++ {
		var k keyState
		if !k.mitigate(o, i, uint64(w.Prev), uint64(w.Cur), m, t) {
			break
		}
		if w.over == 0 {
			c.over = append(c.over, overKey{})
			w.over = uint32(len(c.over))
		}
		over := &c.over[w.over-1]
		over.states = append(over.states, k)
	}
	return refused
}

// decideTogether is decide for a request with several keys: a threshold refuses it if one of them
// is mitigated, and then counts it under none. It returns the mitigated keys, at their indexes.
func (c *column) decideTogether(windows []*keyWindow, m *moment, t int64, o *SweepOptions, part int) (refused [rule.MaxKeys]*overKey) {
	for i := range o.Thresholds {
		mitigated, more := false, false
		for k, w := range windows {
			if known := c.statesOf(w); i < len(known) {
				more = true
				if t < known[i].until {
					known[i].refused++
					refused[k] = &c.over[w.over-1]
					mitigated = true
				}
			}
		}
		if mitigated {
			c.cells[i].refused++
			c.cells[i].refusals.add(part)
		}
		for _, w := range windows {
			if mitigated {
				c.state(w, i).lessCur++
				continue
			}
			var k keyState
			if known := c.statesOf(w); i < len(known) {
				k = known[i]
			}
			if k.mitigate(o, i, uint64(w.Prev-k.lessPrev), uint64(w.Cur-k.lessCur), m, t) {
				*c.state(w, i) = k
				more = true
			}
		}
		if !more {
			break // greater thresholds have no states, and are not exceeded
		}
	}
	// c.over may have moved.
	for k, w := range windows {
		if refused[k] != nil {
			refused[k] = &c.over[w.over-1]
		}
	}
	return refused
}

// statesOf returns the states of a key.
func (c *column) statesOf(w *keyWindow) []keyState {
	if w.over == 0 {
		return nil
	}
	return c.over[w.over-1].states
}

// state returns the state of a key for the ith threshold, and makes it and those of smaller
// thresholds if they do not exist.
func (c *column) state(w *keyWindow, i int) *keyState {
	if w.over == 0 {
		c.over = append(c.over, overKey{})
		w.over = uint32(len(c.over))
	}
	over := &c.over[w.over-1]
	for len(over.states) <= i {
		over.states = append(over.states, keyState{})
	}
	return &over.states[i]
}

// mitigate starts a mitigation if the estimate exceeds the ith threshold, and reports
// whether it does. It ends at the later of its timeout and the moment when the estimate is
// back, as in pop/limit.
func (k *keyState) mitigate(o *SweepOptions, i int, prev, cur uint64, m *moment, t int64) (started bool) {
	estimate := counter.Estimate{Whole: cur, Part: prev, Left: m.period - m.elapsed, Of: m.period}
	if !estimate.Over(o.Thresholds[i]) {
		return false
	}
	limit := counter.Limit{Threshold: o.Thresholds[i], Period: m.period, Layout: counter.Plain}
	k.until = t + max(o.MitigationTimeout.Microseconds(), limit.Back(prev, cur, m.elapsed)-m.elapsed)
	return true
}

// halve joins each two neighbouring parts of the time of the log.
func (g *grid) halve() {
	for i := range g.columns {
		for j := range g.columns[i].cells {
			g.columns[i].cells[j].refusals.halve()
		}
	}
}

// name returns what the report calls what a request is counted with: the values of its
// characteristics, with blanks between. They are read from the bytes of its key.
func (g *grid) name(key []byte, e *accesslog.Entry, req *rule.Request) string {
	rest := key
	number := func() int {
		n := binary.BigEndian.Uint32(rest)
		rest = rest[4:]
		return int(n)
	}
	text := func() string {
		n := number()
		s := string(rest[:n])
		rest = rest[n:]
		return s
	}
	rest = rest[1:] // version
	text()          // rule ID
	var names []string
	for _, c := range g.rule.Characteristics {
		rest = rest[1:] // kind
		text()          // name
		name := ""
		n := number()
		if n == 1 {
			name = text()
		}
		switch {
		case n == 0:
			name = "(no " + c.String() + ")"
		case n > 1:
			name = "(several " + c.String() + ")"
		case c.Kind == rule.IP:
			name = g.o.Name(nameOf(e, req, g.o.Client))
		case c.Kind == rule.Host || c.Kind == rule.Path || c.Kind == rule.Method:
		default:
			name = g.o.Name(name)
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// join writes characteristics as ParseCharacteristics reads them.
func join(list []rule.Characteristic) string {
	words := make([]string, len(list))
	for i, c := range list {
		words[i] = c.String()
	}
	return strings.Join(words, "+")
}

// A perPart is a number for each part of a timeline, as far as they are not 0.
type perPart []uint64

func (p *perPart) add(part int) {
	for len(*p) <= part {
		*p = append(*p, 0)
	}
	(*p)[part]++
}

// halve joins each two neighbours.
func (p *perPart) halve() {
	for i, n := range *p {
		(*p)[i] = 0
		(*p)[i/2] += n
	}
	*p = (*p)[:(len(*p)+1)/2]
}
