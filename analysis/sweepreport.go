package analysis

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/rule"
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

// Report returns the results, or the error of a request that Add has not returned yet. It must be called once,
// after all requests have been added.
//
// The knee is found in the manner of Kneedle (Satopää et al., Finding a "Kneedle" in a Haystack, 2011): with
// the threshold x and the number of affected clients y on logarithmic scales, log x and log(1+y), both scaled
// to 0…1 between the first threshold and the first that affects no client, or the last, it is the point
// furthest below the line from the first point to the last.
func (s *Sweep) Report() (*SweepReport, error) {
	s.player.finish()
	if err := s.failed.Load(); err != nil {
		return nil, *err
	}
	r := &SweepReport{
		Requests: s.player.n, MaxClientsPct: s.o.MaxClientsPct,
		MitigationTimeoutS: int64(s.o.MitigationTimeout / time.Second),
		Timeline:           s.timeline.Timeline(),
	}
	if s.player.n > 0 {
		r.From, r.To = figure.TimeOf(s.player.first), figure.TimeOf(s.player.last)
	}
	for list := range s.o.Characteristics {
		first := len(r.Curves)
		for period := range s.o.Periods {
			r.Curves = append(r.Curves, s.curve(list, period))
		}
		var best *Curve
		for i := range r.Curves[first:] {
			c := &r.Curves[first+i]
			if cell := c.recommended(); cell != nil && (best == nil || cell.Refused > best.recommended().Refused) {
				best = c
			}
		}
		if best != nil {
			best.Best = true
		}
	}
	return r, nil
}

// curve returns the effect of thresholds for a list of characteristics and a period, given by their indexes.
func (s *Sweep) curve(list, period int) Curve {
	c := Curve{PeriodS: int64(s.o.Periods[period] / time.Second),
		Characteristics: prose.Texts(s.o.Characteristics[list], rule.Characteristic.String)}
	for _, grids := range s.grids {
		c.Clients += int(grids[list].windows.Len())
	}
	for i, threshold := range s.o.Thresholds {
		cell := Cell{Threshold: threshold}
		timeline := s.timeline
		timeline.ticks = slices.Clone(timeline.ticks)
		var top []source
		for _, grids := range s.grids {
			column := &grids[list].columns[period]
			for at, tick := range column.cells[i].refusals.in(&timeline) {
				cell.Refused += tick.Refused
				timeline.ticks[at].Refused += tick.Refused
			}
			for _, over := range column.over {
				if i < len(over.states) && over.states[i].refused > 0 {
					cell.Clients++
					found := source{Source{over.name, over.states[i].refused}, over.since}
					// Among equals, the one that exceeded the smallest threshold first comes first.
					top = insertTop(top, max(10, s.o.Top), found, func(a, b source) int {
						return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.since, b.since), -1)
					})
				}
			}
		}
		cell.ClientsPct = figure.Percent(uint64(cell.Clients), uint64(c.Clients))
		cell.RefusedPct = figure.Percent(cell.Refused, s.player.n)
		sum := uint64(0)
		for place, source := range top {
			sum += source.Refused
			if place == 0 {
				cell.Top1Pct = figure.Percent(sum, cell.Refused)
			}
			if place < 10 {
				cell.Top10Pct = figure.Percent(sum, cell.Refused)
			}
			if place < s.o.Top {
				cell.Top = append(cell.Top, source.Source)
			}
		}
		c.Cells = append(c.Cells, cell)
		if c.Recommended == 0 && c.Clients > 0 && cell.ClientsPct <= s.o.MaxClientsPct {
			c.Recommended = threshold
			refusals := timeline.Timeline()
			c.Timeline = &refusals
		}
	}
	c.Knee = knee(c.Cells)
	return c
}

// A source is a Source with the number of requests in the log when it exceeded the smallest threshold.
type source struct {
	Source
	since uint64
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
