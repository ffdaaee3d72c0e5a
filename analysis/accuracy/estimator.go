package accuracy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/edgelimit/edge/counter"
)

// An estimator estimates, from a few numbers for each client, how many requests that
// client has made in the period that ends now. It is immutable and keeps its clients'
// numbers in words that its caller holds, at first all 0.
type estimator interface {
	// words is how many numbers a client needs.
	words() int

	// arrive counts requests of a client, whose times do not fall, and sets the estimate at
	// each of them.
	arrive(state []uint64, at []moment, estimates []counter.Estimate)
}

// A Limit is a threshold of requests in a period.
type Limit struct {
	Threshold uint64
	Period    int64 // microseconds, whole seconds
}

// A method is a way to estimate. Each limit, or each period, has its own estimator.
type method struct {
	name string

	// counters is how many counters of a store a client has, 0 where it is not a number.
	counters int

	// bytes is what a client takes at least, without keys; 0 if it depends on the log.
	bytes int

	// own says that the threshold is part of the arithmetic: limits cannot share it.
	own bool

	// aligned says that windows begin at fixed times, so that other ones may give
	// other results.
	aligned bool

	// whole says that what the estimator weighs counts whole.
	whole bool

	// make returns the estimator for a limit. resolution is that of the log's times, in
	// microseconds.
	make func(l Limit, resolution int64) estimator
}

// methods returns all methods that make sense for limits, in the order in which they are
// shown.
func methods(limits []Limit) []method {
	all := []method{methodFixed, methodWeighted}
	for _, n := range []int{3, 6, 10, 60} {
		all = append(all, methodSubWindows(n, false))
	}
	for _, n := range []int{1, 3, 6, 10, 60} {
		all = append(all, methodSubWindows(n, true))
	}
	all = append(all, methodFirstLast, methodTokenBucket, methodGCRA)
	for _, layout := range layouts {
		if slices.ContainsFunc(limits, func(l Limit) bool { return l.Threshold <= layout.MaxThreshold() }) {
			all = append(all, methodPacked(layout))
		}
	}
	return append(all, methodPackedAuto, methodExact)
}

// methodNamed returns the method that a name of the documentation stands for.
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
		return method{}, fmt.Errorf("estimator %q: there are sub_windows_1 to sub_windows_%d, each also with _whole", name, maxSubWindows)
	}
	return method{}, fmt.Errorf("there is no estimator %q: they are %s", name, strings.Join(EstimatorNames(), ", "))
}

// EstimatorNames returns the names of all estimators. Instead of the sub-windows that are
// named there may be others.
func EstimatorNames() (names []string) {
	for _, m := range methods([]Limit{{Threshold: 1}}) {
		names = append(names, m.name)
	}
	return names
}

var methodExact = method{name: "exact", make: func(Limit, int64) estimator { return nil }}
