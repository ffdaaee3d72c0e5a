package analysis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/analysis/page"
	"github.com/edgelimit/edge/pop/rule"
)

// Sections returns the report as parts of a page.
func (r *SweepReport) Sections() []page.Section {
	all := page.Section{
		Title: "Choosing a threshold",
		Lead: fmt.Sprintf("Each threshold is tried as a rule by itself, on every request of the log. Recommended is the smallest one that touches at most %.4g%% of the clients, in that it refuses something of them%s.",
			r.MaxClientsPct, when(r.MitigationTimeoutS > 0, ", with a mitigation timeout of %s", rule.FormatDuration(time.Duration(r.MitigationTimeoutS)*time.Second))),
	}
	var rules strings.Builder
	for i := 0; i < len(r.Curves); {
		n := i + 1
		for n < len(r.Curves) && slices.Equal(r.Curves[n].Characteristics, r.Curves[i].Characteristics) {
			n++
		}
		all.Blocks = append(all.Blocks, r.plot(r.Curves[i:n]))
		i = n
	}
	sections := []page.Section{{}}
	for i := range r.Curves {
		c := &r.Curves[i]
		heading, one, _ := strings.Cut(c.Rule, "\n")
		if one != "" && rules.Len() == 0 {
			rules.WriteString(heading + "\n")
		}
		rules.WriteString(one)
		f := page.Figure{Name: c.name(), Value: "none", Note: "every threshold touches more"}
		if c.Clients == 0 {
			f.Note = "no request was counted"
		}
		if cell := c.recommended(); cell != nil {
			f.Value = page.Grouped(cell.Threshold)
			f.Note = fmt.Sprintf("touches %s of %s clients (%.3g%%), refuses %.3g%% of the requests", page.Grouped(uint64(cell.Clients)), page.Grouped(uint64(c.Clients)), cell.ClientsPct, cell.RefusedPct)
		}
		all.Figures = append(all.Figures, f)
		sections = append(sections, c.section())
	}
	if rules.Len() > 0 {
		all.Blocks = append(all.Blocks, page.Code{Title: "The recommended thresholds as rules: keep those that you want", Text: rules.String()})
	}
	sections[0] = all
	return sections
}

// plot returns curves of the same characteristics.
func (r *SweepReport) plot(curves []Curve) page.Block {
	first := &curves[0]
	plot := page.Curve{
		Title: fmt.Sprintf("Clients touched by a threshold, counted by %s", strings.Join(first.Characteristics, "+")),
		Note:  "a large dot is recommended, a ring is the knee of the curve: there it turns most",
		XName: "threshold, requests per period", YName: "clients touched",
	}
	if budget := r.MaxClientsPct / 100 * float64(first.Clients); budget >= 1 {
		plot.Budget, plot.BudgetName = budget, fmt.Sprintf("%.4g%% of %s clients", r.MaxClientsPct, page.Grouped(uint64(first.Clients)))
	}
	for i := range curves {
		c := &curves[i]
		l := page.Line{Name: c.period()}
		for _, cell := range c.Cells {
			p := page.LinePoint{X: float64(cell.Threshold), N: uint64(cell.Clients), Knee: cell.Threshold == c.Knee}
			p.Tip = fmt.Sprintf("%s in %s\ntouches %s clients (%.3g%%)\nrefuses %s requests (%.3g%%)", page.Grouped(cell.Threshold), c.period(),
				page.Grouped(uint64(cell.Clients)), cell.ClientsPct, page.Grouped(cell.Refused), cell.RefusedPct)
			if cell.Threshold == c.Recommended {
				p.Name = fmt.Sprintf("%s in %s", page.Grouped(cell.Threshold), c.period())
			}
			if l.Points = append(l.Points, p); cell.Clients == 0 && cell.Threshold >= c.Recommended {
				break
			}
		}
		plot.Lines = append(plot.Lines, l)
	}
	return plot
}

func (c *Curve) period() string { return rule.FormatDuration(time.Duration(c.PeriodS) * time.Second) }

func (c *Curve) name() string { return strings.Join(c.Characteristics, "+") + " in " + c.period() }

// recommended returns the cell of the recommended threshold, nil if there is none.
func (c *Curve) recommended() *Cell {
	i := slices.IndexFunc(c.Cells, func(cell Cell) bool { return cell.Threshold == c.Recommended })
	if i < 0 {
		return nil
	}
	return &c.Cells[i]
}

// section returns what there is to say of one curve.
func (c *Curve) section() page.Section {
	s := page.Section{Title: c.name()}
	if cell := c.recommended(); cell != nil && c.Timeline != nil {
		s.Blocks = append(s.Blocks, c.Timeline.plot(fmt.Sprintf("What a threshold of %s would have refused", page.Grouped(cell.Threshold))))
		bars := page.Bars{Title: fmt.Sprintf("From whom a threshold of %s would have refused most", page.Grouped(cell.Threshold)), Note: "share of the refused requests", Refusals: true}
		for _, source := range cell.Top {
			bars.Rows = append(bars.Rows, shareBar(source.Name, source.Refused, cell.Refused))
		}
		s.Blocks = append(s.Blocks, bars)
	}
	table := page.Table{Title: "Thresholds", Columns: []page.Column{
		{Name: "threshold", Numbers: true}, {Name: "clients touched", Numbers: true}, {Name: "% of clients", Numbers: true},
		{Name: "requests refused", Numbers: true}, {Name: "% of requests", Numbers: true}, {Name: "from the top 1", Numbers: true}, {Name: "the top 10", Numbers: true},
	}}
	for _, cell := range c.Cells {
		var marks []string
		if cell.Threshold == c.Recommended {
			marks = append(marks, "recommended")
		}
		if cell.Threshold == c.Knee {
			marks = append(marks, "knee")
		}
		row := page.Row{Note: strings.Join(marks, ", "), Strong: cell.Threshold == c.Recommended, Cells: []string{page.Grouped(cell.Threshold), page.Grouped(uint64(cell.Clients)), fmt.Sprintf("%.3f", cell.ClientsPct),
			page.Grouped(cell.Refused), fmt.Sprintf("%.2f", cell.RefusedPct), "", ""}}
		if cell.Refused > 0 {
			row.Cells[5], row.Cells[6] = fmt.Sprintf("%.1f%%", cell.Top1Pct), fmt.Sprintf("%.1f%%", cell.Top10Pct)
		}
		if table.Rows = append(table.Rows, row); cell.Clients == 0 && cell.Threshold >= c.Recommended {
			break
		}
	}
	s.Blocks = append(s.Blocks, table)
	return s
}

// plot returns l as it is shown.
func (l *Timeline) plot(title string) page.Block {
	area := page.Area{Title: title, From: l.From, Step: time.Duration(l.StepS) * time.Second, AllName: "requests", PartName: "refused", PartIsRefusals: true}
	for _, p := range l.Points {
		area.All, area.Part = append(area.All, p.Requests), append(area.Part, p.Refused)
	}
	return area
}
