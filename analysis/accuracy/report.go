package accuracy

import (
	"cmp"
	"slices"
	"time"

	"github.com/edgelimit/edge/analysis/figure"
)

// A Report has the results of an Accuracy. Shares named pct are in percent; relative errors,
// overshoots and peaks are fractions.
type Report struct {
	Events           uint64    `json:"events"`
	Clients          int       `json:"clients"`
	From             time.Time `json:"from"`
	To               time.Time `json:"to"`
	NormalizedSHA256 string    `json:"normalized_sha256"`
	Results          []Result  `json:"results"`
}

// A Result has the results of an estimator for one limit.
type Result struct {
	Limit     uint64 `json:"limit"`
	PeriodS   int64  `json:"period_s"`
	Counters  int    `json:"counters"` // of a client in a store; 0 if not fixed
	Estimator string `json:"estimator"`

	// BytesPerClient is the memory of a limiter per client, at 8 bytes per number, without
	// keys. For the exact log it is the mean over sources of what each needs at its peak.
	BytesPerClient float64 `json:"bytes_per_client"`

	Requests       uint64  `json:"requests"`
	ExactOver      uint64  `json:"exact_over"`  // requests that are over in the exact log
	ApproxOver     uint64  `json:"approx_over"` // requests that are over by the estimate
	WronglyAllowed uint64  `json:"wrongly_allowed"`
	WronglyLimited uint64  `json:"wrongly_limited"`
	WrongPct       float64 `json:"wrong_pct"` // of all requests

	// NearPct is the share of requests whose exact count is between half the threshold and
	// twice the threshold. Few decisions about other requests are wrong, whatever the estimator.
	NearPct float64 `json:"near_pct"`

	MeanAbsRelErr          float64 `json:"mean_abs_rel_err"`            // |estimate − exact|/exact, over requests
	MeanAbsRelErrPerSource float64 `json:"mean_abs_rel_err_per_source"` // mean over sources of their own means
	MeanSignedRelErr       float64 `json:"mean_signed_rel_err"`
	MeanAbsRelErrWeighted  float64 `json:"mean_abs_rel_err_weighted"` // over requests whose estimate has a weighted part

	Sources                    int     `json:"sources"`
	SourcesExactOver           int     `json:"sources_exact_over"`
	SourcesDecisionEverDiffers int     `json:"sources_decision_ever_differs"`
	SourcesOverButNeverLimited int     `json:"sources_over_but_never_limited"`
	MaxOvershootOfThose        float64 `json:"max_overshoot_of_those"` // greatest exact count over the threshold, less 1
	SourcesLimitedButNeverOver int     `json:"sources_limited_but_never_over"`
	MinPeakOfThose             float64 `json:"min_peak_of_those"`     // smallest of their greatest exact counts, over the threshold
	WorstWronglyAllowed        float64 `json:"worst_wrongly_allowed"` // greatest overshoot of a wrongly allowed request

	FixedWindowWronglyAllowed uint64 `json:"fixed_window_wrongly_allowed"`

	// Peaks counts clients by their greatest exact count. It is set only in the first result of a limit.
	Peaks []figure.PeakBin `json:"peaks,omitempty"`

	// Phases has the ranges over window starts, if several were tried.
	Phases *PhaseRange `json:"phases,omitempty"`
}

// A PhaseRange has the ranges of results over window starts.
type PhaseRange struct {
	Tried                      int        `json:"tried"`
	WrongPct                   [2]float64 `json:"wrong_pct"`
	MeanAbsRelErr              [2]float64 `json:"mean_abs_rel_err"`
	SourcesOverButNeverLimited [2]int     `json:"sources_over_but_never_limited"`
	SourcesLimitedButNeverOver [2]int     `json:"sources_limited_but_never_over"`
}

// Report returns the results and stops a's goroutines. It must be called once, after all
// requests have been added.
func (a *Accuracy) Report() *Report {
	a.start()
	a.spread()
	for _, w := range a.workers {
		w.finish()
	}
	report := &Report{Events: a.events, Clients: int(a.clients.Len()), NormalizedSHA256: a.normal.finish()}
	report.From, report.To = figure.TimeOf(a.first), figure.TimeOf(a.last)
	results := make([][]Result, len(a.o.Limits))
	for g := range a.groups {
		for i, place := range a.groups[g].places {
			results[place] = a.results(g, i)
		}
	}
	report.Results = slices.Concat(results...)
	return report
}

// results returns the results of the ith limit of a group, one for each method.
func (a *Accuracy) results(g, i int) (results []Result) {
	group := &a.groups[g]
	limit := group.limits[i]
	base := Result{Limit: limit.Threshold, PeriodS: limit.Period / 1e6, Sources: int(a.clients.Len()), Requests: a.events}
	var near uint64
	bins := figure.NewPeaks(limit.Threshold)
	var logged float64 // bytes of all exact logs at their peaks
	for _, w := range a.workers {
		tally := &w.groups[g].limits[i]
		base.ExactOver += tally.over
		base.SourcesExactOver += tally.sources
		near += tally.near
		logged += w.groups[g].logged
		for b := range bins {
			bins[b].Clients += tally.peaks[b].Clients
		}
	}
	base.NearPct = figure.Percent(near, a.events)
	for m := range a.methods {
		method := &a.methods[m]
		r := base
		r.Estimator, r.Counters, r.BytesPerClient = method.name, method.counters, float64(method.bytes)
		var phases []Result
		for c := range group.evaluations {
			if e := &group.evaluations[c]; e.method == m && e.limits&(1<<i) != 0 {
				phases = append(phases, a.result(r, g, i, c))
			}
		}
		switch {
		case len(phases) > 0:
			r = phases[0]
			r.Phases = rangeOf(phases)
		default: // the exact log itself
			r.ApproxOver = r.ExactOver
			r.BytesPerClient = logged / float64(max(1, a.clients.Len()))
		}
		results = append(results, r)
	}
	fixed := slices.IndexFunc(results, func(r Result) bool { return r.Estimator == fixedName })
	for m := range results {
		results[m].FixedWindowWronglyAllowed = results[fixed].WronglyAllowed
	}
	results = slices.DeleteFunc(results, func(r Result) bool { return a.implicitFixed && r.Estimator == fixedName })
	results[0].Peaks = bins.Bins(limit.Threshold)
	return results
}

// result completes r with the results of the cth evaluation of a group for its ith limit.
func (a *Accuracy) result(r Result, g, i, c int) Result {
	threshold := float64(r.Limit)
	var signed int64
	var errors, ofSources, partly, partlyErrors, worst uint64
	var missed, peakLimited uint64
	for _, w := range a.workers {
		t := &w.groups[g].tallies[c]
		signed += t.signed
		errors, ofSources = errors+t.errors, ofSources+t.ofSources
		partly, partlyErrors = partly+t.partly, partlyErrors+t.partlyErrors
		d := &t.limits[i]
		r.ApproxOver += d.over
		r.WronglyAllowed += d.wronglyAllowed
		r.WronglyLimited += d.wronglyLimited
		worst = max(worst, d.worst)
		r.SourcesDecisionEverDiffers += d.differ
		r.SourcesOverButNeverLimited += d.missed
		missed = max(missed, d.missedPeak)
		if d.limited > 0 && (r.SourcesLimitedButNeverOver == 0 || d.peakOfLimited < peakLimited) {
			peakLimited = d.peakOfLimited
		}
		r.SourcesLimitedButNeverOver += d.limited
	}
	r.WrongPct = figure.Percent(r.WronglyAllowed+r.WronglyLimited, r.Requests)
	r.MeanAbsRelErr = unit * float64(errors) / float64(max(1, r.Requests))
	r.MeanSignedRelErr = unit * float64(signed) / float64(max(1, r.Requests))
	r.MeanAbsRelErrPerSource = unit * float64(ofSources) / float64(max(1, r.Sources))
	r.MeanAbsRelErrWeighted = unit * float64(partlyErrors) / float64(max(1, partly))
	r.MinPeakOfThose = float64(peakLimited) / threshold
	if missed > 0 {
		r.MaxOvershootOfThose = float64(missed-r.Limit) / threshold
	}
	if worst > 0 {
		r.WorstWronglyAllowed = float64(worst-r.Limit) / threshold
	}
	return r
}

const unit = 1.0 / (1 << 32) // of sums of relative errors

// rangeOf returns the ranges over phases, or nil if there is only one.
func rangeOf(phases []Result) *PhaseRange {
	if len(phases) < 2 {
		return nil
	}
	return &PhaseRange{
		Tried:                      len(phases),
		WrongPct:                   spanOf(phases, func(r Result) float64 { return r.WrongPct }),
		MeanAbsRelErr:              spanOf(phases, func(r Result) float64 { return r.MeanAbsRelErr }),
		SourcesOverButNeverLimited: spanOf(phases, func(r Result) int { return r.SourcesOverButNeverLimited }),
		SourcesLimitedButNeverOver: spanOf(phases, func(r Result) int { return r.SourcesLimitedButNeverOver }),
	}
}

func spanOf[T cmp.Ordered](phases []Result, figure func(Result) T) (span [2]T) {
	span = [2]T{figure(phases[0]), figure(phases[0])}
	for _, p := range phases[1:] {
		span = [2]T{min(span[0], figure(p)), max(span[1], figure(p))}
	}
	return span
}
