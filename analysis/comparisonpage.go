package analysis

import (
	"fmt"

	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/internal/chart"
)

// Document returns the comparison as a document.
func (c *Comparison) Document() chart.Document {
	d := chart.Document{Title: "What the new rules would change",
		Lead: figure.Lead(c.Requests, c.Clients, c.From, c.To), Data: c}
	all := chart.Section{Title: "Both sets of rules"}
	if most := c.MaxNewlyRefused; most != nil {
		o := chart.Check{OK: c.Check() == nil, Text: "failed"}
		if o.OK {
			o.Text = "passed"
		}
		o.Text += fmt.Sprintf(": %s newly refused; the maximum is %s", chart.Count(c.NewlyRefused.Requests, "request"),
			chart.Grouped(*most))
		all.Blocks = append(all.Blocks, o)
	}
	var facts chart.Facts
	facts.Add("refused by the new rules", c.Refused, "%s of the requests", chart.Percent(c.Refused, c.Requests))
	facts.Add("refused by the old rules", c.BaseRefused, "%s of the requests", chart.Percent(c.BaseRefused, c.Requests))
	facts = append(facts, c.NewlyRefused.fact("newly refused", "old"), c.NewlyAllowed.fact("newly allowed", "new"))
	all.Blocks = append(all.Blocks,
		chart.Paragraph("Both run on identical PoPs, with the nodes' own code. "+c.PoP.String()), facts)
	d.Sections = append(d.Sections, all)
	for i, change := range []*Change{&c.NewlyRefused, &c.NewlyAllowed} {
		if change.Requests > 0 {
			d.Sections = append(d.Sections, change.section([]string{"Newly refused", "Newly allowed"}[i],
				[]chart.Color{chart.Red, chart.Blue}[i]))
		}
	}
	return d
}

func (c *Change) fact(name, others string) chart.Fact {
	return chart.Fact{Name: name, Value: chart.Grouped(c.Requests),
		Note: fmt.Sprintf("from %s, %s of which the %s rules never refuse",
			chart.Count(c.Clients, "client"), chart.Grouped(c.Only), others)}
}

func (c *Change) section(title string, color chart.Color) chart.Section {
	requests := chart.Key{Name: "requests", Color: color}
	rules := chart.Bars("By rule", "rule", requests)
	for _, r := range c.Rules {
		rules.AddShare(r.Rule, r.Requests, c.Requests)
	}
	return chart.Section{Title: title, Blocks: append([]chart.Block{
		chart.Paragraph("The first was at " + figure.Clock(*c.First) + " UTC."), rules,
	}, topBars("of these requests", requests, c.TopClients, c.TopPaths, c.Requests)...)}
}
