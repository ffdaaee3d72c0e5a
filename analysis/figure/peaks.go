package figure

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/edgelimit/edge/internal/chart"
)

// A PeakBin counts the clients whose peak is at most UpTo, and greater than UpTo of the previous
// bin.
type PeakBin struct {
	UpTo    uint64 `json:"up_to"`
	Clients uint64 `json:"clients"`
}

// Peaks counts clients by the greatest number of requests that they sent in a period.
type Peaks []PeakBin

// NewPeaks returns empty Peaks. One bin ends at the threshold.
func NewPeaks(threshold uint64) (p Peaks) {
	for power := uint64(1); power < 1<<50; power *= 10 {
		for _, tenths := range []uint64{10, 15, 20, 30, 50, 70} {
			if end := power * tenths / 10; len(p) == 0 || end > p[len(p)-1].UpTo {
				p = append(p, PeakBin{UpTo: end})
			}
		}
	}
	if at, found := p.find(threshold); !found {
		p = slices.Insert(p, at, PeakBin{UpTo: threshold})
	}
	return p
}

func (p Peaks) find(n uint64) (int, bool) {
	return slices.BinarySearchFunc(p, n, func(b PeakBin, n uint64) int { return cmp.Compare(b.UpTo, n) })
}

// Add adds a client whose peak is n.
func (p Peaks) Add(n uint64) {
	at, _ := p.find(n)
	p[min(at, len(p)-1)].Clients++
}

// Bins returns p up to the last bin that has clients or ends at the threshold.
func (p Peaks) Bins(threshold uint64) []PeakBin {
	end := len(p)
	for end > 0 && p[end-1].Clients == 0 && p[end-1].UpTo > threshold {
		end--
	}
	return p[:end]
}

// PlotPeaks returns a plot of bins with the threshold.
func PlotPeaks(bins []PeakBin, counted string, threshold uint64, seconds int64) chart.Block {
	over := uint64(0)
	h := chart.Histogram{
		Title: "Peak rates, and the threshold of " + chart.Grouped(threshold) + " in " + Period(seconds),
		XName: "most requests in " + Period(seconds), YName: counted,
		Threshold: float64(threshold),
	}
	for _, b := range bins {
		h.Bins = append(h.Bins, chart.Bin{UpTo: float64(b.UpTo), N: b.Clients})
		if b.UpTo > threshold {
			over += b.Clients
		}
	}
	h.Name = fmt.Sprintf("the threshold: %s over", chart.Grouped(over))
	return h
}
