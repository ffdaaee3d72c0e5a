package analysis

import (
	"slices"
	"strings"

	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/internal/chart"
)

// Document returns the report as a document.
func (e *Enforcement) Document() chart.Document {
	d := chart.Document{Title: "What rules would have done", Lead: chart.Count(e.Requests, "request") + " of " + chart.Count(e.Clients, "client") + figure.Between(e.From, e.To), Data: e}
	facts := chart.Facts{{Name: "refused", Value: chart.Grouped(e.Refused), Note: chart.Percent(e.Refused, e.Requests) + " of the requests"}}
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
			facts = append(facts, chart.Fact{Name: f.name, Value: chart.Grouped(f.n), Note: f.note})
		}
	}
	if len(e.Rules) != 1 {
		facts = append(facts, e.Truth.facts("refused")...)
		facts = append(facts, e.WronglyRefused.fact("wrongly refused"), e.WronglyAllowed.fact("wrongly allowed"))
	}
	all := chart.Section{Title: "All rules", Blocks: []chart.Block{
		chart.Paragraph(e.PoP.String() + " A decision is wrong if exact counts, without lag or loss, would decide otherwise."),
		facts, e.Timeline.Plot("Requests and refusals"),
	}}
	if len(e.Rules) > 1 {
		numbers := []string{"requests", "refused", "%", "clients", "mitigations", "by exact counts", "wrongly refused", "wrongly allowed"}
		if e.Truth != nil {
			numbers = append(numbers, "attack", "legitimate")
		}
		table := chart.Table{Title: "Rules", Columns: chart.Columns("rule", numbers...)}
		for _, r := range e.Rules {
			cells := []string{r.Rule, chart.Grouped(r.Matched), chart.Grouped(r.Refused), chart.Percent(r.Refused, r.Matched), chart.Grouped(r.Clients),
				chart.Grouped(r.Mitigations), chart.Grouped(r.ExactRefused), chart.Grouped(r.WronglyRefused.Requests), chart.Grouped(r.WronglyAllowed.Requests)}
			if e.Truth != nil {
				cells = append(cells, chart.Grouped(r.Truth.Attack.Refused), chart.Grouped(r.Truth.Legitimate.Refused))
			}
			table.Rows = append(table.Rows, chart.Row{Cells: cells})
		}
		all.Blocks = append(all.Blocks, table)
	}
	if e.ClientTimelines != nil {
		all.Blocks = append(all.Blocks, e.ClientTimelines.plot())
	}
	d.Sections = []chart.Section{all}
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

func (d Disagreement) fact(name string) chart.Fact {
	f := chart.Fact{Name: name, Value: chart.Grouped(d.Requests)}
	var causes []string
	for _, cause := range []struct {
		n    uint64
		name string
	}{{d.ByCause.Estimate, "estimate"}, {d.ByCause.Lag, "lag"}, {d.ByCause.Failure, "failure"}} {
		if cause.n > 0 {
			causes = append(causes, chart.Grouped(cause.n)+" due to the "+cause.name)
		}
	}
	if d.Requests > 0 {
		f.Note = "from " + chart.Count(d.Clients, "client") + ": " + strings.Join(causes, ", ")
	}
	return f
}

func (b *Bystanders) facts() chart.Facts {
	if b == nil {
		return nil
	}
	return chart.Facts{{Name: "bystanders", Value: chart.Grouped(b.Requests), Note: "refused requests of " + chart.Count(b.Clients, "client") + " that never exceeded a limit of their own"}}
}

func (r *RuleEnforcement) section(clients int) chart.Section {
	verb := "refused"
	if r.Action == "log" {
		verb = "would refuse"
	}
	refused := chart.Fact{Name: verb, Value: chart.Grouped(r.Refused), Note: chart.Percent(r.Refused, r.Matched) + " of them, from " + chart.Count(r.Clients, "client")}
	if r.FirstRefusal != nil {
		refused.Note += "; the first at " + figure.Clock(*r.FirstRefusal)
	}
	s := chart.Section{Title: "Rule " + r.Rule + " (" + r.Action + ")", Blocks: []chart.Block{
		chart.Paragraph(r.Means),
		slices.Concat(chart.Facts{
			{Name: "matches", Value: chart.Grouped(r.Matched), Note: chart.Count(r.Counted, "request") + " counted"},
			refused,
		}, r.Truth.facts(verb), r.Bystanders.facts(), chart.Facts{
			{Name: "by exact counts", Value: chart.Grouped(r.ExactRefused)},
			r.WronglyRefused.fact("wrongly refused"),
			r.WronglyAllowed.fact("wrongly allowed"),
			{Name: "mitigations", Value: chart.Grouped(r.Mitigations), Note: chart.When(r.Mitigations > 0, "median %s, longest %s, total %s",
				figure.Lasting(r.Mitigated.MedianS), figure.Lasting(r.Mitigated.MaxS), figure.Lasting(r.Mitigated.TotalS))},
		}),
		clientBars("refusals", verb, true, r.TopClients, r.Refused), pathBars("refusals", verb, true, r.TopPaths, r.Refused),
	}}
	for _, p := range r.Peaks {
		s.Blocks = append(s.Blocks, figure.PlotPeaks(p.Bins, "keys", p.Limit, p.PeriodS))
	}
	shares := chart.Lines{Title: "Refused requests against affected clients", Note: "How much of the refused traffic came from the clients with the most refusals.",
		X: chart.Axis{Name: "clients, % of all", Scale: chart.Logarithmic}, Y: chart.Axis{Name: "refused requests, %"}, Lines: make([]chart.Line, 1)}
	for _, share := range r.Shares {
		shares.Lines[0].Points = append(shares.Lines[0].Points, chart.LinePoint{X: figure.Percent(uint64(share.Clients), uint64(clients)), Y: figure.Percent(share.Refused, r.Refused),
			Tip: chart.Count(share.Clients, "client") + ": " + chart.Percent(share.Refused, r.Refused), Name: chart.When(share.Clients == 10, "10 clients: %s", chart.Percent(share.Refused, r.Refused))})
	}
	if len(r.Shares) > 2 { // for two, the bars say the same
		s.Blocks = append(s.Blocks, shares)
	}
	return s
}

// clientBars returns bars of clients with their shares of these requests.
func clientBars(title, verb string, refusals bool, top []TopClient, all uint64) chart.Block {
	bars := chart.Bars{Title: "Clients with the most " + title, What: "client", Parts: []string{verb}, Refusals: refusals, Listed: true}
	for _, c := range top {
		bars.Rows = append(bars.Rows, chart.Bar{Name: c.Client, Values: []uint64{c.Requests}, Share: chart.Percent(c.Requests, all), Note: "since " + figure.Clock(c.First)})
	}
	return bars
}

// pathBars is clientBars for paths.
func pathBars(title, verb string, refusals bool, top []TopPath, all uint64) chart.Block {
	bars := chart.Bars{Title: "Paths with the most " + title, What: "path", Parts: []string{verb}, Refusals: refusals, Listed: true}
	for _, p := range top {
		bars.Rows = append(bars.Rows, chart.Bar{Name: p.Path, Values: []uint64{p.Requests}, Share: chart.Percent(p.Requests, all)})
	}
	return bars
}
