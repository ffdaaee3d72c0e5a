package analysis

import (
	"github.com/edgelimit/edge/analysis/client"
	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/rule"
)

// A LimitPeaks is the distribution of the peaks of a rule's keys, for one of its limits.
type LimitPeaks struct {
	Limit   uint64           `json:"limit"`
	PeriodS int64            `json:"period_s"`
	Bins    []figure.PeakBin `json:"bins"`
}

// A demand is the greatest estimate of each key of a rule, for each of its limits, with every request counted.
// It needs 32 bytes for each limit, and 27 to 53 for the key. It contains no pointers, so the garbage collector
// does not scan it.
type demand = client.Values[demandWindow]

type demandWindow struct {
	counter.Windows[int64, uint64]
	peak uint64 // rounded up
}

// addDemand adds a request to the windows of a key, one for each limit of r.
func addDemand(windows []demandWindow, r *rule.Rule, now int64) {
	for i, l := range r.Limits {
		w := &windows[i]
		length := l.Period.Microseconds()
		index, elapsed := counter.WindowAt(now, length)
		w.Roll(index)
		w.Cur += r.CostOf(1)
		e := counter.Estimate{Whole: w.Cur, Part: w.Prev, Left: length - elapsed, Of: length}
		w.peak = max(w.peak, e.Ceil())
	}
}

// peaksOf returns the peaks of keys. No two demands share a key.
func peaksOf(demands []*demand, limits []rule.Limit) (all []LimitPeaks) {
	for i, l := range limits {
		p := figure.NewPeaks(l.Threshold)
		for _, d := range demands {
			for number := range d.Len() {
				p.Add(d.Numbered(number)[i].peak)
			}
		}
		all = append(all, LimitPeaks{l.Threshold, int64(l.Period.Seconds()), p.Bins(l.Threshold)})
	}
	return all
}
