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

	// SubWindows is the number of equal parts of a window that are counted separately. The more
	// there are, the smaller is the error of the estimate. 0 means 1. Threshold and Period limit it, and so
	// does the number of nodes: a PoP with more than counter.Layout.MostNodes refuses the rule.
	SubWindows int

	// Estimate says how the previous window counts.
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

// String returns the limit in the form 50 in 1m.
func (l Limit) String() string {
	return fmt.Sprintf("%d in %s", l.Threshold, FormatDuration(l.Period))
}

// plain reports whether l is counted in whole windows, with the previous one weighted.
func (l Limit) plain() bool { return l.SubWindows <= 1 && l.Estimate == counter.Weighted }

// Resolution returns the time over which l takes requests to be spread evenly: a window or a sub-window,
// rounded to the millisecond.
func (l Limit) Resolution() time.Duration {
	return (l.Period / time.Duration(max(1, l.SubWindows))).Round(time.Millisecond)
}

// Counting says how l is counted. It is empty for the default: whole windows, with the previous one
// weighted.
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

// Bound returns how much the requests of one key that pass in any trailing period can count, and the
// calculation. Each request counts cost. late is how much those count that pass between the one that
// crosses the threshold and the moment at which every node of the PoP acts on it:
//
//	2·(threshold + late) + cost    weighted
//	2·(threshold + late + cost)    fixed
//	threshold + late + cost        whole_oldest
//
// By itself, the weighted estimate lets through at most twice the threshold, with any number of
// sub-windows: all of it at the end of one, and all of it again as the weight of that one falls. A fixed
// window lets one more request through: the one that crosses the threshold in the first of two windows.
// If the oldest sub-window counts in full, the estimate is never less than the actual count.
func (l Limit) Bound(late, cost uint64) (most uint64, arithmetic string) {
	switch l.Estimate {
	case counter.Fixed:
		return 2 * (l.Threshold + late + cost), fmt.Sprintf("2·(%d + %d + %d)", l.Threshold, late, cost)
	case counter.WholeOldest:
		return l.Threshold + late + cost, fmt.Sprintf("%d + %d + %d", l.Threshold, late, cost)
	}
	return 2*(l.Threshold+late) + cost, fmt.Sprintf("2·(%d + %d) + %d", l.Threshold, late, cost)
}

func (r *reader) limitList(n *yaml.Node) []Limit {
	nodes := r.Sequence(n, "limits", "write a list: [{threshold: 50, period: 1m}]", "write [{threshold: 50, period: 1m}]")
	list := make([]Limit, 0, len(nodes))
	for _, each := range nodes {
		var l Limit
		var subWindows *yaml.Node
		if r.Mapping(each, "this limit", "write {threshold: 50, period: 1m}", []strictyaml.Field{
			strictyaml.Whole(&r.Document, "threshold", "threshold: 50, or how many requests are allowed", &l.Threshold, 1, MaxThreshold),
			{Name: "period", Need: "period: 1m, or how long the threshold is for", Read: func(n *yaml.Node) {
				var ok bool
				l.Period, ok = r.duration(n, "period", MinPeriod)
				if ok && slices.ContainsFunc(list, func(o Limit) bool { return o.Period == l.Period }) {
					r.Fail(n, "a rule has one threshold for each period", "another limit of this rule has the period %s", FormatDuration(l.Period))
				}
			}},
			{Name: "sub_windows", Read: func(n *yaml.Node) { subWindows = n }},
			strictyaml.Word(&r.Document, "estimate", &l.Estimate, counter.KindNames()),
		}) {
			if subWindows != nil {
				r.subWindows(subWindows, &l)
			}
			list = append(list, l)
		}
	}
	return intern(r, list)
}

// subWindows reads the number of sub-windows of l, whose other fields are set.
func (r *reader) subWindows(node *yaml.Node, l *Limit) {
	n, auto := 0, false
	if value := strictyaml.Resolve(node); !strictyaml.IsString(value) {
		v, _ := r.Integer(node, "sub_windows", 1, uint64(counter.MaxFields))
		n = int(v)
	} else if auto = value.Value == "auto"; !auto {
		r.Fail(node, fmt.Sprintf("write auto, or a number from 1 to %d", counter.MaxFields), "sub_windows cannot be %s", strictyaml.Quote(value.Value))
	}
	if l.Estimate == counter.Fixed && (auto || n > 1) {
		r.Fail(node, "leave sub_windows out, or take another estimate", "a fixed window has no sub-windows")
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
		return // whole windows, or an error already
	case n > room:
		r.Fail(node, fmt.Sprintf("a sub-window lasts at least %v, since clocks differ and counts are late: %s", counter.MinSubWindow, fewer(most)),
			"sub_windows cannot be %d with a period of %s", n, FormatDuration(l.Period))
	case l.Threshold > layout.MaxThreshold():
		r.Fail(node, fmt.Sprintf("%d sub-windows have %d bits each, for thresholds up to %d: %s", n, layout.Bits, layout.MaxThreshold(), fewer(most)),
			"sub_windows cannot be %d with a threshold of %d", n, l.Threshold)
	default:
		l.SubWindows = n
	}
}

// fewer says what to write for a limit that can have at most as many sub-windows as l.
func fewer(l counter.Layout) string {
	if l.Fields == 1 {
		return "leave sub_windows out"
	}
	return fmt.Sprintf("write auto, or at most %d", l.Fields)
}
