package accuracy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/edgelimit/edge/counter"
)

// An estimator estimates, from a few numbers per client, how many requests the client has
// sent in the period that ends now. It is immutable: the caller holds the clients' numbers, in
// words that are initially 0.
type estimator interface {
	// words returns the number of words per client.
	words() int

	// arrive counts requests of a client, whose times must not decrease, and sets the
	// estimate at each of them.
	arrive(state []uint64, at []moment, estimates []counter.Estimate)
}

// A Limit is a threshold of requests in a period.
type Limit struct {
	Threshold uint64 `json:"threshold"`
	Period    int64  `json:"period_us"` // in microseconds; whole seconds
}

// A method is a way to estimate. Each limit, or each period, has its own estimator.
type method struct {
	name     string
	counters int  // of a client in a store; 0 if not fixed
	bytes    int  // minimum memory per client, without keys; 0 if it depends on the log
	own      bool // the estimator depends on the threshold, so that limits cannot share it
	aligned  bool // windows begin at fixed times, so that results depend on these times

	// make returns the estimator for a limit. resolution is that of the log's times, in microseconds.
	make func(l Limit, resolution int64) estimator
}

// Names of methods that the report refers to.
const (
	fixedName    = "fixed"
	weightedName = "weighted"
	exactName    = "exact"
)

// methods returns all methods that suit limits, in display order.
func methods(limits []Limit) []method {
	all := []method{
		{name: fixedName, counters: 1, bytes: 8, aligned: true, make: makePacked(counter.Fixed, counter.Plain)},
		{name: weightedName, counters: 2, bytes: 16, aligned: true, make: makePacked(counter.Weighted, counter.Plain)},
		{name: "weighted_rounded", counters: 2, bytes: 16, aligned: true,
			make: makePacked(counter.WeightedRounded, counter.Plain)},
	}
	for _, n := range []int{3, 6, 10, 60} {
		all = append(all, methodSubWindows(n, false))
	}
	for _, n := range []int{1, 3, 6, 10, 60} {
		all = append(all, methodSubWindows(n, true))
	}
	all = append(all,
		method{name: "first_last", counters: 2, bytes: 48, aligned: true,
			make: func(l Limit, res int64) estimator { return firstLast{l.Period, res} }},
		method{name: "token_bucket", counters: 1, bytes: 16, own: true,
			make: func(l Limit, _ int64) estimator { return bucket{l, true} }},
		method{name: "gcra", counters: 1, bytes: 8, own: true,
			make: func(l Limit, _ int64) estimator { return bucket{l, false} }},
	)
	for fields := counter.MaxFields; fields > 1; fields-- {
		layout, ok := counter.LayoutOf(fields)
		if ok && slices.ContainsFunc(limits, func(l Limit) bool { return l.Threshold <= layout.MaxThreshold() }) {
			all = append(all, method{name: fmt.Sprintf("packed_%dx%d", layout.Fields, layout.Bits), counters: 2, bytes: 16,
				aligned: true, make: makePacked(counter.Weighted, layout)})
		}
	}
	return append(all,
		method{name: "packed_auto", counters: 2, bytes: 16, own: true, aligned: true,
			make: makePacked(counter.Weighted, counter.Layout{})},
		method{name: "packed_auto_rounded", counters: 2, bytes: 16, own: true, aligned: true,
			make: makePacked(counter.WeightedRounded, counter.Layout{})},
		method{name: exactName}, // the reference for all others
	)
}

// methodNamed returns the method with the given name.
func methodNamed(name string) (method, error) {
	for _, m := range methods([]Limit{{Threshold: 1}}) {
		if m.name == name {
			return m, nil
		}
	}
	if rest, ok := strings.CutPrefix(name, "sub_windows_"); ok {
		number, whole := strings.CutSuffix(rest, "_whole")
		if n, err := strconv.Atoi(number); err == nil && n >= 1 && n <= maxSubWindows && strconv.Itoa(n) == number {
			return methodSubWindows(n, whole), nil
		}
		return method{}, fmt.Errorf("unknown estimator %q: use sub_windows_1 to sub_windows_%d, optionally with _whole",
			name, maxSubWindows)
	}
	return method{}, fmt.Errorf("unknown estimator %q: use one of %s", name, strings.Join(EstimatorNames(), ", "))
}

// EstimatorNames returns the names of all estimators. Numbers of sub-windows other than those
// in the names are valid too.
func EstimatorNames() (names []string) {
	for _, m := range methods([]Limit{{Threshold: 1}}) {
		names = append(names, m.name)
	}
	return names
}
