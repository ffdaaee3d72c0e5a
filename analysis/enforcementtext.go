package analysis

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/edgelimit/edge/analysis/page"
)

// WriteText writes the report for people at a terminal.
func (e *Enforcement) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s%s\n", page.Count(e.Requests, "request"), page.Count(e.Clients, "client"), between(e.From, e.To))
	if !e.PoP.simplest() {
		fmt.Fprintf(&b, "%s\n", e.PoP)
	}
	if e.Allowed+e.Denied > 0 {
		fmt.Fprintf(&b, "lists: %s allowed, %s denied, whatever the rules\n", page.Count(e.Allowed, "request"), page.Grouped(e.Denied))
	}
	for i := range e.Rules {
		b.WriteByte('\n')
		e.Rules[i].write(&b)
	}
	if len(e.Rules) > 1 {
		b.WriteString("\nall rules\n")
		line(&b, "refused", "%s", page.Count(e.Refused, "request"))
		if e.Logged > 0 {
			line(&b, "only logged", "%s", page.Count(e.Logged, "request"))
		}
		writeWrong(&b, e.WronglyRefused, e.WronglyAllowed)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// line writes a line with a label.
func line(b *strings.Builder, label, format string, args ...any) {
	fmt.Fprintf(b, "  %-17s", label)
	fmt.Fprintf(b, format+"\n", args...)
}

// simplest reports whether the PoP is one node that knows everything at once, and loses
// nothing.
func (p PoPReport) simplest() bool { return p.Nodes == 1 && p.LagS == 0 && len(p.Losses) == 0 }

// String says what the PoP was like.
func (p PoPReport) String() string {
	s := fmt.Sprintf("PoP: %s, %s, spread by %s, lag %v, clocks %v apart", page.Count(p.Nodes, "node"), page.Count(p.Shards, "shard"), p.Spread, lasting(p.LagS), lasting(p.SkewS))
	if len(p.Losses) > 0 {
		s += ", lost: shard " + strings.Join(p.Losses, ", shard ")
	}
	return s
}

func (r *RuleEnforcement) write(b *strings.Builder) {
	fmt.Fprintf(b, "%s (%s)\n", r.Rule, r.Action)
	line(b, "concerns", "%s, and counted %s", page.Count(r.Matched, "request"), page.Grouped(r.Counted))
	verb := "refused"
	if r.Action == "log" {
		verb = "would refuse"
	}
	since := ""
	if r.FirstRefusal != nil {
		since = "; the first at " + clock(*r.FirstRefusal)
	}
	line(b, verb, "%s (%.4g%%) of %s%s", page.Count(r.Refused, "request"), r.RefusedPct, page.Count(r.Clients, "client"), since)
	line(b, "by exact counts", "%s", page.Count(r.ExactRefused, "request"))
	writeWrong(b, r.WronglyRefused, r.WronglyAllowed)
	if r.Mitigations > 0 {
		line(b, "mitigations", "%s, for %v at the median, %v at most, %v in total", page.Grouped(uint64(r.Mitigations)),
			lasting(r.Mitigated.MedianS), lasting(r.Mitigated.MaxS), lasting(r.Mitigated.TotalS))
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	writeTop(t, r.TopClients, r.TopPaths)
	t.Flush()
}

// writeWrong says what was decided otherwise than by exact counts.
func writeWrong(b *strings.Builder, refused, allowed Disagreement) {
	for i, d := range []Disagreement{refused, allowed} {
		label := []string{"wrongly refused", "wrongly allowed"}[i]
		if d.Requests == 0 {
			line(b, label, "none")
			continue
		}
		line(b, label, "%s of %s: %s", page.Count(d.Requests, "request"), page.Count(d.Clients, "client"), d.ByCause)
	}
}

// String says what explains how many requests.
func (c ByCause) String() string {
	var parts []string
	for _, part := range []struct {
		n    uint64
		name string
	}{{c.Estimate, "by the estimate"}, {c.Lag, "by the lag"}, {c.Failure, "by the failure"}} {
		if part.n > 0 {
			parts = append(parts, page.Grouped(part.n)+" "+part.name)
		}
	}
	return strings.Join(parts, ", ")
}
