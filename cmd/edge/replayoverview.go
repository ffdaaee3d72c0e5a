package main

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
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

	thresholds []uint64
	over       []int // clients whose estimate exceeds each threshold in a minute; those that nobody exceeds are missing
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
	// Most clients are addresses in their usual form: these take 16 bytes, and no pointer.
	addresses, others := map[[16]byte]tally{}, map[string]tally{}
	var usual [64]byte
	err := in.entries(ctx, func(e *accesslog.Entry) error {
		if a, err := netip.ParseAddr(e.Client); err == nil && !a.Is4In6() && string(a.AppendTo(usual[:0])) == e.Client && a.Zone() == "" {
			addresses[a.As16()] = addresses[a.As16()].add(e.Time)
		} else if c, ok := others[e.Client]; ok {
			others[e.Client] = c.add(e.Time)
		} else {
			others[strings.Clone(e.Client)] = c.add(e.Time)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s := in.stats()
	o := &overview{Requests: s.Entries, Clients: len(addresses) + len(others), From: time.UnixMicro(s.First).UTC(), To: time.UnixMicro(s.Last).UTC(), thresholds: analysis.DefaultThresholds()}
	for client, c := range addresses {
		o.see(c, func() string { return netip.AddrFrom16(client).Unmap().String() })
	}
	for client, c := range others {
		o.see(c, func() string { return client })
	}
	for i := range o.Busiest {
		o.Busiest[i].Pct = 100 * float64(o.Busiest[i].Requests) / float64(s.Entries)
		if name != nil {
			o.Busiest[i].Client = name(o.Busiest[i].Client)
		}
	}
	return o, nil
}

// A tally counts the requests of a client.
type tally struct {
	requests  int64
	minute    int32  // since the Unix epoch
	prev, cur uint32 // requests in the minute before it, and in it
	most      uint32 // of cur
	peak      uint32 // the smallest threshold that the estimate never exceeds
}

// add returns c with a request more.
func (c tally) add(at int64) tally {
	period := time.Minute.Microseconds()
	switch minute := int32(at / period); {
	case minute == c.minute+1:
		c.minute, c.prev, c.cur = minute, c.cur, 0
	case minute != c.minute:
		c.minute, c.prev, c.cur = minute, 0, 0
	}
	c.peak = max(c.peak, c.cur+uint32((int64(c.prev)*(period-at%period)+period-1)/period)) // it passes if the ones before it are too few
	c.requests++
	c.cur++
	c.most = max(c.most, c.cur)
	return c
}

// see takes a client into account: the thresholds that it exceeds and, if it is one of the busiest, its name.
func (o *overview) see(c tally, client func() string) {
	for i := 0; i < len(o.thresholds) && o.thresholds[i] < uint64(c.peak); i++ {
		if i == len(o.over) {
			o.over = append(o.over, 0)
		}
		o.over[i]++
	}
	const most = 10
	if n := len(o.Busiest); n == most && c.requests < o.Busiest[n-1].Requests {
		return
	}
	one := busyClient{Client: client(), Requests: c.requests, Most: int64(c.most)}
	at, _ := slices.BinarySearchFunc(o.Busiest, one, func(a, b busyClient) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Client, b.Client))
	})
	o.Busiest = slices.Insert(o.Busiest, at, one)
	o.Busiest = o.Busiest[:min(most, len(o.Busiest))]
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
	limit := o.thresholds[max(0, len(o.over)-1)]
	o.Next = []suggestedNext{
		{"edge replay sweep" + how + named, "which limits would affect almost no clients"},
		{fmt.Sprintf("edge replay accuracy --limit %d/1m%s%s", limit, how, named), "how often the estimate would decide differently from an exact count"},
	}
	// As the sweep recommends: the smallest threshold that affects at most 0.1% of the clients, if it affects any.
	if i := slices.IndexFunc(o.over, func(clients int) bool { return 1000*clients <= o.Clients }); i >= 0 {
		o.Next = append(o.Next, []suggestedNext{
			{fmt.Sprintf("echo 'rules: [{id: all, characteristics: [ip], limits: [{threshold: %d, period: 1m}], action: log}]' > rules.yaml", o.thresholds[i]), "a rule to start with, which only logs"},
			{"edge replay rules" + how + " rules.yaml" + named, "which clients it would have refused"},
		}...)
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
