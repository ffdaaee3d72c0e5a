package rule

import (
	"fmt"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/strictyaml"
)

// CheckNodes returns an error for limits with more sub-windows than a PoP with this number of nodes can
// count: see [counter.Layout.MostNodes].
func (s *Set) CheckNodes(nodes int) error {
	var errs Errors
	for _, r := range s.rules {
		for _, l := range r.Limits {
			most := l.Counted().Layout.MostNodes()
			if nodes <= most {
				continue
			}
			if len(errs) == strictyaml.MaxErrors {
				return append(errs, &Error{File: r.File, Message: "too many errors; the rest is not shown"})
			}
			fewer := l
			for fewer.Counted().Layout.MostNodes() < nodes {
				fewer.SubWindows--
			}
			errs = append(errs, &Error{File: r.File, Line: r.Line, Column: 1,
				Message: fmt.Sprintf("rule %s: the limit of %v has %d sub-windows, which are for at most %d nodes, and the PoP may have %d",
					r.ID, l, l.SubWindows, most, nodes),
				Hint: fmt.Sprintf("write sub_windows: %d", fewer.SubWindows),
			})
		}
	}
	if errs == nil {
		return nil
	}
	return errs
}

// PackedLimits returns the number of limits with sub-windows, by the number of sub-windows.
func (s *Set) PackedLimits() (n [counter.MaxFields + 1]int) {
	for _, r := range s.rules {
		for i := range r.Limits {
			if fields := r.Limits[i].SubWindows; fields > 1 {
				n[fields]++
			}
		}
	}
	return n
}
