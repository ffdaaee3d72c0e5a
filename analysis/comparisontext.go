package analysis

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/edgelimit/edge/analysis/page"
)

// WriteText writes the comparison for people at a terminal.
func (r *Comparison) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s%s\n", page.Count(r.Requests, "request"), page.Count(r.Clients, "client"), between(r.From, r.To))
	if !r.PoP.simplest() {
		fmt.Fprintf(&b, "%s\n", r.PoP)
	}
	fmt.Fprintf(&b, "refused: %s by the new rules, %s by the old ones\n", page.Grouped(r.Refused), page.Grouped(r.BaseRefused))
	r.NewlyRefused.write(&b, "newly refused", "the old rules")
	r.NewlyAllowed.write(&b, "newly allowed", "the new rules")
	if r.MaxNewlyRefused != nil {
		fmt.Fprintf(&b, "\n%s\n", r.outcome())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (c Change) write(b *strings.Builder, what, others string) {
	fmt.Fprintf(b, "\n%s: %s of %s", what, page.Count(c.Requests, "request"), page.Count(c.Clients, "client"))
	if c.Requests == 0 {
		b.WriteByte('\n')
		return
	}
	fmt.Fprintf(b, ", to %d of whom %s refuse nothing; the first at %s\n", c.Only, others, clock(*c.First))
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, rule := range c.Rules {
		fmt.Fprintf(t, "  rule\t%s\t%s\n", printable(rule.Rule), page.Count(rule.Requests, "request"))
	}
	writeTop(t, c.TopClients, c.TopPaths)
	t.Flush()
}

// writeTop writes rows of clients and paths.
func writeTop(w io.Writer, clients []TopClient, paths []TopPath) {
	for _, c := range clients {
		fmt.Fprintf(w, "  client\t%s\t%s\tsince %s\n", printable(c.Client), page.Count(c.Requests, "request"), clock(c.First))
	}
	for _, p := range paths {
		fmt.Fprintf(w, "  path\t%s\t%s\n", printable(p.Path), page.Count(p.Requests, "request"))
	}
}

// outcome says whether the check has passed.
func (r *Comparison) outcome() string {
	most := page.Grouped(*r.MaxNewlyRefused)
	if r.Check() == nil {
		return fmt.Sprintf("passed: %s newly refused, %s may be", page.Count(r.NewlyRefused.Requests, "request"), most)
	}
	return fmt.Sprintf("failed: %s newly refused, only %s may be", page.Count(r.NewlyRefused.Requests, "request"), most)
}

// WriteMarkdown writes the comparison for a page such as a pull request's.
func (r *Comparison) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("### What the new rules would have done\n\n")
	if r.MaxNewlyRefused != nil {
		mark := ":white_check_mark:"
		if r.Check() != nil {
			mark = ":x:"
		}
		fmt.Fprintf(&b, "%s **%s**\n\n", mark, r.outcome())
	}
	fmt.Fprintf(&b, "%s of %s%s.\n\n", page.Count(r.Requests, "request"), page.Count(r.Clients, "client"), between(r.From, r.To))
	if !r.PoP.simplest() {
		fmt.Fprintf(&b, "%s.\n\n", r.PoP)
	}
	b.WriteString("| | requests | clients | refused nothing by the other rules |\n|---|--:|--:|--:|\n")
	fmt.Fprintf(&b, "| refused by the old rules | %s | | |\n", page.Grouped(r.BaseRefused))
	fmt.Fprintf(&b, "| refused by the new rules | %s | | |\n", page.Grouped(r.Refused))
	for _, row := range []struct {
		name string
		Change
	}{{"**newly refused**", r.NewlyRefused}, {"newly allowed", r.NewlyAllowed}} {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", row.name, page.Grouped(row.Requests), page.Grouped(uint64(row.Clients)), page.Grouped(uint64(row.Only)))
	}
	r.NewlyRefused.markdown(&b, "Newly refused")
	r.NewlyAllowed.markdown(&b, "Newly allowed")
	_, err := io.WriteString(w, b.String())
	return err
}

func (c Change) markdown(b *strings.Builder, title string) {
	if c.Requests == 0 {
		return
	}
	fmt.Fprintf(b, "\n<details><summary>%s: by rule, client and path</summary>\n\n| | | requests | first |\n|---|---|--:|---|\n", title)
	for _, rule := range c.Rules {
		fmt.Fprintf(b, "| rule | %s | %s | |\n", codeSpan(rule.Rule), page.Grouped(rule.Requests))
	}
	for _, one := range c.TopClients {
		fmt.Fprintf(b, "| client | %s | %s | %s |\n", codeSpan(one.Client), page.Grouped(one.Requests), clock(one.First))
	}
	for _, p := range c.TopPaths {
		fmt.Fprintf(b, "| path | %s | %s | |\n", codeSpan(p.Path), page.Grouped(p.Requests))
	}
	b.WriteString("\n</details>\n")
}
