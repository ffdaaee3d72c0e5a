package analysis

import (
	"slices"
	"strings"

	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/analysis/page"
)

// Document returns the report as a document.
func (e *Enforcement) Document() page.Document {
	d := page.Document{Title: "What rules would have done", Lead: page.Count(e.Requests, "request") + " of " + page.Count(e.Clients, "client") + figure.Between(e.From, e.To), Data: e}
	facts := page.Facts{{Name: "refused", Value: page.Grouped(e.Refused), Note: page.Percent(e.Refused, e.Requests) + " of the requests"}}
	if len(e.Rules) == 1 {
		facts = nil
	}
	for _, f := range []struct {
		name, note string
		n          uint64
	}{
		{"only logged", "by rules that only log", e.Logged},
		{"denied", "by the deny list", e.Denied},
		{"allowed", "by the allow list", e.Allowed},
	} {
		if f.n > 0 {
			facts = append(facts, page.Fact{Name: f.name, Value: page.Grouped(f.n), Note: f.note})
		}
	}
	if len(e.Rules) != 1 {
		facts = append(facts, e.Truth.facts("refused")...)
		facts = append(facts, e.WronglyRefused.fact("wrongly refused"), e.WronglyAllowed.fact("wrongly allowed"))
	}
	all := page.Section{Title: "All rules", Blocks: []page.Block{
		page.Paragraph(e.PoP.String() + " A decision is wrong if exact counts, without lag or loss, would decide otherwise."),
		facts, e.Timeline.Plot("Requests and refusals"),
	}}
	if len(e.Rules) > 1 {
		numbers := []string{"requests", "refused", "%", "clients", "mitigations", "by exact counts", "wrongly refused", "wrongly allowed"}
		if e.Truth != nil {
			numbers = append(numbers, "attack", "legitimate")
		}
		table := page.Table{Title: "Rules", Columns: page.Columns("rule", numbers...)}
		for _, r := range e.Rules {
			cells := []string{r.Rule, page.Grouped(r.Matched), page.Grouped(r.Refused), page.Percent(r.Refused, r.Matched), page.Grouped(r.Clients),
				page.Grouped(r.Mitigations), page.Grouped(r.ExactRefused), page.Grouped(r.WronglyRefused.Requests), page.Grouped(r.WronglyAllowed.Requests)}
			if e.Truth != nil {
				cells = append(cells, page.Grouped(r.Truth.Attack.Refused), page.Grouped(r.Truth.Legitimate.Refused))
			}
			table.Rows = append(table.Rows, page.Row{Cells: cells})
		}
		all.Blocks = append(all.Blocks, table)
	}
	if e.ClientTimelines != nil {
		all.Blocks = append(all.Blocks, e.ClientTimelines.plot())
	}
	d.Sections = []page.Section{all}
	for i := range e.Rules {
		d.Sections = append(d.Sections, e.Rules[i].section(e.Clients))
	}
	if len(e.Rules) == 1 { // the overview describes this rule
		s := &d.Sections[1]
		s.Blocks = slices.Concat(s.Blocks[:2], all.Blocks[1:], s.Blocks[2:], all.Blocks[:1])
		d.Sections = d.Sections[1:]
	}
	return d
}

func (d Disagreement) fact(name string) page.Fact {
	f := page.Fact{Name: name, Value: page.Grouped(d.Requests)}
	var causes []string
	for _, cause := range []struct {
		n    uint64
		name string
	}{{d.ByCause.Estimate, "estimate"}, {d.ByCause.Lag, "lag"}, {d.ByCause.Failure, "failure"}} {
		if cause.n > 0 {
			causes = append(causes, page.Grouped(cause.n)+" due to the "+cause.name)
		}
	}
	if d.Requests > 0 {
		f.Note = "from " + page.Count(d.Clients, "client") + ": " + strings.Join(causes, ", ")
	}
	return f
}

func (b *Bystanders) facts() page.Facts {
	if b == nil {
		return nil
	}
	return page.Facts{{Name: "bystanders", Value: page.Grouped(b.Requests), Note: "refused requests of " + page.Count(b.Clients, "client") + " that never exceeded a limit of their own"}}
}

func (r *RuleEnforcement) section(clients int) page.Section {
	verb := "refused"
	if r.Action == "log" {
		verb = "would refuse"
	}
	refused := page.Fact{Name: verb, Value: page.Grouped(r.Refused), Note: page.Percent(r.Refused, r.Matched) + " of them, from " + page.Count(r.Clients, "client")}
	if r.FirstRefusal != nil {
		refused.Note += "; the first at " + figure.Clock(*r.FirstRefusal)
	}
	s := page.Section{Title: "Rule " + r.Rule + " (" + r.Action + ")", Blocks: []page.Block{
		page.Paragraph(r.Means),
		slices.Concat(page.Facts{
			{Name: "matches", Value: page.Grouped(r.Matched), Note: page.Count(r.Counted, "request") + " counted"},
			refused,
		}, r.Truth.facts(verb), r.Bystanders.facts(), page.Facts{
			{Name: "by exact counts", Value: page.Grouped(r.ExactRefused)},
			r.WronglyRefused.fact("wrongly refused"),
			r.WronglyAllowed.fact("wrongly allowed"),
			{Name: "mitigations", Value: page.Grouped(r.Mitigations), Note: page.When(r.Mitigations > 0, "median %s, longest %s, total %s",
				figure.Lasting(r.Mitigated.MedianS), figure.Lasting(r.Mitigated.MaxS), figure.Lasting(r.Mitigated.TotalS))},
		}),
		clientBars("refusals", verb, true, r.TopClients, r.Refused), pathBars("refusals", verb, true, r.TopPaths, r.Refused),
	}}
	for _, p := range r.Peaks {
		s.Blocks = append(s.Blocks, figure.PlotPeaks(p.Bins, "keys", p.Limit, p.PeriodS))
	}
	shares := page.Lines{Title: "Refused requests against affected clients", Note: "How much of the refused traffic came from the clients with the most refusals.",
		X: page.Axis{Name: "clients, % of all", Scale: page.Logarithmic}, Y: page.Axis{Name: "refused requests, %"}, Lines: make([]page.Line, 1)}
	for _, share := range r.Shares {
		shares.Lines[0].Points = append(shares.Lines[0].Points, page.LinePoint{X: figure.Percent(uint64(share.Clients), uint64(clients)), Y: figure.Percent(share.Refused, r.Refused),
			Tip: page.Count(share.Clients, "client") + ": " + page.Percent(share.Refused, r.Refused), Name: page.When(share.Clients == 10, "10 clients: %s", page.Percent(share.Refused, r.Refused))})
	}
	if len(r.Shares) > 2 { // for two, the bars say the same
		s.Blocks = append(s.Blocks, shares)
	}
	return s
}

// clientBars returns bars of clients with their shares of these requests.
func clientBars(title, verb string, refusals bool, top []TopClient, all uint64) page.Block {
	bars := page.Bars{Title: "Clients with the most " + title, What: "client", Parts: []string{verb}, Refusals: refusals, Listed: true}
	for _, c := range top {
		bars.Rows = append(bars.Rows, page.Bar{Name: c.Client, Values: []uint64{c.Requests}, Share: page.Percent(c.Requests, all), Note: "since " + figure.Clock(c.First)})
	}
	return bars
}

// pathBars is clientBars for paths.
func pathBars(title, verb string, refusals bool, top []TopPath, all uint64) page.Block {
	bars := page.Bars{Title: "Paths with the most " + title, What: "path", Parts: []string{verb}, Refusals: refusals, Listed: true}
	for _, p := range top {
		bars.Rows = append(bars.Rows, page.Bar{Name: p.Path, Values: []uint64{p.Requests}, Share: page.Percent(p.Requests, all)})
	}
	return bars
}
