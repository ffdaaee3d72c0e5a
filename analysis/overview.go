package analysis

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/client"
	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/counter"
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

	counts *client.Values[requestCount]
	names  map[[16]byte]string // of clients: see requestCount

	// Number of clients whose estimate exceeds each default threshold in a minute, up to the last threshold that any
	// exceeds.
	over []int
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
	counter.Windows[uint32, uint32] // requests in the last two minutes

	// The accesslog.Client or, if isAddress is set, an IPv6 address. If the Client has only a hash of the name, it is
	// a key of names.
	client    [16]byte
	requests  int64
	most      uint32 // of Cur
	peak      uint32 // the smallest threshold that the estimate never exceeds
	isAddress bool   // client is an IPv6 address
}

func (c *requestCount) add(at int64) {
	period := time.Minute.Microseconds()
	minute, elapsed := counter.WindowAt(at, period)
	c.Roll(uint32(minute))
	// a request is refused only if those before it exceeded the threshold
	c.peak = max(c.peak, c.Cur+uint32((int64(c.Prev)*(period-elapsed)+period-1)/period))
	c.requests++
	c.Cur++
	c.most = max(c.most, c.Cur)
}

// name stores a name that does not fit in an accesslog.Client. An IPv6 address in its usual form goes into c, since a
// log may have millions of them, other names into names.
func (c *requestCount) name(name string, names map[[16]byte]string) {
	if a, err := netip.ParseAddr(name); err == nil && a.Is6() && a.Zone() == "" && a.String() == name {
		c.client, c.isAddress = a.As16(), true
		return
	}
	names[c.client] = strings.Clone(name)
}

// Add adds an entry of the log. It never fails.
func (o *Overview) Add(e *accesslog.Entry) error {
	if o.counts == nil {
		o.counts, o.names, o.From = client.NewValues[requestCount](1), map[[16]byte]string{}, figure.TimeOf(e.Time)
	}
	o.Requests++
	o.To = figure.TimeOf(e.Time)
	from := accesslog.ClientOf(e.Client)
	count := &o.counts.Of(client.Hash(&from), &from)[0]
	if count.requests == 0 {
		count.client = from
		if _, named := from.Name(); !named {
			count.name(e.Client, o.names)
		}
	}
	count.add(e.Time)
	return nil
}

// Finish summarizes the entries. name returns the names of clients in the report; if nil, they are those in the log.
func (o *Overview) Finish(name Namer) {
	if o.counts == nil {
		return
	}
	o.Clients = int(o.counts.Len())
	usual := DefaultThresholds()
	for n := range o.counts.Len() {
		o.see(&o.counts.Numbered(n)[0], usual)
	}
	for i := range o.Busiest {
		o.Busiest[i].Pct = figure.Percent(uint64(o.Busiest[i].Requests), uint64(o.Requests))
		if name != nil {
			o.Busiest[i].Client = name(o.Busiest[i].Client)
		}
	}
}

// see counts a client for the thresholds that it exceeds, and adds it to Busiest if it is one of the busiest.
func (o *Overview) see(c *requestCount, thresholds []uint64) {
	for i, threshold := range thresholds {
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
	from := accesslog.Client(c.client)
	name, named := from.Name()
	switch {
	case c.isAddress:
		name = netip.AddrFrom16(c.client).String()
	case !named:
		name = o.names[c.client]
	}
	busy := BusyClient{Client: name, Requests: c.requests, Most: int64(c.most)}
	o.Busiest = insertTop(o.Busiest, most, busy, func(a, b BusyClient) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Client, b.Client))
	})
}

// Limits returns two of the default thresholds, for a minute. exceeded is the highest one that a client exceeds, or
// the lowest one if none does. recommended is the one that a sweep recommends: the lowest that some clients exceed, but
// at most 0.1% of them. It is 0 if there is none.
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
		busiest.Add(c.Client, c.Requests, fmt.Sprintf("%.1f%%", c.Pct), c.Most)
	}
	d := chart.Document{
		Title: "Summary", Data: o,
		Lead:     figure.Lead(o.Requests, o.Clients, o.From, o.To),
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
