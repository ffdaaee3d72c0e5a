package analysis

import (
	"fmt"

	"github.com/edgelimit/edge/analysis/page"
)

// Sections returns the report as parts of a page.
func (e *Enforcement) Sections() []page.Section {
	all := page.Section{
		Title: "What the rules would have done",
		Lead:  e.PoP.lead(),
		Figures: []page.Figure{
			{Name: "requests", Value: page.Grouped(e.Requests), Note: "of " + page.Count(e.Clients, "client")},
			{Name: "refused", Value: page.Grouped(e.Refused), Note: fmt.Sprintf("%.3g%% of the requests", percent(e.Refused, e.Requests))},
		},
	}
	for _, f := range []struct {
		name, note string
		n          uint64
	}{
		{"logged", "by rules that only log", e.Logged},
		{"denied", "by the deny list", e.Denied},
		{"allowed", "by the allow list", e.Allowed},
	} {
		if f.n > 0 {
			all.Figures = append(all.Figures, page.Figure{Name: f.name, Value: page.Grouped(f.n), Note: f.note})
		}
	}
	all.Figures = append(all.Figures, e.WronglyRefused.figure("wrongly refused"), e.WronglyAllowed.figure("wrongly allowed"))
	table := page.Table{Title: "Rules", Columns: []page.Column{
		{Name: "rule"}, {Name: "action"}, {Name: "requests", Numbers: true}, {Name: "refused", Numbers: true}, {Name: "%", Numbers: true}, {Name: "clients", Numbers: true},
		{Name: "mitigations", Numbers: true}, {Name: "by exact counts", Numbers: true}, {Name: "wrongly refused", Numbers: true}, {Name: "wrongly allowed", Numbers: true},
	}}
	sections := []page.Section{{}}
	for i := range e.Rules {
		r := &e.Rules[i]
		table.Rows = append(table.Rows, page.Row{Cells: []string{r.Rule, r.Action, page.Grouped(r.Matched), page.Grouped(r.Refused), fmt.Sprintf("%.2f", r.RefusedPct), page.Grouped(uint64(r.Clients)),
			page.Grouped(uint64(r.Mitigations)), page.Grouped(r.ExactRefused), page.Grouped(r.WronglyRefused.Requests), page.Grouped(r.WronglyAllowed.Requests)}})
		if r.Refused > 0 {
			sections = append(sections, r.section())
		}
	}
	all.Blocks = []page.Block{e.Timeline.plot("Requests and refusals"), table, e.causes()}
	sections[0] = all
	return sections
}

// lead says what the PoP was like.
func (p PoPReport) lead() string {
	return fmt.Sprintf("Decided by the code of the nodes. %s. A decision is wrong where exact counts, with nothing late or lost, decide otherwise.", p)
}

func (d Disagreement) figure(name string) page.Figure {
	return page.Figure{Name: name, Value: page.Grouped(d.Requests), Note: when(d.Requests > 0, "of %s", page.Count(d.Clients, "client"))}
}

// causes returns what wrong decisions come from.
func (e *Enforcement) causes() page.Block {
	bars := page.Bars{Title: "Why decisions are wrong", Parts: []string{"wrongly allowed", "wrongly refused"}}
	add := func(c cause, allowed, refused uint64) {
		bars.Rows = append(bars.Rows, page.Bar{Name: c.String(), Values: []uint64{allowed, refused}, Note: page.Grouped(allowed + refused)})
	}
	allowed, refused := e.WronglyAllowed.ByCause, e.WronglyRefused.ByCause
	add(byEstimate, allowed.Estimate, refused.Estimate)
	add(byLag, allowed.Lag, refused.Lag)
	add(byFailure, allowed.Failure, refused.Failure)
	return bars
}

// section returns what there is to say of a rule.
func (r *RuleEnforcement) section() page.Section {
	verb := "refused"
	if r.Action == "log" {
		verb = "would refuse"
	}
	s := page.Section{
		Title: "Rule " + r.Rule,
		Figures: []page.Figure{
			{Name: verb, Value: page.Grouped(r.Refused), Note: fmt.Sprintf("%.3g%% of %s requests", r.RefusedPct, page.Grouped(r.Matched))},
			{Name: "clients", Value: page.Grouped(uint64(r.Clients))},
			{Name: "mitigations", Value: page.Grouped(uint64(r.Mitigations)), Note: when(r.Mitigations > 0, "median %v, longest %v", lasting(r.Mitigated.MedianS), lasting(r.Mitigated.MaxS))},
			r.WronglyRefused.figure("wrongly refused"),
			r.WronglyAllowed.figure("wrongly allowed"),
		},
	}
	if r.FirstRefusal != nil {
		s.Lead = fmt.Sprintf("Action: %s. The first request of these was at %s UTC.", r.Action, clock(*r.FirstRefusal))
	}
	s.Blocks = []page.Block{
		clientBars("Clients with the most refusals", r.TopClients, r.Refused),
		pathBars("Paths with the most refusals", r.TopPaths, r.Refused),
	}
	return s
}

// clientBars shows clients with their shares of all requests that are meant.
func clientBars(title string, top []TopClient, all uint64) page.Block {
	bars := page.Bars{Title: title, Note: "share of all", Refusals: true}
	for _, c := range top {
		bars.Rows = append(bars.Rows, shareBar(c.Client, c.Requests, all))
	}
	return bars
}

// pathBars is clientBars for paths.
func pathBars(title string, top []TopPath, all uint64) page.Block {
	bars := page.Bars{Title: title, Note: "share of all", Refusals: true}
	for _, p := range top {
		bars.Rows = append(bars.Rows, shareBar(p.Path, p.Requests, all))
	}
	return bars
}

func shareBar(name string, n, all uint64) page.Bar {
	return page.Bar{Name: name, Values: []uint64{n}, Note: fmt.Sprintf("%s (%.1f%%)", page.Grouped(n), percent(n, all))}
}
