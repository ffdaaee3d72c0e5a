package accuracy

import (
	"cmp"
	"slices"
	"time"

	"github.com/edgelimit/edge/analysis/figure"
)

// A Report has the results of an Accuracy. Fields whose JSON names contain pct are percentages; relative errors,
// overshoots and peaks are fractions.
type Report struct {
	Input
	Results []Result `json:"results"`
}

// An Input describes the requests of a log.
type Input struct {
	Events           uint64    `json:"events"`
	Clients          int       `json:"clients"`
	From             time.Time `json:"from"`
	To               time.Time `json:"to"`
	NormalizedSHA256 string    `json:"normalized_sha256"`
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
	MaxOvershootOfThose        float64 `json:"max_overshoot_of_those"` // greatest exact count ÷ threshold, minus 1
	SourcesLimitedButNeverOver int     `json:"sources_limited_but_never_over"`
	MinPeakOfThose             float64 `json:"min_peak_of_those"`     // smallest of their peaks ÷ threshold
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

func (a *Accuracy) report(in Input, sums []groupSums) *Report {
	r := &Report{Input: in}
	for _, l := range a.o.Limits {
		g := slices.IndexFunc(a.groups, func(g group) bool { return g.period == l.Period })
		r.Results = append(r.Results, a.results(in, &sums[g], g, slices.Index(a.groups[g].limits, l))...)
	}
	return r
}

// results returns the results of the ith limit of a group, one for each method.
func (a *Accuracy) results(in Input, sums *groupSums, g, i int) (results []Result) {
	group := &a.groups[g]
	limit, counted := group.limits[i], &sums.Limits[i]
	base := Result{Limit: limit.Threshold, PeriodS: limit.Period / 1e6, Sources: in.Clients, Requests: in.Events,
		ExactOver: counted.Over, SourcesExactOver: counted.Clients}
	base.NearPct = figure.Percent(counted.Near, in.Events)
	for m := range a.methods {
		method := &a.methods[m]
		r := base
		r.Estimator, r.Counters, r.BytesPerClient = method.name, method.counters, float64(method.bytes)
		var phases []Result
		for c := range group.evaluations {
			if e := &group.evaluations[c]; e.method == m && e.limits&(1<<i) != 0 {
				phases = append(phases, sums.Evaluations[c].result(r, i))
			}
		}
		switch {
		case len(phases) > 0:
			r = phases[0]
			r.Phases = rangeOf(phases)
		default: // the exact log itself
			r.ApproxOver = r.ExactOver
			r.BytesPerClient = float64(sums.Logged) / float64(max(1, in.Clients))
		}
		results = append(results, r)
	}
	fixed := slices.IndexFunc(results, func(r Result) bool { return r.Estimator == fixedName })
	for m := range results {
		results[m].FixedWindowWronglyAllowed = results[fixed].WronglyAllowed
	}
	results = slices.DeleteFunc(results, func(r Result) bool { return a.implicitFixed && r.Estimator == fixedName })
	results[0].Peaks = counted.Peaks.Bins(limit.Threshold)
	return results
}

// result completes r with the results of an evaluation for the ith limit of its group.
func (t *errorSums) result(r Result, i int) Result {
	threshold, d := float64(r.Limit), &t.Limits[i]
	r.ApproxOver, r.WronglyAllowed, r.WronglyLimited = d.Over, d.WronglyAllowed, d.WronglyLimited
	r.WrongPct = figure.Percent(r.WronglyAllowed+r.WronglyLimited, r.Requests)
	r.MeanAbsRelErr = unit * float64(t.Errors) / float64(max(1, r.Requests))
	r.MeanSignedRelErr = unit * float64(t.Signed) / float64(max(1, r.Requests))
	r.MeanAbsRelErrPerSource = unit * float64(t.OfClients) / float64(max(1, r.Sources))
	r.MeanAbsRelErrWeighted = unit * float64(t.PartlyErrors) / float64(max(1, t.Partly))
	r.SourcesDecisionEverDiffers = d.Differ
	r.SourcesOverButNeverLimited, r.SourcesLimitedButNeverOver = d.Missed, d.Limited
	if d.Limited > 0 {
		r.MinPeakOfThose = float64(d.Lowest) / threshold
	}
	if d.MissedPeak > 0 {
		r.MaxOvershootOfThose = float64(d.MissedPeak-r.Limit) / threshold
	}
	if d.Worst > 0 {
		r.WorstWronglyAllowed = float64(d.Worst-r.Limit) / threshold
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
