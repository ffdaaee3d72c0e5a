package load

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/edgelimit/edge/analysis/page"
)

// leastStepMS is the least step of the clock that is reported.
const leastStepMS = 5

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	t := &text{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	s := r.Sending
	t.row("sent", fmt.Sprintf("%s in %.1f s, %.0f/s, over %s", page.Count(s.Requests, "request"), r.DurationS, s.RatePerS, page.Count(s.Connections, "connection")))
	if r.Interrupted {
		t.row("", "interrupted before its end")
	}
	if r.GaveUp {
		t.row("", "ended early: nothing was answered")
	}
	if r.Full {
		t.row("", "ended after these: --requests allows no more")
	}
	if ms := math.Abs(r.ClockStepMS); ms > leastStepMS {
		t.row("", "THE CLOCK WAS SET by "+millis(ms)+" during the run: the score is off by as much")
	}
	if !s.Kept {
		t.row("", fmt.Sprintf("COULD NOT KEEP THE RATE: %s late by more than 10 ms (%s because this machine was too slow, the others because no connection was free), %s not sent",
			page.Count(s.Late, "request"), page.Grouped(s.OwnLate), page.Grouped(s.Unsent)))
	}
	if s.Held > 0 {
		t.row("", page.Grouped(s.Held)+" more not sent: their clients waited for their Retry-After")
	}
	t.row("answers", cmp.Or(statuses(r.Statuses), "none"))
	for i, name := range slices.Sorted(maps.Keys(r.Failures)) {
		t.row(first(i, "failures"), page.Grouped(r.Failures[name])+" "+strings.ReplaceAll(name, "_", " ")+after("; the first: ", r.Examples[name]))
	}
	if n := s.ClosedReused; n > 0 {
		t.row("", page.Grouped(n)+" of the closed on connections that had carried others: the target may have ended them before it read the request")
	}
	if len(r.Statuses) > 0 {
		t.row("latency", r.Latency.String()+"   from when they were due")
		t.row("", r.Service.String()+"   from when they were sent")
	}
	for i, n := range r.Nodes {
		t.row(first(i, "nodes"), fmt.Sprintf("%s: %s, %s refused", n.Name, page.Count(n.Requests, "request"), page.Grouped(n.Refused)))
	}
	for i, c := range r.Components {
		what := map[bool]string{true: "attack"}[c.Attack]
		t.row(first(i, "traffic"), fmt.Sprintf("%s: %s, %s refused, %s failed%s", c.Name, page.Count(c.Requests, "request"), page.Grouped(c.Refused), page.Grouped(c.Failed), after("; ", what)))
	}
	for i, hint := range r.Hints {
		t.row(first(i, "hint"), hint)
	}
	if r.Score != nil {
		writeScore(t, r.Score)
	}
	return t.w.Flush()
}

// A text is lines of two columns.
type text struct{ w *tabwriter.Writer }

func (t *text) row(name, value string) { fmt.Fprintf(t.w, "%s\t%s\n", name, value) }

func first(i int, name string) string {
	if i > 0 {
		return ""
	}
	return name
}

func after(before, what string) string {
	if what == "" {
		return ""
	}
	return before + what
}

// String writes the distribution in a line.
func (l Latency) String() string {
	return fmt.Sprintf("p50 %s  p90 %s  p99 %s  p99.9 %s  max %s", millis(l.P50MS), millis(l.P90MS), millis(l.P99MS), millis(l.P999MS), millis(l.MaxMS))
}

func millis(ms float64) string {
	switch {
	case ms >= 1000:
		return fmt.Sprintf("%.2f s", ms/1000)
	case ms >= 10:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.2f ms", ms)
}

func statuses(m map[string]uint64) string {
	var parts []string
	for _, status := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, page.Grouped(m[status])+" × "+status)
	}
	return strings.Join(parts, ", ")
}
