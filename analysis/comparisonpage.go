package analysis

import (
	"fmt"

	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/analysis/page"
)

// Document returns the comparison as a document.
func (c *Comparison) Document() page.Document {
	d := page.Document{Title: "What the new rules would change", Lead: page.Count(c.Requests, "request") + " of " + page.Count(c.Clients, "client") + figure.Between(c.From, c.To), Data: c}
	all := page.Section{Title: "Both sets of rules"}
	if most := c.MaxNewlyRefused; most != nil {
		o := page.Outcome{OK: c.Check() == nil, Text: fmt.Sprintf("passed: %s newly refused; the maximum is %s", page.Count(c.NewlyRefused.Requests, "request"), page.Grouped(*most))}
		if !o.OK {
			o.Text = fmt.Sprintf("failed: %s newly refused; the maximum is %s", page.Count(c.NewlyRefused.Requests, "request"), page.Grouped(*most))
		}
		all.Blocks = append(all.Blocks, o)
	}
	all.Blocks = append(all.Blocks, page.Paragraph("Both run on identical PoPs, with the nodes' own code. "+c.PoP.String()), page.Facts{
		{Name: "refused by the new rules", Value: page.Grouped(c.Refused), Note: page.Percent(c.Refused, c.Requests) + " of the requests"},
		{Name: "refused by the old rules", Value: page.Grouped(c.BaseRefused), Note: page.Percent(c.BaseRefused, c.Requests) + " of the requests"},
		c.NewlyRefused.fact("newly refused", "old"), c.NewlyAllowed.fact("newly allowed", "new"),
	})
	d.Sections = []page.Section{all}
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

func (c *Change) fact(name, others string) page.Fact {
	return page.Fact{Name: name, Value: page.Grouped(c.Requests), Note: fmt.Sprintf("from %s, %s of which the %s rules never refuse", page.Count(c.Clients, "client"), page.Grouped(c.Only), others)}
}

func (c *Change) section(title string, refusals bool) page.Section {
	rules := page.Bars{Title: "By rule", What: "rule", Parts: []string{"requests"}, Refusals: refusals, Listed: true}
	for _, r := range c.Rules {
		rules.Rows = append(rules.Rows, page.Bar{Name: r.Rule, Values: []uint64{r.Requests}, Share: page.Percent(r.Requests, c.Requests)})
	}
	return page.Section{Title: title, Blocks: []page.Block{
		page.Paragraph("The first was at " + figure.Clock(*c.First) + " UTC."), rules,
		clientBars("of these requests", "requests", refusals, c.TopClients, c.Requests),
		pathBars("of these requests", "requests", refusals, c.TopPaths, c.Requests),
	}}
}
