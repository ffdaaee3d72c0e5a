package analysis

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/edgelimit/edge/analysis/page"
	"github.com/edgelimit/edge/pop/rule"
)

const (
	textWidth  = 100 // columns of a terminal that text takes at most
	topInText  = 5   // sources that are named for a curve
	sourceText = 24  // columns before a source's name
)

// WriteText writes the report as tables, for people, and the recommended thresholds as rules,
// to be pasted. Of thresholds that touch nobody it shows the first.
func (r *SweepReport) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s\n", page.Count(r.Requests, "request"), when(r.Requests > 0, "%s", between(r.From, r.To)))
	for i := range r.Curves {
		r.Curves[i].write(&b)
	}
	fmt.Fprintf(&b, "\nrecommended: the smallest threshold that touches at most %.4g%% of clients%s\n", r.MaxClientsPct,
		when(r.MitigationTimeoutS > 0, ", mitigated for %s at least", rule.FormatDuration(time.Duration(r.MitigationTimeoutS)*time.Second)))
	b.WriteString("touched: something of them was refused\n")
	b.WriteString("top 1, top 10: the share of the refused requests that so few clients made\n")
	b.WriteString("knee: where the curve of touched clients turns most, both axes logarithmic\n")
	first := true
	for _, c := range r.Curves {
		heading, one, _ := strings.Cut(c.Rule, "\n")
		if one == "" {
			continue
		}
		if first {
			fmt.Fprintf(&b, "\n# recommended thresholds as rules: keep those that you want\n%s\n", heading)
		}
		first = false
		b.WriteString(one)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// write writes the table of c.
func (c *Curve) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s in %s: %s\n\n", shown(strings.Join(c.Characteristics, "+"), textWidth/2), rule.FormatDuration(time.Duration(c.PeriodS)*time.Second), page.Count(c.Clients, "client"))
	var table strings.Builder
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tthreshold\tclients touched\t%\trequests refused\t%\ttop 1\ttop 10\t")
	for _, cell := range c.Cells {
		var marks []string
		arrow := ""
		if cell.Threshold == c.Recommended {
			arrow, marks = "→", append(marks, "recommended")
		}
		if cell.Threshold == c.Knee {
			marks = append(marks, "knee")
		}
		tops := "\t"
		if cell.Refused > 0 {
			tops = fmt.Sprintf("%.1f%%\t%.1f%%", cell.Top1Pct, cell.Top10Pct)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.3f\t%s\t%.2f\t%s\t%s\n", arrow, page.Grouped(cell.Threshold), page.Grouped(uint64(cell.Clients)), cell.ClientsPct,
			page.Grouped(cell.Refused), cell.RefusedPct, tops, when(len(marks) > 0, "  %s", strings.Join(marks, ", ")))
		if cell.Clients == 0 {
			break
		}
	}
	t.Flush()
	for line := range strings.Lines(table.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	switch {
	case c.Clients == 0:
		b.WriteString("\n  no request was counted\n")
	case c.Recommended == 0:
		b.WriteString("\n  no threshold touches as few clients as that: try greater ones\n")
	}
	for _, cell := range c.Cells {
		if cell.Threshold != c.Recommended || cell.Refused == 0 {
			continue
		}
		fmt.Fprintf(b, "\n  most refused at %s:\n", page.Grouped(cell.Threshold))
		for _, s := range cell.Top[:min(len(cell.Top), topInText)] {
			fmt.Fprintf(b, "  %12s  %5.1f%%  %s\n", page.Grouped(s.Refused), percent(s.Refused, cell.Refused), shown(s.Name, textWidth-sourceText))
		}
	}
	if c.Clients == 1 {
		fmt.Fprintf(b, "\n  all requests have the same %s: perhaps the log does not tell it\n", shown(strings.Join(c.Characteristics, "+"), textWidth/2))
	}
}

// shown returns what a log says as a terminal may be sent it, at most n characters of it.
func shown(text string, n int) string {
	letters := []rune(printable(text))
	if len(letters) > n {
		letters = append(letters[:n-1], '…')
	}
	return string(letters)
}
