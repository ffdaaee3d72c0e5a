package analysis

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/client"
	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/rule"
)

// A grid holds the rules of a Sweep with the same characteristics.
type grid struct {
	o       *SweepOptions
	rule    rule.Rule                 // to make keys
	windows *client.Values[keyWindow] // of each key, one for each period
	joined  int                       // number of keys of the grids joined to it
	byIP    bool                      // the client alone determines the key
	bytes   []byte                    // memory for the bytes of keys
	columns []column                  // one for each period
}

// A column holds the rules of a grid with the same period.
type column struct {
	over  []*overKey // keys that have exceeded the smallest threshold
	cells []cell     // one for each threshold
}

// A cell is one rule.
type cell struct {
	limit    counter.Limit
	refused  uint64
	refusals []TimelineCollector // one of each part
}

// A keyWindow holds the counts of a key for a period, independently of thresholds: those of the window of its
// last request and of the previous window, as if no request had been refused.
type keyWindow struct {
	counter.Windows[uint32, uint32]
	over uint32 // 1 + its place in column.over; 0 if it has none
}

// An overKey is a key that has exceeded the smallest threshold.
type overKey struct {
	since  uint64 // number of requests in the log at that time
	name   string // set at the first refusal
	states []cellKey
}

// A cellKey is the state of a key for one threshold, in addition to its windows: the requests in them that were
// refused and therefore not counted, and the end of its mitigation. A key that has not exceeded the threshold has no
// state. Since all thresholds have the same counts until then, a key exceeds smaller ones first.
type cellKey struct {
	refused           uint64 // in the whole log
	until             int64
	lessPrev, lessCur uint32 // refused requests in the previous and the current window
}

func newGrid(list []rule.Characteristic, o *SweepOptions) *grid {
	g := &grid{o: o, rule: rule.Rule{ID: "sweep", Characteristics: list, MitigationTimeout: o.MitigationTimeout},
		windows: client.NewValues[keyWindow](len(o.Periods)), byIP: isByClient(list), bytes: make([]byte, 0, 512)}
	for _, period := range o.Periods {
		var c column
		for _, threshold := range o.Thresholds {
			limit := counter.Limit{Threshold: threshold, Period: period.Microseconds(), Layout: counter.Plain}
			c.cells = append(c.cells, cell{limit: limit, refusals: []TimelineCollector{{max: ticksOfSweep}}})
		}
		g.columns = append(g.columns, c)
	}
	return g
}

// add adds the last request of a sweepPart.
func (g *grid) add(r *replayedRequest, req *rule.Request, sp *sweepPart) error {
	var counted [rule.MaxKeys][]keyWindow // each with a window per period
	n := 1
	if g.byIP {
		if err := g.count(&counted[0], &r.client, r.hash, sp.moments); err != nil {
			return err
		}
	} else {
		keys := g.rule.Keys(g.bytes[:0], req)
		n = keys.Len()
		for i := range n {
			key := accesslog.Client(secret.Tag(keys.At(i)))
			if err := g.count(&counted[i], &key, client.Hash(&key), sp.moments); err != nil {
				return err
			}
		}
	}
	for p := range g.columns {
		quiet := true
		var windows [rule.MaxKeys]*keyWindow
		for i := range n {
			w := &counted[i][p]
			windows[i] = w
			// The estimate is at most the sum of both windows.
			quiet = quiet && w.over == 0 && uint64(w.Prev)+uint64(w.Cur) <= g.o.Thresholds[0]
		}
		if quiet {
			continue
		}
		for i, refused := range g.decide(&g.columns[p], windows[:n], &sp.moments[p], sp) {
			if refused != nil && refused.name == "" {
				keys := g.rule.Keys(g.bytes[:0], req)
				refused.name = g.name(keys.At(i), &r.entry, req)
			}
		}
	}
	return nil
}

// count counts a request in the windows of a key.
func (g *grid) count(counted *[]keyWindow, key *accesslog.Client, hash uint64, moments []gridMoment) error {
	windows := g.windows.Of(hash, key)
	*counted = windows
	for i := range windows {
		w := &windows[i]
		if w.Index != moments[i].index {
			g.columns[i].roll(w, moments[i].index)
		}
		if w.Cur == math.MaxUint32 {
			return fmt.Errorf("analysis: more than %d requests in one window of %v have the same %s", w.Cur, g.o.Periods[i],
				join(g.rule.Characteristics))
		}
		w.Cur++
	}
	return nil
}

// roll makes the window at this index the current one.
func (c *column) roll(w *keyWindow, index uint32) {
	next := index == w.Index+1
	w.Roll(index)
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

// decide makes the decision for the last request of a sweepPart, which the windows of its keys already count, for each
// threshold. A threshold refuses the request if one of the keys is mitigated; in that case, decide subtracts the
// request from all of them. It returns the mitigated keys, at their indexes.
func (g *grid) decide(c *column, windows []*keyWindow, m *gridMoment, sp *sweepPart) (refused [rule.MaxKeys]*overKey) {
	t := sp.last
	for i := range c.cells {
		cell := &c.cells[i]
		mitigated, more := false, false
		for k, w := range windows {
			s := c.state(w, i)
			more = more || s != nil
			if s != nil && t < s.until {
				s.refused++
				refused[k] = c.over[w.over-1]
				mitigated = true
			}
		}
		if mitigated {
			cell.refused++
			cell.refusals[0].Add(t, true)
		}
		for _, w := range windows {
			if mitigated {
				c.newState(w, i, sp.events).lessCur++
				continue
			}
			prev, cur := uint64(w.Prev), uint64(w.Cur)
			if s := c.state(w, i); s != nil {
				prev, cur = prev-uint64(s.lessPrev), cur-uint64(s.lessCur)
			}
			if prev+cur <= cell.limit.Threshold || !cell.limit.Over(prev, cur, m.elapsed) {
				continue // the estimate is at most the sum of both windows
			}
			back := time.Duration(cell.limit.Back(prev, cur, m.elapsed)-m.elapsed) * time.Microsecond
			lasts, _ := async.Lasts(&g.rule, 0, back)
			c.newState(w, i, sp.events).until = t + lasts.Microseconds()
			more = true
		}
		if !more {
			break // greater thresholds have no states and are not exceeded
		}
	}
	return refused
}

// state returns the state of a key for the ith threshold, or nil if it has none.
func (c *column) state(w *keyWindow, i int) *cellKey {
	if w.over == 0 || i >= len(c.over[w.over-1].states) {
		return nil
	}
	return &c.over[w.over-1].states[i]
}

// newState returns the state of a key for the ith threshold. It creates missing states of this and smaller
// thresholds.
func (c *column) newState(w *keyWindow, i int, since uint64) *cellKey {
	if w.over == 0 {
		c.over = append(c.over, &overKey{since: since})
		w.over = uint32(len(c.over))
	}
	over := c.over[w.over-1]
	for len(over.states) <= i {
		over.states = append(over.states, cellKey{})
	}
	return &over.states[i]
}

func (g *grid) seen() int { return int(g.windows.Len()) + g.joined }

// join adds the results of o, which has no key in common with g. Nothing can be counted afterwards.
func (g *grid) join(o *grid) {
	g.joined += o.seen()
	for i := range g.columns {
		c, other := &g.columns[i], &o.columns[i]
		c.over = append(c.over, other.over...)
		slices.SortStableFunc(c.over, func(a, b *overKey) int { return cmp.Compare(a.since, b.since) })
		for j := range c.cells {
			c.cells[j].refused += other.cells[j].refused
			c.cells[j].refusals = append(c.cells[j].refusals, other.cells[j].refusals...)
		}
	}
}

// name returns the name of a key in the report: the values of its characteristics, separated by spaces. They
// are read from the bytes of the key.
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
			name = g.o.Name(nameOf(e, req.Client(), g.o.Client))
		case c.Kind == rule.Network:
			name = g.o.Name(networkOf(name, c.Name))
		case c.Kind == rule.Host || c.Kind == rule.Path || c.Kind == rule.Method:
		default:
			name = g.o.Name(name)
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// networkOf formats a network, given an address and the prefix lengths for IPv4 and IPv6.
func networkOf(addr, sizes string) string {
	ipv4, ipv6, _ := strings.Cut(sizes, "/")
	a, _ := netip.AddrFromSlice([]byte(addr))
	if a.Is4() {
		return a.String() + "/" + ipv4
	}
	return a.String() + "/" + ipv6
}

// join formats characteristics for ParseCharacteristics.
func join(list []rule.Characteristic) string {
	words := make([]string, len(list))
	for i, c := range list {
		words[i] = c.String()
	}
	return strings.Join(words, "+")
}
