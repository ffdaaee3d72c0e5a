package page

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/operate"
)

//go:embed parts.html
var source string

var tree = template.Must(template.New("parts").Funcs(template.FuncMap{
	"grouped": chart.Grouped[int],
	"left":    left,
	"ends":    ends,
	"bar":     bar,
	"rate":    rate,
	"hundred": func(share float64) float64 { return 100 * share },
	"period":  func(seconds float64) string { return chart.Span(time.Duration(seconds * float64(time.Second))) },
	"micros":  func(period int64) string { return chart.Span(time.Duration(period) * time.Microsecond) },
	"percent": func(share float64) string {
		return strings.TrimSuffix(strconv.FormatFloat(100*share, 'f', 1, 64), ".0") + "%"
	},
	"clock":   func(t time.Time) string { return t.UTC().Format("2 Jan 15:04:05 UTC") },
	"short":   func(key string) string { return key[:min(len(key), 12)] },
	"release": func(version string) string { return strings.SplitN(version, " ", 2)[0] },
	"words":   func(action string) string { return strings.ReplaceAll(action, "_", " ") },
}).Parse(source))

// left formats the time that remains in the same way as the script that counts it down.
func left(seconds float64) string {
	s := int64(max(0, math.Ceil(seconds)))
	d, h, m := s/86400, s/3600%24, s/60%60
	switch {
	case d > 0:
		return fmt.Sprintf("%dd %dh", d, h)
	case h > 0:
		return fmt.Sprintf("%dh %02dm", h, m)
	case m > 0:
		return fmt.Sprintf("%dm %02ds", m, s%60)
	}
	return fmt.Sprintf("%ds", s)
}

// write renders a part. It escapes text from outside, and makes control characters visible.
func write(id, name string, data any) part {
	var b strings.Builder
	if err := tree.ExecuteTemplate(&b, name, data); err != nil {
		panic("page: " + err.Error()) // the templates are tested with each kind of data
	}
	return part{id, chart.Visible(b.String())}
}

// Lifetimes of parts that all viewers share. Such parts are rendered again each second, each time the node is queried,
// or after each sample of the metrics, so that many rules or viewers cost little.
const (
	perSecond = iota
	perLook
	perSample
	lifetimes
)

// parts returns the parts that v shows at now.
func (p *Page) parts(v view, now time.Time) []part {
	parts := p.shared(v, now)
	if v.target == "" {
		return append(parts, part{ID: "story"})
	}
	return append(parts, p.story(v.target, now)) // without mu, because it may wait for a shard
}

func (p *Page) shared(v view, now time.Time) (parts []part) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.renew(now)
	for _, m := range []struct {
		lifetime int
		name     string
		make     func() part
	}{
		{perLook, "node", func() part { return write("node", "node", p.status) }},
		{perLook, "facts", func() part { return write("facts", "facts", p.facts()) }},
		{perSample, fmt.Sprint("traffic ", v.span), func() part { return p.traffic(v.span) }},
		{perSample, fmt.Sprint("rules ", v.span), func() part { return p.rules(v.span) }},
		{perLook, fmt.Sprintf("list %#v %q", v.query, v.search), func() part { return p.mitigations(v, now) }},
		{perLook, "names", func() part { return write("rule-names", "names", p.names) }},
		{perSecond, "near", p.near},
		{perLook, "pop", p.pop},
		{perLook, "changes", func() part { return write("changes", "changes", p.operator.Changes().Changes) }},
	} {
		made, ok := p.made[m.lifetime][m.name]
		if !ok {
			made = m.make()
			p.made[m.lifetime][m.name] = made
		}
		parts = append(parts, made)
	}
	return parts
}

// renew discards shared parts that may have changed. mu must be held.
func (p *Page) renew(now time.Time) {
	if second := now.Unix(); second != p.second || p.made[perLook] == nil {
		p.second, p.made[perSecond] = second, map[string]part{}
		before := p.changed
		p.changed = p.operator.Changed()
		if p.changed != before || p.made[perLook] == nil || now.Sub(p.looked).Abs() >= operate.SampleEvery {
			p.looked, p.made[perLook], p.status = now, map[string]part{}, p.operator.Status()
		}
	}
	if step := p.history.Sampled(); step != p.sampled || p.made[perSample] == nil {
		p.sampled, p.made[perSample] = step, map[string]part{}
	}
}

// facts returns the figures that operators look for first: those of the whole PoP, then those of this node.
func (p *Page) facts() chart.Facts {
	nodes, shards := p.operator.Nodes().Nodes, p.operator.Shards().Shards
	mitigated, dry, up, ready := 0, 0, 0, 0
	var requests, refused float64
	for _, n := range p.status.Mitigations {
		mitigated += n
	}
	for _, n := range p.status.Logged {
		dry += n
	}
	for _, s := range shards {
		if s.InRing && s.StateText() == "up" {
			up++
		}
	}
	for _, n := range nodes {
		requests, refused = requests+n.Requests, refused+n.Refused
		if n.State == "ready" {
			ready++
		}
	}
	own, ownRefused := p.history.Rates()
	lag, note := p.lag()
	dryRuns := ""
	if dry > 0 {
		dryRuns = "; only in dry runs: " + chart.Grouped(dry)
	}
	return chart.Facts{
		{Name: "Requests", Value: rate(requests), Note: "in the whole PoP; at this node " + rate(float64(own))},
		{Name: "Refused", Value: rate(refused), Note: share(refused, requests) + " of the requests; at this node " + rate(float64(ownRefused))},
		{Name: "Mitigated keys", Value: chart.Grouped(mitigated), Note: "in the whole PoP" + dryRuns},
		{Name: "Nodes ready", Value: fmt.Sprintf("%d of %d", ready, len(nodes)), Note: fmt.Sprintf("%d of %s up", up, chart.Count(len(shards), "shard"))},
		{Name: "Counted within", Value: lag, Note: "at this node; " + note},
	}
}

// rate formats a rate per second.
func rate(n float64) string {
	if n < 10 {
		return strings.TrimSuffix(strconv.FormatFloat(n, 'f', 1, 64), ".0") + "/s"
	}
	return chart.Grouped(int(n)) + "/s"
}

func share(part, whole float64) string { return chart.Percent(uint64(10*part), uint64(10*whole)) }

// lag describes the lag of counting.
func (p *Page) lag() (value, note string) {
	status := &p.status
	if status.Lag >= 1 {
		return left(status.Lag), "or more; waiting for a shard: " + chart.Count(status.BacklogKeys, "key")
	}
	half, most := p.history.Within(.5), p.history.Within(.99)
	if most == 0 {
		return "–", "nothing was counted in the last minute"
	}
	return within(most), "99% in the last minute; half within " + within(half)
}

func within(d time.Duration) string {
	switch {
	case d < 0:
		return "over 10 s"
	case d < time.Second:
		return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', -1, 64) + " ms"
	}
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " s"
}

// traffic draws all requests of the node.
func (p *Page) traffic(span int) part {
	s, all := operate.Spans[span], p.history.All(span)
	return part{"traffic", string(chart.HTML(chart.Area{Title: "All requests", Note: "at this node, in steps of " + chart.Span(s.Step) + "; UTC", From: all.From, Step: s.Step,
		Requests: all.Counted, Refused: all.Refused, Name: "requests in " + chart.Span(s.Step)}))}
}

// shownRules is the number of rules that are drawn and listed: those with the most refusals, then the most requests.
const shownRules = 25

// shownNames is the maximum number of rules that the filter suggests.
const shownNames = 200

// ruleRow is a rule with its statistics.
type ruleRow struct {
	operate.Rule
	steps            operate.Steps
	Counted, Refused int // in the span
}

// rules renders what the rules have counted and refused in a span.
func (p *Page) rules(span int) part {
	var rows []ruleRow
	for _, r := range p.operator.Rules().Rules {
		steps := p.history.Rule(r.Rule, span)
		counted, refused := steps.Sums()
		rows = append(rows, ruleRow{r, steps, int(counted), int(refused)})
	}
	slices.SortStableFunc(rows, func(a, b ruleRow) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Mitigations, a.Mitigations), cmp.Compare(b.Counted, a.Counted))
	})
	p.names = nil
	for _, r := range rows[:min(len(rows), shownNames)] {
		p.names = append(p.names, r.Rule.Rule)
	}
	more := max(0, len(rows)-shownRules)
	rows = rows[:len(rows)-more]
	drawing := chart.Strips{Title: "By rule", Note: "requests that were counted for the rule, and that it refused, at this node; the stronger the color, the more",
		What: "rule", PassedName: "counted", Step: operate.Spans[span].Step}
	for _, r := range rows {
		drawing.From = r.steps.From
		drawing.Rows = append(drawing.Rows, chart.Strip{Name: r.Rule.Rule, Passed: r.steps.Counted, Refused: r.steps.Refused})
	}
	return write("rules", "rules", struct {
		Rows    []ruleRow
		Span    string
		More    int
		Drawing template.HTML
	}{rows, operate.Spans[span].Words, more, chart.HTML(drawing)})
}

const shownNear = 20

func (p *Page) near() part { return write("near", "near", p.operator.Near(shownNear)) }

// pop renders the state of the PoP, as this node knows it.
func (p *Page) pop() part {
	value, note := p.lag()
	return write("pop", "pop", struct {
		operate.Status
		Within, Note string
		Dropped      int
		Shards       []operate.Shard
		Nodes        []operate.Node
	}{p.status, value, note, int(p.history.Dropped()), p.operator.Shards().Shards, p.operator.Nodes().Nodes})
}

// story renders the state of a client.
func (p *Page) story(target string, now time.Time) part {
	var e operate.Explanation
	values, err := operate.ParseTarget(target)
	if err == nil {
		e, err = p.operator.Explain(values)
	}
	problem := ""
	if err != nil {
		e, problem = operate.Explanation{}, sentence(err)
	}
	return write("story", "story", struct {
		Target, Problem string
		Values          map[string]string
		Now             time.Time
		operate.Explanation
	}{target, problem, values, now, e})
}

// bar returns how much of a threshold is used, in percent.
func bar(l operate.LimitState) int {
	if l.Threshold == 0 {
		return 100
	}
	return int(min(100, 100*max(0, l.Estimate)/float64(l.Threshold)))
}
