package analysis

import (
	"fmt"

	"github.com/edgelimit/edge/analysis/page"
)

// Sections returns the report as parts of a page.
func (c *Comparison) Sections() []page.Section {
	all := page.Section{
		Title: "What the new rules would do otherwise",
		Lead:  fmt.Sprintf("Two sets of rules are played through two equal PoPs by the code of the nodes. %s.", c.PoP),
		Figures: []page.Figure{
			{Name: "requests", Value: page.Grouped(c.Requests), Note: "of " + page.Count(c.Clients, "client")},
			{Name: "refused by the new rules", Value: page.Grouped(c.Refused), Note: fmt.Sprintf("%.3g%% of the requests", percent(c.Refused, c.Requests))},
			{Name: "refused by the old rules", Value: page.Grouped(c.BaseRefused), Note: fmt.Sprintf("%.3g%% of the requests", percent(c.BaseRefused, c.Requests))},
			c.NewlyRefused.figure("newly refused"),
			c.NewlyAllowed.figure("newly allowed"),
		},
	}
	if n := c.MaxNewlyRefused; n != nil {
		all.Figures[3].Note += fmt.Sprintf("; at most %s may be", page.Grouped(*n))
	}
	sections := []page.Section{all}
	for _, part := range []struct {
		title string
		of    *Change
	}{{"Newly refused", &c.NewlyRefused}, {"Newly allowed", &c.NewlyAllowed}} {
		if part.of.Requests > 0 {
			sections = append(sections, part.of.section(part.title))
		}
	}
	return sections
}

func (c *Change) figure(name string) page.Figure {
	return page.Figure{Name: name, Value: page.Grouped(c.Requests), Note: fmt.Sprintf("of %s, %s only so", page.Count(c.Clients, "client"), page.Grouped(uint64(c.Only)))}
}

func (c *Change) section(title string) page.Section {
	rules := page.Bars{Title: "By rule", Note: "share of all"}
	for _, r := range c.Rules {
		rules.Rows = append(rules.Rows, shareBar(r.Rule, r.Requests, c.Requests))
	}
	s := page.Section{Title: title, Blocks: []page.Block{rules, clientBars("Clients", c.TopClients, c.Requests), pathBars("Paths", c.TopPaths, c.Requests)}}
	if c.First != nil {
		s.Lead = fmt.Sprintf("The first request was at %s UTC.", clock(*c.First))
	}
	return s
}
