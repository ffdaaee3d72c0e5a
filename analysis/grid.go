package analysis

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/client"
	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/rule"
)

// A grid holds the rules of a Sweep with the same characteristics, for the keys of one owner of requests.
type grid struct {
	o       *SweepOptions
	rule    rule.Rule                 // to make keys
	windows *client.Values[keyWindow] // of each key, one for each period
	byIP    bool                      // the client alone determines the key
	bytes   []byte                    // memory for the bytes of keys
	columns []column                  // one for each period
	now     int64                     // time of the last request; math.MinInt64 before the first one
}

// A column holds the rules of a grid with the same period.
type column struct {
	over    []*overKey // keys that have exceeded the smallest threshold
	cells   []cell     // one for each threshold
	first   int64      // index of the window of the first request
	index   uint32     // of the window of the last request, relative to first: the greatest one stands for all later ones
	elapsed int64      // in that window
}

// A cell is one rule.
type cell struct {
	limit    counter.Limit
	refusals TimelineCollector
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

// A cellKey is the state of a key for one threshold: the counts of the requests that were not refused, and the end of
// its mitigation. A key that has not exceeded the threshold has no state: its counts are those of its keyWindow.
// Until then all thresholds have the same counts, so a key exceeds smaller ones first.
type cellKey struct {
	counter.Windows[uint32, uint32]
	refused uint64 // in the whole log
	until   int64
}

func newGrid(list []rule.Characteristic, o *SweepOptions) *grid {
	g := &grid{o: o, rule: rule.Rule{ID: "sweep", Characteristics: list, MitigationTimeout: o.MitigationTimeout},
		windows: client.NewValues[keyWindow](len(o.Periods)), byIP: isByClient(list), bytes: make([]byte, 0, 512),
		now: math.MinInt64}
	for _, period := range o.Periods {
		var c column
		for _, threshold := range o.Thresholds {
			limit := counter.Limit{Threshold: threshold, Period: period.Microseconds(), Layout: counter.Plain}
			c.cells = append(c.cells, cell{limit: limit, refusals: TimelineCollector{max: ticksOfSweep}})
		}
		g.columns = append(g.columns, c)
	}
	return g
}

func (g *grid) add(r *replayedRequest, req *rule.Request) error {
	if r.now != g.now {
		g.advance(r.now)
	}
	var counted [rule.MaxKeys][]keyWindow // each with a window per period
	n := 1
	if g.byIP {
		counted[0] = g.windows.Of(r.hash, &r.client)
	} else {
		keys := g.rule.Keys(g.bytes[:0], req)
		n = keys.Len()
		for i := range n {
			key := accesslog.Client(secret.Tag(keys.At(i)))
			counted[i] = g.windows.Of(client.Hash(&key), &key)
		}
	}
	for p := range g.columns {
		for _, windows := range counted[:n] {
			w := &windows[p]
			w.Roll(g.columns[p].index)
			if w.Cur == math.MaxUint32 {
				return fmt.Errorf("analysis: more than %d requests in one window of %v have the same %s", w.Cur, g.o.Periods[p],
					join(g.rule.Characteristics))
			}
			w.Cur++
		}
		g.decide(r, req, p, counted[:n])
	}
	return nil
}

// advance moves the windows of all columns to a time.
func (g *grid) advance(now int64) {
	for i, period := range g.o.Periods {
		c := &g.columns[i]
		index, elapsed := counter.WindowAt(now, period.Microseconds())
		if g.now == math.MinInt64 {
			c.first = index
		}
		c.index, c.elapsed = uint32(min(index-c.first, math.MaxUint32)), elapsed
	}
	g.now = now
}

// decide makes the decision about a request, which the windows of its keys already count, for each threshold of the pth
// period. A threshold refuses the request if one of the keys is mitigated; in that case, none of them counts it.
func (g *grid) decide(r *replayedRequest, req *rule.Request, p int, counted [][]keyWindow) {
	c := &g.columns[p]
	for i := range c.cells {
		cell := &c.cells[i]
		mitigated, more := false, false
		for k := range counted {
			s := c.state(&counted[k][p], i)
			if s == nil {
				continue
			}
			more = true
			s.Roll(c.index)
			s.Cur++
			if r.now >= s.until {
				continue
			}
			mitigated = true
			s.refused++
			if over := c.over[counted[k][p].over-1]; over.name == "" {
				keys := g.rule.Keys(g.bytes[:0], req)
				over.name = g.name(keys.At(k), &r.entry, req)
			}
		}
		if mitigated {
			cell.refusals.Add(r.now, true)
		}
		for k := range counted {
			w := &counted[k][p]
			if mitigated {
				c.newState(w, i, r.number).Cur--
				continue
			}
			counts := w.Windows
			if s := c.state(w, i); s != nil {
				counts = s.Windows
			}
			prev, cur := uint64(counts.Prev), uint64(counts.Cur)
			if prev+cur <= cell.limit.Threshold || !cell.limit.Over(prev, cur, c.elapsed) {
				continue // the estimate is at most the sum of both windows
			}
			back := time.Duration(cell.limit.Back(prev, cur, c.elapsed)-c.elapsed) * time.Microsecond
			lasts, _ := async.Lasts(&g.rule, 0, back)
			c.newState(w, i, r.number).until = r.now + lasts.Microseconds()
			more = true
		}
		if !more {
			break // greater thresholds have no states and are not exceeded
		}
	}
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
		over.states = append(over.states, cellKey{Windows: w.Windows})
	}
	return &over.states[i]
}

// name returns the name of a key in the report: the values of its characteristics, separated by spaces. They
// are read from the bytes of the key.
func (g *grid) name(key []byte, e *accesslog.Entry, req *rule.Request) string {
	rest := key[1+4+len(g.rule.ID):] // without version and rule ID
	var names []string
	for _, c := range g.rule.Characteristics {
		rest = rest[1+4+len(c.Name):] // without kind and name
		n, name := binary.BigEndian.Uint32(rest), ""
		rest = rest[4:]
		if n == 1 {
			end := 4 + binary.BigEndian.Uint32(rest)
			name, rest = string(rest[4:end]), rest[end:]
		}
		switch {
		case n == 0:
			name = "(no " + c.String() + ")"
		case n > 1:
			name = "(several " + c.String() + ")"
		case c.Kind == rule.IP:
			name = g.o.Name(nameOf(e, req.Client(), g.o.Client))
		case c.Kind == rule.Network:
			addr, _ := netip.AddrFromSlice([]byte(name))
			bits, ipv6 := c.Bits()
			if addr.Is6() {
				bits = ipv6
			}
			name = g.o.Name(netip.PrefixFrom(addr, bits).String())
		case c.Kind == rule.Host || c.Kind == rule.Path || c.Kind == rule.Method:
		default:
			name = g.o.Name(name)
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// join formats characteristics for ParseCharacteristics.
func join(list []rule.Characteristic) string {
	return strings.Join(prose.Texts(list, rule.Characteristic.String), "+")
}
