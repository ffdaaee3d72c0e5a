package load

import (
	"fmt"
	"strings"

	"github.com/edgelimit/edge/analysis/page"
)

// write writes the score for people.
func (s *Score) write(t *text) {
	t.row("", "")
	t.row("oracle", fmt.Sprintf("%s that a rule concerns: %s refused, %s by an exact limiter", page.Count(s.Requests, "request"), page.Grouped(s.Refused), page.Grouped(s.Exact)))
	t.row("innocent", fmt.Sprintf("%s of clients that never exceed a threshold refused; %s of clients that only the estimate finds over", page.Count(s.InnocentRefused, "request"), page.Grouped(s.InnocentByEstimate)))
	for _, r := range s.Rules {
		if r.InnocentRefused+r.InnocentByEst > 0 {
			t.row("", fmt.Sprintf("by %s: %s and %s", r.Rule, page.Grouped(r.InnocentRefused), page.Grouped(r.InnocentByEst)))
		}
	}
	t.row("wrongly refused", s.WronglyRefused.String())
	t.row("wrongly allowed", s.WronglyAllowed.String())
	if s.AttackRequests > 0 {
		t.row("attack", fmt.Sprintf("%s, of which passed: %s before they crossed a threshold, %s after; %s never refused",
			page.Count(s.AttackRequests, "request"), page.Grouped(s.LetThroughBefore), page.Grouped(s.LetThroughAfter), page.Count(s.AttackNotRefused, "client")))
	}
	if s.FirstRefusal.Clients > 0 {
		t.row("reaction", fmt.Sprintf("first refusal after %s, all nodes refuse after %s (%s that crossed a threshold)",
			s.FirstRefusal.String(), s.AllRefuse.String(), page.Count(s.FirstRefusal.Clients, "client")))
	}
	if o := s.Overshoot; o.Keys > 0 {
		t.row("overshoot", fmt.Sprintf("requests beyond the threshold in a period: p50 %d  p90 %d  p99 %d  max %d, of %s that any passed of", o.P50, o.P90, o.P99, o.Max, page.Count(o.Keys, "client")))
	}
	if r := s.RetryAfter; r.Checked > 0 {
		t.row("Retry-After", fmt.Sprintf("true for %d of %d that came back when they were told to", r.Checked-r.Untrue, r.Checked))
	}
	for i, f := range s.Faults {
		who := f.Text
		if len(f.Clients) > 0 {
			who += " (" + strings.Join(f.Clients, ", ") + ")"
		}
		t.row(first(i, "FAULTS"), fmt.Sprintf("%s: %s: %s", f.Name, page.Count(f.Requests, "request"), who))
	}
	if len(s.Faults) == 0 {
		t.row("faults", "none: the estimate and the lag explain every difference")
	}
}

// String writes what explains the requests.
func (d Disagreement) String() string {
	if d.Requests == 0 {
		return "none"
	}
	return fmt.Sprintf("%s: the estimate explains %s, the lag %s; %s unexplained", page.Count(d.Requests, "request"), page.Grouped(d.Estimate), page.Grouped(d.Lag), page.Grouped(d.Unexplained))
}

// String writes the distribution in a line.
func (t Times) String() string {
	return fmt.Sprintf("p50 %s, p99 %s, max %s", millis(t.P50), millis(t.P99), millis(t.Max))
}

// String writes what disagrees.
func (h Headers) String() string {
	var parts []string
	for _, c := range []struct {
		answers uint64
		what    string
	}{
		{h.NoRetryAfter, "refusals have no Retry-After"},
		{h.Remaining, "refusals say that more requests may come"},
		{h.OtherTime, "refusals have another time in RateLimit's t, or X-RateLimit-Reset, than in Retry-After"},
		{h.PassedRetryAfter, "answers that pass have a Retry-After"},
		{h.NoneRemains, "answers that pass say that nothing remains, to clients that sent less than any threshold"},
		{h.BeyondLimit, "answers say that more remains than the limit is"},
	} {
		if c.answers > 0 {
			parts = append(parts, page.Grouped(c.answers)+" "+c.what)
		}
	}
	return strings.Join(parts, "; ")
}
