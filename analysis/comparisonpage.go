package analysis

import (
	"fmt"

	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/internal/chart"
)

// Document returns the comparison as a document.
func (c *Comparison) Document() chart.Document {
	d := chart.Document{Title: "What the new rules would change", Lead: chart.Count(c.Requests, "request") + " of " + chart.Count(c.Clients, "client") + figure.Between(c.From, c.To), Data: c}
	all := chart.Section{Title: "Both sets of rules"}
	if most := c.MaxNewlyRefused; most != nil {
		o := chart.Outcome{OK: c.Check() == nil, Text: fmt.Sprintf("passed: %s newly refused; the maximum is %s", chart.Count(c.NewlyRefused.Requests, "request"), chart.Grouped(*most))}
		if !o.OK {
			o.Text = fmt.Sprintf("failed: %s newly refused; the maximum is %s", chart.Count(c.NewlyRefused.Requests, "request"), chart.Grouped(*most))
		}
		all.Blocks = append(all.Blocks, o)
	}
	all.Blocks = append(all.Blocks, chart.Paragraph("Both run on identical PoPs, with the nodes' own code. "+c.PoP.String()), chart.Facts{
		{Name: "refused by the new rules", Value: chart.Grouped(c.Refused), Note: chart.Percent(c.Refused, c.Requests) + " of the requests"},
		{Name: "refused by the old rules", Value: chart.Grouped(c.BaseRefused), Note: chart.Percent(c.BaseRefused, c.Requests) + " of the requests"},
		c.NewlyRefused.fact("newly refused", "old"), c.NewlyAllowed.fact("newly allowed", "new"),
	})
	d.Sections = []chart.Section{all}
	for _, part := range []struct {
		title    string
		change   *Change
		refusals bool
	}{{"Newly refused", &c.NewlyRefused, true}, {"Newly allowed", &c.NewlyAllowed, false}} {
		if part.change.Requests > 0 {
			d.Sections = append(d.Sections, part.change.section(part.title, part.refusals))
		}
	}
	return d
}

func (c *Change) fact(name, others string) chart.Fact {
	return chart.Fact{Name: name, Value: chart.Grouped(c.Requests), Note: fmt.Sprintf("from %s, %s of which the %s rules never refuse", chart.Count(c.Clients, "client"), chart.Grouped(c.Only), others)}
}

func (c *Change) section(title string, refusals bool) chart.Section {
	rules := chart.Bars{Title: "By rule", What: "rule", Parts: []string{"requests"}, Refusals: refusals, Listed: true}
	for _, r := range c.Rules {
		rules.Rows = append(rules.Rows, chart.Bar{Name: r.Rule, Values: []uint64{r.Requests}, Share: chart.Percent(r.Requests, c.Requests)})
	}
	return chart.Section{Title: title, Blocks: []chart.Block{
		chart.Paragraph("The first was at " + figure.Clock(*c.First) + " UTC."), rules,
		clientBars("of these requests", "requests", refusals, c.TopClients, c.Requests),
		pathBars("of these requests", "requests", refusals, c.TopPaths, c.Requests),
	}}
}
