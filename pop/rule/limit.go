package rule

import (
	"fmt"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/strictyaml"
)

// A Limit is exceeded when the estimated number of requests in any Period is
// greater than Threshold.
type Limit struct {
	Threshold uint64
	Period    time.Duration // whole seconds

	// SubWindows is into how many parts a window is divided, which are counted apart: the
	// more, the less the estimate errs. 0 is the same as 1. It is never more than
	// Threshold and Period allow. For how many nodes it is, counter.Layout.MostNodes says: a PoP of
	// more refuses the rule.
	SubWindows int

	// Estimate says what counts of the window before.
	Estimate counter.Kind
}

// Counted returns how l is counted.
func (l Limit) Counted() counter.Limit {
	layout, ok := counter.LayoutOf(max(1, l.SubWindows))
	if !ok {
		panic("rule: a limit has a number of sub-windows that no layout has")
	}
	return counter.Limit{Threshold: l.Threshold, Period: l.Period.Microseconds(), Layout: layout, Kind: l.Estimate}
}

// String returns the limit as people say it: 50 in 1m.
func (l Limit) String() string {
	return fmt.Sprintf("%d in %s", l.Threshold, FormatDuration(l.Period))
}

// plain reports whether l is counted in whole windows, the one before by its weight.
func (l Limit) plain() bool { return l.SubWindows <= 1 && l.Estimate == counter.Weighted }

// Resolution returns how long the stretch of time is that l takes as evenly filled: a
// window, or a sub-window, to the millisecond.
func (l Limit) Resolution() time.Duration {
	return (l.Period / time.Duration(max(1, l.SubWindows))).Round(time.Millisecond)
}

// Counting says how l is counted. It is empty where that is as always: in whole windows,
// the one before by its weight.
func (l Limit) Counting() string {
	if l.plain() {
		return ""
	}
	if l.Estimate == counter.Fixed {
		return fmt.Sprintf("counted in fixed windows of %s", FormatDuration(l.Period))
	}
	how := "counted in whole windows"
	if layout := l.Counted().Layout; l.SubWindows > 1 {
		how = fmt.Sprintf("counted in %d sub-windows of %v (%v bits, for thresholds up to %d)",
			l.SubWindows, l.Resolution(), layout, layout.MaxThreshold())
	}
	if l.Estimate == counter.WholeOldest {
		how += ", the oldest one whole"
	}
	return how
}

// Bound returns what the requests of one key that pass in any trailing period count at most,
// where each counts cost, and those that pass between the one that crosses the threshold and the
// moment when every node of the PoP acts on it count late, and the arithmetic of it:
//
//	2·(threshold + late) + cost    weighted
//	2·(threshold + late + cost)    fixed
//	threshold + late + cost        whole_oldest
//
// The weighted estimate alone lets through at most twice the threshold, whatever the
// sub-windows: all of it at the end of one, and all of it again while the weight of that one
// falls. A fixed window lets one more through, which crosses the threshold in the first of
// two windows. Where the oldest sub-window counts whole, the estimate is never less than
// what came.
func (l Limit) Bound(late, cost uint64) (most uint64, arithmetic string) {
	switch l.Estimate {
	case counter.Fixed:
		return 2 * (l.Threshold + late + cost), fmt.Sprintf("2·(%d + %d + %d)", l.Threshold, late, cost)
	case counter.WholeOldest:
		return l.Threshold + late + cost, fmt.Sprintf("%d + %d + %d", l.Threshold, late, cost)
	}
	return 2*(l.Threshold+late) + cost, fmt.Sprintf("2·(%d + %d) + %d", l.Threshold, late, cost)
}

// A limitDraft is a limit as a rules file writes it.
type limitDraft struct {
	Limit
	subWindows *yaml.Node // nil if it is left out
}

// autoSubWindows is how a rules file asks for as many sub-windows as there may be.
const autoSubWindows = "auto"

// limitFields are the keys of a limit; they read into l, which comes after before.
func (r *reader) limitFields(l *limitDraft, before []Limit) []strictyaml.Field {
	return []strictyaml.Field{
		{Name: "threshold", Need: "threshold: 50, or how many requests are allowed", Read: func(n *yaml.Node) {
			l.Threshold, _ = r.Integer(n, "threshold", 1, MaxThreshold)
		}},
		{Name: "period", Need: "period: 1m, or how long the threshold is for", Read: func(n *yaml.Node) {
			var ok bool
			l.Period, ok = r.duration(n, "period", MinPeriod)
			if ok && slices.ContainsFunc(before, func(o Limit) bool { return o.Period == l.Period }) {
				r.Fail(n, "a rule has one threshold for each period", "another limit of this rule has the period %s", FormatDuration(l.Period))
			}
		}},
		{Name: "sub_windows", Read: func(n *yaml.Node) { l.subWindows = n }},
		{Name: "estimate", Read: func(n *yaml.Node) {
			l.Estimate = counter.Kind(max(r.Choice(n, "estimate", counter.KindNames()), 0))
		}},
	}
}

func (r *reader) limitList(n *yaml.Node) []Limit {
	nodes := r.Sequence(n, "limits", "write a list: [{threshold: 50, period: 1m}]", "write [{threshold: 50, period: 1m}]")
	list := make([]Limit, 0, len(nodes))
	var key []byte
	for _, each := range nodes {
		var l limitDraft
		if r.Mapping(each, "this limit", "write {threshold: 50, period: 1m}", r.limitFields(&l, list)) {
			r.subWindows(&l)
			list = append(list, l.Limit)
			key = fmt.Appendf(key, "%d %d %d %d,", l.Threshold, l.Period, l.SubWindows, l.Estimate)
		}
	}
	return intern(r.limits, string(key), list)
}

// subWindows reads how many sub-windows l has, when all else of it is known.
func (r *reader) subWindows(l *limitDraft) {
	if l.subWindows == nil {
		return
	}
	n, auto := 0, false
	if value := strictyaml.Resolve(l.subWindows); !strictyaml.IsString(value) {
		v, _ := r.Integer(l.subWindows, "sub_windows", 1, uint64(counter.MaxFields))
		n = int(v)
	} else if auto = value.Value == autoSubWindows; !auto {
		r.Fail(l.subWindows, fmt.Sprintf("write auto, or a number from 1 to %d", counter.MaxFields), "sub_windows cannot be %s", strictyaml.Quote(value.Value))
	}
	if l.Estimate == counter.Fixed && (auto || n > 1) {
		r.Fail(l.subWindows, "leave sub_windows out, or take another estimate", "a fixed window has no sub-windows")
		return
	}
	room := counter.FieldsIn(l.Period.Microseconds())
	most := counter.AutoLayout(l.Threshold, room)
	if auto {
		n = int(most.Fields)
	}
	layout, ok := counter.LayoutOf(n)
	switch {
	case !ok || n == 1 || l.Threshold == 0 || l.Period == 0:
		return // there are none, or there is an error already
	case n > room:
		r.Fail(l.subWindows, fmt.Sprintf("a sub-window lasts %v at least, since clocks differ and counts are late: %s", counter.MinSubWindow, fewer(most)),
			"sub_windows cannot be %d with a period of %s", n, FormatDuration(l.Period))
	case l.Threshold > layout.MaxThreshold():
		r.Fail(l.subWindows, fmt.Sprintf("%d sub-windows have %d bits each, for thresholds up to %d: %s", n, layout.Bits, layout.MaxThreshold(), fewer(most)),
			"sub_windows cannot be %d with a threshold of %d", n, l.Threshold)
	default:
		l.SubWindows = n
	}
}

// fewer says what else to write where a limit may have at most as many sub-windows as l.
func fewer(l counter.Layout) string {
	if l.Fields == 1 {
		return "leave sub_windows out"
	}
	return fmt.Sprintf("write auto, or %d at most", l.Fields)
}
