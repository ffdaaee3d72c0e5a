package analysis

import (
	"slices"
	"strings"

	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/internal/prose"
)

// Document returns the report as a document.
func (e *Enforcement) Document() chart.Document {
	d := chart.Document{Title: "What rules would have done",
		Lead: figure.Lead(e.Requests, e.Clients, e.From, e.To), Data: e}
	several := len(e.Rules) != 1
	var facts chart.Facts
	if several {
		facts.Add("refused", e.Refused, "%s of the requests", chart.Percent(e.Refused, e.Requests))
	}
	other := func(name, by string, n uint64) {
		if n > 0 {
			facts.Add(name, n, "by %s", by)
		}
	}
	other("only logged", "rules that only log", e.Logged)
	other("denied", "the deny list", e.Denied)
	other("allowed", "the allow list", e.Allowed)
	if several {
		facts = append(facts, e.Truth.facts("refused")...)
		facts = append(facts, e.WronglyRefused.fact("wrongly refused"), e.WronglyAllowed.fact("wrongly allowed"))
	}
	all := chart.Section{Title: "All rules", Blocks: []chart.Block{
		chart.Paragraph(e.PoP.String() +
			" A decision is wrong if exact counts, without lag or loss, would decide otherwise."),
		facts, e.Timeline.Plot("Requests and refusals"),
	}}
	if len(e.Rules) > 1 {
		numbers := []string{"requests", "refused", "%", "clients", "mitigations", "by exact counts", "wrongly refused",
			"wrongly allowed"}
		if e.Truth != nil {
			numbers = append(numbers, "attack", "legitimate")
		}
		table := chart.Table{Title: "Rules", Columns: chart.Columns("rule", numbers...)}
		for _, r := range e.Rules {
			cells := []any{r.Rule, r.Matched, r.Refused, chart.Percent(r.Refused, r.Matched), r.Clients,
				r.Mitigations, r.ExactRefused, r.WronglyRefused.Requests, r.WronglyAllowed.Requests}
			if e.Truth != nil {
				cells = append(cells, r.Truth.Attack.Refused, r.Truth.Legitimate.Refused)
			}
			table.Add(cells...)
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
	if !several { // the overview describes this rule
		s := &d.Sections[1]
		s.Blocks = slices.Concat(s.Blocks[:2], all.Blocks[1:], s.Blocks[2:], all.Blocks[:1])
		d.Sections = d.Sections[1:]
	}
	return d
}

func (d Disagreement) fact(name string) chart.Fact {
	f := chart.Fact{Name: name, Value: chart.Grouped(d.Requests)}
	var causes prose.Phrases
	for i, n := range []uint64{d.ByCause.Estimate, d.ByCause.Lag, d.ByCause.Failure} {
		causes.AddIf(n > 0, "%s due to the %s", chart.Grouped(n), []string{"estimate", "lag", "failure"}[i])
	}
	if d.Requests > 0 {
		f.Note = "from " + chart.Count(d.Clients, "client") + ": " + strings.Join(causes, ", ")
	}
	return f
}

func (r *RuleEnforcement) section(clients int) chart.Section {
	verb := "refused"
	if r.Action == "log" {
		verb = "would refuse"
	}
	var facts chart.Facts
	facts.Add("matches", r.Matched, "%s counted", chart.Count(r.Counted, "request"))
	facts.Add(verb, r.Refused, "%s of them, from %s", chart.Percent(r.Refused, r.Matched),
		chart.Count(r.Clients, "client"))
	if r.FirstRefusal != nil {
		facts[1].Note += "; the first at " + figure.Clock(*r.FirstRefusal)
	}
	facts = append(facts, r.Truth.facts(verb)...)
	if b := r.Bystanders; b != nil {
		facts.Add("bystanders", b.Requests, "refused requests of %s that never exceeded a limit of their own",
			chart.Count(b.Clients, "client"))
	}
	facts.Add("by exact counts", r.ExactRefused, "")
	facts = append(facts, r.WronglyRefused.fact("wrongly refused"), r.WronglyAllowed.fact("wrongly allowed"))
	facts.Add("mitigations", uint64(r.Mitigations), "%s", chart.When(r.Mitigations > 0, "median %s, longest %s, total %s",
		figure.Lasting(r.Mitigated.MedianS), figure.Lasting(r.Mitigated.MaxS), figure.Lasting(r.Mitigated.TotalS)))
	s := chart.Section{Title: "Rule " + r.Rule + " (" + r.Action + ")",
		Blocks: append([]chart.Block{chart.Paragraph(r.Means), facts},
			topBars("refusals", chart.Key{Name: verb, Color: chart.Red}, r.TopClients, r.TopPaths, r.Refused)...)}
	for _, p := range r.Peaks {
		s.Blocks = append(s.Blocks, figure.PlotPeaks(p.Bins, "keys", p.Limit, p.PeriodS))
	}
	shares := chart.Lines{Title: "Refused requests against affected clients", Lines: make([]chart.Line, 1),
		Note: "How much of the refused traffic came from the clients with the most refusals.",
		X:    chart.Axis{Name: "clients, % of all", Scale: chart.Logarithmic}, Y: chart.Axis{Name: "refused requests, %"}}
	for _, share := range r.Shares {
		pct := chart.Percent(share.Refused, r.Refused)
		shares.Lines[0].Points = append(shares.Lines[0].Points, chart.LinePoint{
			X: figure.Percent(uint64(share.Clients), uint64(clients)), Y: figure.Percent(share.Refused, r.Refused),
			Tip:  chart.Count(share.Clients, "client") + ": " + pct,
			Name: chart.When(share.Clients == 10, "10 clients: %s", pct)})
	}
	if len(r.Shares) > 2 { // for two, the bars say the same
		s.Blocks = append(s.Blocks, shares)
	}
	return s
}

// topBars returns bars of clients and of paths with their shares of these requests.
func topBars(title string, counted chart.Key, clients []TopClient, paths []TopPath, all uint64) []chart.Block {
	byClient := chart.Bars("Clients with the most "+title, "client", counted)
	for _, c := range clients {
		byClient.AddShare(c.Client, c.Requests, all).Note = "since " + figure.Clock(c.First)
	}
	byPath := chart.Bars("Paths with the most "+title, "path", counted)
	for _, p := range paths {
		byPath.AddShare(p.Path, p.Requests, all)
	}
	return []chart.Block{byClient, byPath}
}
