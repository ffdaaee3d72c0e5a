package file

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/internal/strictyaml"
	"github.com/edgelimit/edge/rule"
)

func (r *reader) limitList(n *yaml.Node) []rule.Limit {
	nodes := r.Sequence(n, "limits", "write a list: [{threshold: 50, period: 1m}]", "write [{threshold: 50, period: 1m}]")
	list := make([]rule.Limit, 0, len(nodes))
	for _, element := range nodes {
		var l rule.Limit
		var subWindows *yaml.Node
		var round uint8
		if r.Mapping(element, "this limit", "write {threshold: 50, period: 1m}", []strictyaml.Field{
			{Name: "threshold", Need: "threshold: 50, the number of requests allowed", Read: func(n *yaml.Node) {
				if strictyaml.IsInteger(n) && n.Value == "0" {
					r.Fail(n, "to turn the rule off, write enabled: false; to refuse everything, list networks in deny; "+
						"otherwise write 1 or more", "threshold cannot be 0")
				} else {
					l.Threshold, _ = r.Integer(n, "threshold", 1, rule.MaxThreshold)
				}
			}},
			{Name: "period", Need: "period: 1m, the time that the threshold is for", Read: func(n *yaml.Node) {
				var ok bool
				l.Period, ok = r.duration(n, "period", rule.MinPeriod)
				if ok && slices.ContainsFunc(list, func(o rule.Limit) bool { return o.Period == l.Period }) {
					r.Fail(n, "a rule has one threshold for each period", "another limit of this rule has the period %s",
						rule.FormatDuration(l.Period))
				}
			}},
			{Name: "sub_windows", Read: func(n *yaml.Node) { subWindows = n }},
			strictyaml.Word(&r.Document, "estimate", &l.Estimate, counter.KindNames()[:counter.WeightedRounded]),
			strictyaml.Word(&r.Document, "round", &round, []string{"none", "down"}),
		}) {
			if round > 0 && l.Estimate == counter.Weighted { // the others are whole numbers
				l.Estimate = counter.WeightedRounded
			}
			if subWindows != nil {
				r.subWindows(subWindows, &l)
			}
			list = append(list, l)
		}
	}
	return intern(r, list)
}

// subWindows reads the number of sub-windows of l, whose other fields are set.
func (r *reader) subWindows(node *yaml.Node, l *rule.Limit) {
	n, auto := 0, false
	if !strictyaml.IsString(node) {
		v, _ := r.Integer(node, "sub_windows", 1, uint64(counter.MaxFields))
		n = int(v)
	} else if auto = node.Value == "auto"; !auto {
		r.Fail(node, fmt.Sprintf("write auto, or a number from 1 to %d", counter.MaxFields), "sub_windows cannot be %s",
			prose.Quote(node.Value))
	}
	if l.Estimate == counter.Fixed && (auto || n > 1) {
		r.Fail(node, "leave sub_windows out, or use another estimate", "a fixed window has no sub-windows")
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
		return // whole windows, or already an error
	case n > room:
		r.Fail(node, fmt.Sprintf("a sub-window lasts at least %v, since clocks differ and counts arrive late: %s",
			counter.MinSubWindow, fewer(most)), "sub_windows cannot be %d with a period of %s", n, rule.FormatDuration(l.Period))
	case l.Threshold > layout.MaxThreshold():
		r.Fail(node, fmt.Sprintf("%d sub-windows have %d bits each, for thresholds up to %d: %s", n, layout.Bits,
			layout.MaxThreshold(), fewer(most)), "sub_windows cannot be %d with a threshold of %d", n, l.Threshold)
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

// CheckNodes returns an error for limits with more sub-windows than a PoP with this number of nodes can
// count: see counter.Layout.MaxNodes.
func CheckNodes(s *rule.Set, nodes int) error {
	var errs Errors
	for _, r := range s.Rules() {
		for _, l := range r.Limits {
			most := l.Counted().Layout.MaxNodes()
			if nodes <= most {
				continue
			}
			if len(errs) == strictyaml.MaxErrors {
				return append(errs, &Error{File: r.File, Message: "too many errors; the rest are not shown"})
			}
			fewer := l
			for fewer.Counted().Layout.MaxNodes() < nodes {
				fewer.SubWindows--
			}
			errs = append(errs, &Error{File: r.File, Line: r.Line, Column: 1,
				Message: fmt.Sprintf("rule %s: the limit of %v has %d sub-windows, which work with at most %d nodes, "+
					"but the PoP may have %d", r.ID, l, l.SubWindows, most, nodes),
				Hint: fmt.Sprintf("write sub_windows: %d", fewer.SubWindows),
			})
		}
	}
	if errs == nil {
		return nil
	}
	return errs
}
