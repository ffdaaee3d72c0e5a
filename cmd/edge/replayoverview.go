package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/decisions"
	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/pop/setting"
)

// An overview summarizes a log. It is the answer to a [summary].
type overview struct {
	Requests int64           `json:"requests"`
	Clients  int             `json:"clients"`
	From     time.Time       `json:"from"`
	To       time.Time       `json:"to"`
	Busiest  []busyClient    `json:"busiest"`
	Next     []suggestedNext `json:"next,omitempty"`
}

// A busyClient is one of the clients with the most requests.
type busyClient struct {
	Client   string  `json:"client"`
	Requests int64   `json:"requests"`
	Pct      float64 `json:"pct"`             // of all requests
	Most     int64   `json:"most_per_minute"` // in a clock minute
}

// A suggestedNext is a command to try next.
type suggestedNext struct {
	Command string `json:"command"`
	Says    string `json:"says"`
}

// A summary is the question of edge replay without a command. reading are the settings with which logs are read.
type summary struct {
	flags   *pflag.FlagSet
	reading []setting.Setting
}

func (s summary) prepare() (accesslog.Fields, error) { return accesslog.Addr, nil }

func (s summary) answer(ctx context.Context, in *input, to destination) error {
	o, err := newOverview(ctx, in, to.name)
	if err != nil {
		return err
	}
	o.suggest(in.files, s.how())
	return to.write(in, o.document())
}

func (s summary) decided(log *decisions.Log) (*decisions.Report, error) { return log.Overview() }

func newOverview(ctx context.Context, in *input, name analysis.Namer) (*overview, error) {
	type tally struct{ requests, minute, inMinute, most int64 }
	clients := map[string]*tally{}
	err := in.entries(ctx, func(e *accesslog.Entry) error {
		c := clients[e.Client]
		if c == nil {
			c = new(tally)
			clients[strings.Clone(e.Client)] = c
		}
		if minute := e.Time / time.Minute.Microseconds(); c.requests == 0 || minute != c.minute {
			c.minute, c.inMinute = minute, 0
		}
		c.requests++
		c.inMinute++
		c.most = max(c.most, c.inMinute)
		return nil
	})
	if err != nil {
		return nil, err
	}
	s := in.stats()
	o := &overview{Requests: s.Entries, Clients: len(clients), From: time.UnixMicro(s.First).UTC(), To: time.UnixMicro(s.Last).UTC()}
	for name, c := range clients {
		o.Busiest = append(o.Busiest, busyClient{name, c.requests, 100 * float64(c.requests) / float64(s.Entries), c.most})
	}
	slices.SortFunc(o.Busiest, func(a, b busyClient) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Client, b.Client))
	})
	o.Busiest = o.Busiest[:min(10, len(o.Busiest))]
	for i := range o.Busiest {
		if name != nil {
			o.Busiest[i].Client = name(o.Busiest[i].Client)
		}
	}
	return o, nil
}

// how returns the flags with which the logs are read.
func (s summary) how() (how string) {
	for _, row := range s.reading {
		if f := s.flags.Lookup(row.Name); f.Changed && f.Name != "workers" && f.Name != "progress" {
			how += fmt.Sprintf(" --%s %s", f.Name, shellQuote(strings.Join(f.Value.(*flagValue).texts, ",")))
		}
	}
	return how
}

// tinyLog is the number of requests below which a log says nothing about limits.
const tinyLog = 10

// suggest adds commands that read files with the flags how.
func (o *overview) suggest(files []string, how string) {
	if o.Requests < tinyLog {
		return
	}
	named := shellQuoteAll(files)
	limit := 1
	for _, n := range []int{2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000} {
		if int64(n) < o.Busiest[0].Most {
			limit = n
		}
	}
	o.Next = []suggestedNext{
		{"edge replay sweep" + how + named, "which limits would affect almost no clients"},
		{fmt.Sprintf("edge replay accuracy --limit %d/1m%s%s", limit, how, named), "how often the estimate would decide differently from an exact count"},
		{fmt.Sprintf("echo 'rules: [{id: all, characteristics: [ip], limits: [{threshold: %d, period: 1m}], action: log}]' > rules.yaml", limit), "a rule to start with, which only logs"},
		{"edge replay rules" + how + " rules.yaml" + named, "which clients it would have refused"},
	}
}

func (o *overview) document() chart.Document {
	when := "at " + o.From.Format(time.DateTime)
	if !o.From.Equal(o.To) {
		when = fmt.Sprintf("from %s to %s", o.From.Format(time.DateTime), o.To.Format(time.DateTime))
	}
	busiest := chart.Table{Columns: chart.Columns("client", "requests", "of all", "most in a minute")}
	for _, c := range o.Busiest {
		busiest.Rows = append(busiest.Rows, chart.Row{Cells: []string{c.Client, chart.Grouped(c.Requests), fmt.Sprintf("%.1f%%", c.Pct), chart.Grouped(c.Most)}})
	}
	d := chart.Document{
		Title: "Summary", Data: o,
		Lead: fmt.Sprintf("%s of %s %s (UTC)", chart.Count(o.Requests, "request"), chart.Count(o.Clients, "client"), when),
		Sections: []chart.Section{
			{Title: "Busiest clients", Blocks: []chart.Block{busiest}},
		},
	}
	if len(o.Next) > 0 {
		d.Sections = append(d.Sections, whatNext(o.Next))
	}
	return d
}

// whatNext returns the section with the next commands.
func whatNext(next []suggestedNext) chart.Section {
	s := chart.Section{Title: "What to try next"}
	for _, n := range next {
		s.Blocks = append(s.Blocks, chart.Code{Title: n.Says, Text: n.Command + "\n"})
	}
	return s
}
