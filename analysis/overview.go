package analysis

import (
	"cmp"
	"fmt"
	"net/netip"
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

	// Most clients are addresses in their usual form: these take 16 bytes, and no pointer.
	addresses map[[16]byte]requestCount
	others    map[string]requestCount

	over []int // clients whose estimate exceeds each of the default thresholds in a minute, up to the last that somebody exceeds
}

// A BusyClient is one of the clients with the most requests.
type BusyClient struct {
	Client   string  `json:"client"`
	Requests int64   `json:"requests"`
	Pct      float64 `json:"pct"`             // of all requests
	Most     int64   `json:"most_per_minute"` // in a clock minute
}

// A Suggestion is a command to try next.
type Suggestion struct {
	Command string `json:"command"`
	Says    string `json:"says"`
}

// A requestCount counts the requests of a client.
type requestCount struct {
	requests  int64
	minute    int32  // since the Unix epoch
	prev, cur uint32 // requests in the minute before it, and in it
	most      uint32 // of cur
	peak      uint32 // the smallest threshold that the estimate never exceeds
}

// add returns c with a request more.
func (c requestCount) add(at int64) requestCount {
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

// Add adds an entry of the log. It never fails.
func (o *Overview) Add(e *accesslog.Entry) error {
	if o.addresses == nil {
		o.addresses, o.others, o.From = map[[16]byte]requestCount{}, map[string]requestCount{}, figure.TimeOf(e.Time)
	}
	o.Requests++
	o.To = figure.TimeOf(e.Time)
	var usual [64]byte
	if a, err := netip.ParseAddr(e.Client); err == nil && !a.Is4In6() && string(a.AppendTo(usual[:0])) == e.Client && a.Zone() == "" {
		o.addresses[a.As16()] = o.addresses[a.As16()].add(e.Time)
	} else if c, ok := o.others[e.Client]; ok {
		o.others[e.Client] = c.add(e.Time)
	} else {
		o.others[strings.Clone(e.Client)] = c.add(e.Time)
	}
	return nil
}

// Finish sums up the entries. name returns the names of clients in the report; if nil, they are those in the log.
func (o *Overview) Finish(name Namer) {
	o.Clients = len(o.addresses) + len(o.others)
	for client, c := range o.addresses {
		o.see(c, func() string { return netip.AddrFrom16(client).Unmap().String() })
	}
	for client, c := range o.others {
		o.see(c, func() string { return client })
	}
	for i := range o.Busiest {
		o.Busiest[i].Pct = figure.Percent(uint64(o.Busiest[i].Requests), uint64(o.Requests))
		if name != nil {
			o.Busiest[i].Client = name(o.Busiest[i].Client)
		}
	}
}

// see takes a client into account: the thresholds that it exceeds and, if it is one of the busiest, its name.
func (o *Overview) see(c requestCount, client func() string) {
	for i, threshold := range DefaultThresholds() {
		if threshold >= uint64(c.peak) {
			break
		}
		if i == len(o.over) {
			o.over = append(o.over, 0)
		}
		o.over[i]++
	}
	const most = 10
	if n := len(o.Busiest); n == most && c.requests < o.Busiest[n-1].Requests {
		return
	}
	busy := BusyClient{Client: client(), Requests: c.requests, Most: int64(c.most)}
	at, _ := slices.BinarySearchFunc(o.Busiest, busy, func(a, b BusyClient) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Client, b.Client))
	})
	o.Busiest = slices.Insert(o.Busiest, at, busy)
	o.Busiest = o.Busiest[:min(most, len(o.Busiest))]
}

// Limits returns thresholds for a minute: the highest of the usual ones that a client exceeds, or the lowest of them, and,
// as a sweep recommends, the lowest that at most 0.1% of the clients exceed, but at least one; 0 if there is none.
func (o *Overview) Limits() (exceeded, recommended uint64) {
	usual := DefaultThresholds()
	if i := slices.IndexFunc(o.over, func(clients int) bool { return 1000*clients <= o.Clients }); i >= 0 {
		recommended = usual[i]
	}
	return usual[max(0, len(o.over)-1)], recommended
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
