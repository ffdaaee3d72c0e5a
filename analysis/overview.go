package analysis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/internal/chart"
)

// An Overview summarizes a log. The zero value is an empty log.
type Overview struct {
	Requests int64        `json:"requests"`
	Clients  int          `json:"clients"`
	From     time.Time    `json:"from"`
	To       time.Time    `json:"to"`
	Busiest  []BusyClient `json:"busiest"`
	Next     []Suggestion `json:"next,omitempty"` // set by the caller

	clients map[string]*BusyClient
}

// A BusyClient is one of the clients with the most requests.
type BusyClient struct {
	Client   string  `json:"client"`
	Requests int64   `json:"requests"`
	Pct      float64 `json:"pct"`             // of all requests
	Most     int64   `json:"most_per_minute"` // in a clock minute

	minute, inMinute int64
}

// A Suggestion is a command to try next.
type Suggestion struct {
	Command string `json:"command"`
	Says    string `json:"says"`
}

// Add adds an entry of the log. It never fails.
func (o *Overview) Add(e *accesslog.Entry) error {
	if o.clients == nil {
		o.clients, o.From = map[string]*BusyClient{}, figure.TimeOf(e.Time)
	}
	c := o.clients[e.Client]
	if c == nil {
		c = &BusyClient{Client: strings.Clone(e.Client)}
		o.clients[c.Client] = c
	}
	if minute := e.Time / time.Minute.Microseconds(); c.Requests == 0 || minute != c.minute {
		c.minute, c.inMinute = minute, 0
	}
	o.Requests++
	o.To = figure.TimeOf(e.Time)
	c.Requests++
	c.inMinute++
	c.Most = max(c.Most, c.inMinute)
	return nil
}

// Finish sums up the entries. name returns the names of clients in the report; if nil, they are those in the log.
func (o *Overview) Finish(name Namer) {
	o.Clients = len(o.clients)
	for _, c := range o.clients {
		c.Pct = figure.Percent(uint64(c.Requests), uint64(o.Requests))
		o.Busiest = append(o.Busiest, *c)
	}
	slices.SortFunc(o.Busiest, func(a, b BusyClient) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Client, b.Client))
	})
	o.Busiest = o.Busiest[:min(10, len(o.Busiest))]
	for i := range o.Busiest {
		if name != nil {
			o.Busiest[i].Client = name(o.Busiest[i].Client)
		}
	}
}

// Document returns the overview as a document.
func (o *Overview) Document() chart.Document {
	busiest := chart.Table{Columns: chart.Columns("client", "requests", "of all", "most in a minute")}
	for _, c := range o.Busiest {
		busiest.Rows = append(busiest.Rows, chart.Row{Cells: []string{c.Client, chart.Grouped(c.Requests), fmt.Sprintf("%.1f%%", c.Pct), chart.Grouped(c.Most)}})
	}
	d := chart.Document{
		Title: "Summary", Data: o,
		Lead:     chart.Count(o.Requests, "request") + " of " + chart.Count(o.Clients, "client") + figure.Between(o.From, o.To),
		Sections: []chart.Section{{Title: "Busiest clients", Blocks: []chart.Block{busiest}}},
	}
	if len(o.Next) > 0 {
		d.Sections = append(d.Sections, WhatNext(o.Next))
	}
	return d
}

// WhatNext returns the section with the next commands.
func WhatNext(next []Suggestion) chart.Section {
	s := chart.Section{Title: "What to try next"}
	for _, n := range next {
		s.Blocks = append(s.Blocks, chart.Code{Title: n.Says, Text: n.Command + "\n"})
	}
	return s
}
