package analysis

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/internal/prose"
)

// Document returns the report as a document. Of the thresholds that affect no clients, it shows only the first.
func (r *SweepReport) Document() chart.Document {
	d := chart.Document{Title: "Choosing a threshold", Lead: chart.Count(r.Requests, "request"), Data: r}
	if r.Requests > 0 {
		d.Lead += figure.Between(r.From, r.To)
	}
	all := chart.Section{Title: "Recommended thresholds", Blocks: []chart.Block{
		chart.Paragraph(fmt.Sprintf("Each threshold is tried as a rule by itself, on every request%s. "+
			"The recommended one is the smallest that affects (refuses requests of) at most %.4g%% of the clients. "+
			"Top 1 and top 10 are the shares of the refused requests made by the one client and the ten clients "+
			"with the most refusals.",
			chart.When(r.MitigationTimeoutS > 0, ", with mitigations of at least %s", figure.Period(r.MitigationTimeoutS)),
			r.MaxClientsPct)),
	}}
	var facts chart.Facts
	for i := range r.Curves {
		c := &r.Curves[i]
		d.Sections = append(d.Sections, c.section())
		f := chart.Fact{Name: c.name(), Value: "none", Note: "every threshold affects more: try higher ones"}
		if c.Clients == 0 {
			f.Note = "no request was counted"
		}
		if cell := c.recommended(); cell != nil {
			f.Value = chart.Grouped(cell.Threshold)
			f.Note = fmt.Sprintf("affects %s of %s (%.3g%%), refuses %.3g%% of requests",
				chart.Grouped(cell.Clients), chart.Count(c.Clients, "client"), cell.ClientsPct, cell.RefusedPct)
		}
		f.Note += chart.When(c.Best && len(r.Curves) > 1, "; best period")
		facts = append(facts, f)
	}
	all.Blocks = append(all.Blocks, facts)
	for curves := range figure.Runs(r.Curves,
		func(a, b *Curve) bool { return slices.Equal(a.Characteristics, b.Characteristics) }) {
		all.Blocks = append(all.Blocks, r.plot(curves), tradeOff(curves))
	}
	d.Sections = append(slices.Insert(d.Sections, 0, all), r.rules())
	return d
}

// rules returns the best limits of each list of characteristics as rules that only log.
func (r *SweepReport) rules() chart.Section {
	text := "rules:\n"
	for i := range r.Curves {
		c := &r.Curves[i]
		if cell := c.recommended(); !c.Best || cell.Refused == 0 {
			continue
		}
		names := prose.Texts(c.Characteristics, func(name string) string {
			if !plainName.MatchString(name) {
				return strconv.Quote(name)
			}
			return name
		})
		text += fmt.Sprintf("  - id: sweep-%d\n    characteristics: [%s]\n    limits: [{threshold: %d, period: %s}]\n",
			strings.Count(text, "id:")+1, strings.Join(names, ", "), c.Recommended, figure.Period(c.PeriodS))
		text += chart.When(r.MitigationTimeoutS > 0, "    mitigation_timeout: %s\n", figure.Period(r.MitigationTimeoutS)) +
			"    action: log\n"
	}
	var block chart.Block = chart.Code{Title: "it only logs; remove action: log to refuse requests", Text: text}
	if text == "rules:\n" {
		block = chart.Paragraph(fmt.Sprintf("None: no recommended threshold refuses a request of this log. "+
			"Try other thresholds, a log with more traffic, or allow more than %.4g%% of the clients to be affected.",
			r.MaxClientsPct))
	}
	return chart.Section{Title: "The rule to start with", Blocks: []chart.Block{block}}
}

var plainName = regexp.MustCompile(`^[a-z][a-z0-9:_-]*$`)

// plot plots the number of clients that the thresholds of curves with the same characteristics affect.
func (r *SweepReport) plot(curves []Curve) chart.Block {
	first := &curves[0]
	plot := chart.Lines{
		Title: "Clients affected by a threshold, counted by " + first.characteristics(),
		Note: "Clients whose peak exceeds the threshold. Large dot: recommended. " +
			"Ring: the knee, where the curve bends most, with both axes logarithmic.",
		X: chart.Axis{Name: "threshold, requests per period", Scale: chart.Logarithmic},
		Y: chart.Axis{Name: "clients affected", Scale: chart.Logarithmic}, What: "period",
	}
	if budget := r.MaxClientsPct / 100 * float64(first.Clients); budget >= 1 {
		plot.Cut = budget
		plot.CutName = fmt.Sprintf("%.4g%% of %s", r.MaxClientsPct, chart.Count(first.Clients, "client"))
	}
	for i := range curves {
		c := &curves[i]
		c.addLine(&plot, c.shown(), func(cell *Cell) chart.LinePoint {
			return chart.LinePoint{X: float64(cell.Threshold), Y: float64(cell.Clients), Knee: cell.Threshold == c.Knee}
		})
	}
	return plot
}

// tradeOff plots the share of refused traffic against the number of affected clients.
func tradeOff(curves []Curve) chart.Block {
	plot := chart.Lines{
		Title: "Refused traffic against affected clients, counted by " + curves[0].characteristics(),
		Note:  "Each dot is a threshold. Upper left is better: more refused, fewer clients affected.",
		X:     chart.Axis{Name: "clients affected, %", Scale: chart.Logarithmic}, Y: chart.Axis{Name: "requests refused, %"},
		What: "period",
	}
	for i := range curves {
		affecting := slices.DeleteFunc(slices.Clone(curves[i].Cells), func(cell Cell) bool { return cell.Clients == 0 })
		curves[i].addLine(&plot, affecting, func(cell *Cell) chart.LinePoint {
			return chart.LinePoint{X: cell.ClientsPct, Y: cell.RefusedPct}
		})
	}
	return plot
}

// addLine adds a line with the points of cells. If it would hide another line, the two are merged.
func (c *Curve) addLine(plot *chart.Lines, cells []Cell, point func(*Cell) chart.LinePoint) {
	l := chart.Line{Name: figure.Period(c.PeriodS)}
	for i := range cells {
		p := point(&cells[i])
		p.Tip = c.tip(&cells[i])
		if cells[i].Threshold == c.Recommended {
			p.Name = chart.Grouped(c.Recommended) + " in " + figure.Period(c.PeriodS)
		}
		l.Points = append(l.Points, p)
	}
	for i := range plot.Lines {
		other := &plot.Lines[i]
		same := func(a, b chart.LinePoint) bool { return a.X == b.X && a.Y == b.Y }
		if slices.EqualFunc(l.Points, other.Points, same) {
			other.Name += ", " + l.Name
			return
		}
	}
	plot.Lines = append(plot.Lines, l)
}

func (c *Curve) tip(cell *Cell) string {
	return fmt.Sprintf("%s in %s\naffects %s (%.3g%%)\nrefuses %s (%.3g%%)", chart.Grouped(cell.Threshold),
		figure.Period(c.PeriodS),
		chart.Count(cell.Clients, "client"), cell.ClientsPct, chart.Count(cell.Refused, "request"), cell.RefusedPct)
}

func (c *Curve) characteristics() string { return strings.Join(c.Characteristics, "+") }
func (c *Curve) name() string            { return c.characteristics() + " in " + figure.Period(c.PeriodS) }

// shown returns the cells up to the first that affects no client, and the recommended one.
func (c *Curve) shown() []Cell {
	end := slices.IndexFunc(c.Cells, func(cell Cell) bool { return cell.Clients == 0 && cell.Threshold >= c.Recommended })
	if end < 0 {
		return c.Cells
	}
	return c.Cells[:end+1]
}

// recommended returns the cell of the recommended threshold, or nil if there is none.
func (c *Curve) recommended() *Cell {
	i := slices.IndexFunc(c.Cells, func(cell Cell) bool { return cell.Threshold == c.Recommended })
	if i < 0 {
		return nil
	}
	return &c.Cells[i]
}

func (c *Curve) section() chart.Section {
	s := chart.Section{Title: c.name() + ": " + chart.Count(c.Clients, "client")}
	if c.Clients == 1 {
		s.Blocks = append(s.Blocks,
			chart.Paragraph("All requests have the same "+c.characteristics()+": perhaps the log does not contain it."))
	}
	table := chart.Table{Columns: chart.Columns("threshold", "clients affected", "%", "requests refused", "%", "top 1",
		"top 10")}
	table.Columns[0].Numbers = true
	for _, cell := range c.shown() {
		row := table.Add(cell.Threshold, cell.Clients, fmt.Sprintf("%.3f", cell.ClientsPct), cell.Refused,
			fmt.Sprintf("%.2f", cell.RefusedPct),
			chart.When(cell.Refused > 0, "%.1f%%", cell.Top1Pct), chart.When(cell.Refused > 0, "%.1f%%", cell.Top10Pct))
		var marks []string
		if row.Strong = cell.Threshold == c.Recommended; row.Strong {
			marks = append(marks, "recommended")
		}
		if cell.Threshold == c.Knee {
			marks = append(marks, "knee")
		}
		row.Note = strings.Join(marks, ", ")
	}
	s.Blocks = append(s.Blocks, table)
	if cell := c.recommended(); cell != nil && c.Timeline != nil {
		limit := chart.Grouped(cell.Threshold) + " in " + figure.Period(c.PeriodS)
		bars := chart.Bars("Most refused at "+limit, "client", chart.Key{Name: "refused", Color: chart.Red})
		for _, source := range cell.Top {
			bars.AddShare(source.Name, source.Refused, cell.Refused)
		}
		s.Blocks = append(s.Blocks, c.Timeline.Plot("What "+limit+" would have refused"), bars)
	}
	return s
}
