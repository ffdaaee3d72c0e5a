package analysis

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/edgelimit/edge/analysis/figure"
)

// A SweepReport has the results of a Sweep. Fields named pct are in percent.
type SweepReport struct {
	Requests           uint64          `json:"requests"`
	From               time.Time       `json:"from"` // time of the first request
	To                 time.Time       `json:"to"`   // time of the last request
	MaxClientsPct      float64         `json:"max_clients_pct"`
	MitigationTimeoutS int64           `json:"mitigation_timeout_s"`
	Curves             []Curve         `json:"curves"` // in the given order of characteristics, then by period
	Timeline           figure.Timeline `json:"timeline"`
}

// A Curve shows the effect of thresholds for a period and characteristics. Its clients are the keys of these
// characteristics, whatever they identify.
type Curve struct {
	Characteristics []string `json:"characteristics"`
	PeriodS         int64    `json:"period_s"`
	Clients         int      `json:"clients"`

	// Recommended is the smallest tried threshold that affects at most MaxClientsPct of the clients, or 0 if
	// there is none or there are no clients.
	Recommended uint64 `json:"recommended"`

	// Knee is the threshold at which the curve of affected clients bends most: a greater threshold spares few
	// more clients, a smaller one affects many more. It is 0 if the curve has no knee. See Sweep.Report.
	Knee uint64 `json:"knee"`

	// Best marks, among the curves with the same characteristics, the one whose recommended threshold refuses
	// the most requests, and among equals the one with the shortest period.
	Best bool `json:"best"`

	Cells []Cell `json:"cells"` // in the order of thresholds

	// Timeline shows the effect of the recommended threshold over time.
	Timeline *figure.Timeline `json:"timeline,omitempty"`
}

// A Cell describes the effect of one threshold.
type Cell struct {
	Threshold  uint64   `json:"threshold"`
	Clients    int      `json:"clients"` // clients with at least one refused request
	ClientsPct float64  `json:"clients_pct"`
	Refused    uint64   `json:"refused"` // requests
	RefusedPct float64  `json:"refused_pct"`
	Top1Pct    float64  `json:"top_1_pct"`  // share of the refused requests from the client with the most of them
	Top10Pct   float64  `json:"top_10_pct"` // share of the ten clients with the most
	Top        []Source `json:"top,omitempty"`
}

// A Source is a client with refused requests. Its name consists of the values of the characteristics.
type Source struct {
	Name    string `json:"name"`
	Refused uint64 `json:"refused"`
}

// Report returns the results. It must be called once, after all requests have been added.
//
// The knee is found in the manner of Kneedle (Satopää et al., Finding a "Kneedle" in a Haystack, 2011): with
// the threshold x and the number of affected clients y on logarithmic scales, log x and log(1+y), both scaled
// to 0…1 between the first threshold and the first that affects no client, or the last, it is the point
// furthest below the line from the first point to the last.
func (s *Sweep) Report() *SweepReport {
	all := s.whole()
	r := &SweepReport{
		Requests: s.player.n, MaxClientsPct: s.o.MaxClientsPct,
		MitigationTimeoutS: int64(s.o.MitigationTimeout / time.Second),
		Timeline:           s.timeline.Timeline(),
	}
	if s.player.n > 0 {
		r.From, r.To = figure.TimeOf(s.player.first), figure.TimeOf(s.player.last)
	}
	for _, g := range all {
		for i := range g.columns {
			r.Curves = append(r.Curves, s.curve(g, i))
		}
		best := -1
		for i := range r.Curves[len(r.Curves)-len(g.columns):] {
			i += len(r.Curves) - len(g.columns)
			if cell := r.Curves[i].recommended(); cell != nil &&
				(best < 0 || cell.Refused > r.Curves[best].recommended().Refused) {
				best = i
			}
		}
		if best >= 0 {
			r.Curves[best].Best = true
		}
	}
	return r
}

// curve returns the effect of thresholds for the ith period of g.
func (s *Sweep) curve(g *grid, i int) Curve {
	c := Curve{PeriodS: int64(s.o.Periods[i] / time.Second), Clients: g.seen()}
	for _, characteristic := range g.rule.Characteristics {
		c.Characteristics = append(c.Characteristics, characteristic.String())
	}
	column := &g.columns[i]
	for j, threshold := range s.o.Thresholds {
		cell := Cell{Threshold: threshold, Refused: column.cells[j].refused}
		var top top
		for k := range column.over {
			if over := column.over[k]; j < len(over.states) && over.states[j].refused > 0 {
				cell.Clients++
				top.add(Source{over.name, over.states[j].refused}, max(10, s.o.Top))
			}
		}
		cell.ClientsPct = figure.Percent(uint64(cell.Clients), uint64(c.Clients))
		cell.RefusedPct = figure.Percent(cell.Refused, s.player.n)
		cell.Top1Pct = figure.Percent(top.sum(1), cell.Refused)
		cell.Top10Pct = figure.Percent(top.sum(10), cell.Refused)
		cell.Top = top[:min(len(top), s.o.Top)]
		c.Cells = append(c.Cells, cell)
		if c.Recommended == 0 && c.Clients > 0 && cell.ClientsPct <= s.o.MaxClientsPct {
			c.Recommended = threshold
			all := s.timeline
			all.ticks = slices.Clone(all.ticks)
			for _, refusals := range column.cells[j].refusals {
				for k, tick := range refusals.in(&all) {
					all.ticks[k].Refused += tick.Refused
				}
			}
			l := all.Timeline()
			c.Timeline = &l
		}
	}
	c.Knee = knee(c.Cells)
	return c
}

// top has the sources with the most refusals. Among equals, those that exceeded the smallest threshold first
// come first.
type top []Source

// add adds a source, and keeps the top n.
func (t *top) add(s Source, n int) {
	at, _ := slices.BinarySearchFunc(*t, s, func(a, b Source) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), -1)
	})
	if at < n {
		*t = slices.Insert(*t, at, s)
		*t = (*t)[:min(n, len(*t))]
	}
}

// sum returns the number of refused requests of the first n.
func (t top) sum(n int) (refused uint64) {
	for _, s := range t[:min(n, len(t))] {
		refused += s.Refused
	}
	return refused
}

// knee returns the threshold at the knee of cells, as documented for Report.
func knee(cells []Cell) uint64 {
	end := slices.IndexFunc(cells, func(c Cell) bool { return c.Clients == 0 })
	if end < 0 {
		end = len(cells) - 1
	}
	if end < 2 {
		return 0
	}
	x := func(i int) float64 { return math.Log(float64(cells[i].Threshold)) }
	y := func(i int) float64 { return math.Log1p(float64(cells[i].Clients)) }
	var at uint64
	deepest := 0.0
	for i := 1; i < end; i++ {
		// With both scaled to 0…1, the line from (0,1) to (1,0) is y = 1−x.
		depth := 1 - (x(i)-x(0))/(x(end)-x(0)) - (y(i)-y(end))/(y(0)-y(end))
		if depth > deepest+1e-9 { // more than rounding errors of points on the line
			at, deepest = cells[i].Threshold, depth
		}
	}
	return at
}
