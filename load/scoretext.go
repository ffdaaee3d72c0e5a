package load

import (
	"fmt"
	"strings"

	"github.com/edgelimit/edge/analysis/page"
	"github.com/edgelimit/edge/load/judge"
)

// writeScore writes the score for people.
func writeScore(t *text, s *judge.Score) {
	t.row("", "")
	t.row("oracle", fmt.Sprintf("%s that a rule concerns: %s refused, %s by an exact limiter", page.Count(s.Requests, "request"), page.Grouped(s.Refused), page.Grouped(s.Exact)))
	t.row("innocent", fmt.Sprintf("%s of clients that never exceed a threshold refused; %s of clients that only the estimate finds over", page.Count(s.InnocentRefused, "request"), page.Grouped(s.InnocentByEstimate)))
	for _, r := range s.Rules {
		if r.InnocentRefused+r.InnocentByEst > 0 {
			t.row("", fmt.Sprintf("by %s: %s and %s", r.Rule, page.Grouped(r.InnocentRefused), page.Grouped(r.InnocentByEst)))
		}
	}
	t.row("wrongly refused", explained(s.WronglyRefused))
	t.row("wrongly allowed", explained(s.WronglyAllowed))
	if s.AttackRequests > 0 {
		t.row("attack", fmt.Sprintf("%s, of which passed: %s before they crossed a threshold, %s after; %s never refused",
			page.Count(s.AttackRequests, "request"), page.Grouped(s.LetThroughBefore), page.Grouped(s.LetThroughAfter), page.Count(s.AttackNotRefused, "client")))
	}
	if s.FirstRefusal.Clients > 0 {
		t.row("reaction", fmt.Sprintf("first refusal after %s, all nodes refuse after %s (%s that crossed a threshold)",
			times(s.FirstRefusal), times(s.AllRefuse), page.Count(s.FirstRefusal.Clients, "client")))
	}
	if o := s.Overshoot; o.Keys > 0 {
		t.row("overshoot", fmt.Sprintf("requests beyond the threshold in a period: p50 %d  p90 %d  p99 %d  max %d, of %s that any passed of", o.P50, o.P90, o.P99, o.Max, page.Count(o.Keys, "client")))
	}
	if s.Refused > 0 {
		t.row("Retry-After", retryAfter(s.RetryAfter))
	}
	if n := s.Unknown + s.Unavailable; n > 0 {
		t.row("uncertain", fmt.Sprintf("%s without an answer of the origin or a rule, which may have been counted or not; %s refused because a shard was out", page.Count(s.Unknown, "request"), page.Grouped(s.Unavailable)))
	}
	for i, rule := range s.NotJudged {
		t.row(first(i, "NOT JUDGED"), rule)
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

// retryAfter writes how true Retry-After was.
func retryAfter(r judge.RetryAfter) string {
	if r.Checked+r.Compared == 0 {
		return "not checked"
	}
	text := fmt.Sprintf("as the mitigation lasts in %s of %s", page.Grouped(r.Compared-r.TooShort-r.TooLong), page.Count(r.Compared, "refusal"))
	if r.Checked == 0 {
		return text + "; not checked whether clients that come back then are let through, since none did"
	}
	return text + fmt.Sprintf("; true for %d of %d that came back when they were told to", r.Checked-r.Untrue, r.Checked)
}

// explained writes what explains the requests.
func explained(d judge.Disagreement) string {
	if d.Requests == 0 {
		return "none"
	}
	return fmt.Sprintf("%s: the estimate explains %s, the lag %s; %s unexplained", page.Count(d.Requests, "request"), page.Grouped(d.Estimate), page.Grouped(d.Lag), page.Grouped(d.Unexplained))
}

// times writes a distribution in a line.
func times(t judge.Times) string {
	return fmt.Sprintf("p50 %s, p99 %s, max %s", millis(t.P50), millis(t.P99), millis(t.Max))
}
