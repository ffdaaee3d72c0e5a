package analysis

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/internal/chart"
)

// A ClientTimeline describes the requests of a client over time.
type ClientTimeline struct {
	Client   string   `json:"client"`
	Requests uint64   `json:"requests"`
	Refused  uint64   `json:"refused"`
	Passed   []uint64 `json:"passed_per_step"`
	Stopped  []uint64 `json:"refused_per_step"`
	Held     []bool   `json:"mitigated_per_step"` // whether mitigated at any time in the step

	// Partial is set if requests before the first non-empty step may be missing, because too many clients were
	// busier than this one.
	Partial bool `json:"partial,omitempty"`
}

// Clients are the timelines of the clients with the most refused requests, in steps of
// the same length.
type Clients struct {
	From  time.Time        `json:"from"`
	StepS int64            `json:"step_s"`
	Top   []ClientTimeline `json:"top"`
}

const (
	watchedClients = 2048 // maximum; beyond it, the quieter half is removed
	namedClients   = 20   // in the report
	stepsOfClients = 400
)

// watch collects Clients.
type watch struct {
	all     TimelineCollector
	clients map[netip.Addr]*watchedClient
	trimmed bool // some clients were forgotten
}

type watchedClient struct {
	name              string
	requests, refused uint64
	line              TimelineCollector
	last              int64 // time of the last request, in microseconds
	until             int64 // end of the last mitigation
	late              bool  // first seen after some clients were forgotten: it may be one of them
}

// add adds a request. until is the end of its client's mitigation, if a rule refuses it.
func (w *watch) add(client netip.Addr, name func() string, now int64, refused bool, until int64) {
	if w.clients == nil {
		w.clients, w.all.max = map[netip.Addr]*watchedClient{}, stepsOfClients
	}
	w.all.Add(now, refused)
	c := w.clients[client]
	if c == nil {
		if len(w.clients) == watchedClients {
			w.forget()
		}
		c = &watchedClient{name: name(), line: TimelineCollector{max: stepsOfClients}, late: w.trimmed}
		w.clients[client] = c
	}
	c.hold(now)
	c.line.Add(now, refused)
	c.last = now
	c.requests++
	if refused {
		c.refused++
		c.until = max(c.until, until) // until is in the past if the deny list refused the request
	}
}

// hold marks the ticks in which c is mitigated, from the last request up to end.
func (c *watchedClient) hold(end int64) {
	if c.until > c.last {
		c.line.reach(min(c.until, end), true)
	}
}

// busier orders clients by their refused requests, then by all requests.
func busier(a, b *watchedClient) int {
	return cmp.Or(cmp.Compare(b.refused, a.refused), cmp.Compare(b.requests, a.requests), cmp.Compare(a.name, b.name))
}

func (w *watch) sorted() []*watchedClient { return slices.SortedFunc(maps.Values(w.clients), busier) }

// forget removes the quieter half of the clients.
func (w *watch) forget() {
	median := w.sorted()[watchedClients/2]
	for client, c := range w.clients {
		if busier(c, median) >= 0 {
			delete(w.clients, client)
		}
	}
	w.trimmed = true
}

func (w *watch) report(name func(string) string) *Clients {
	if len(w.all.ticks) == 0 {
		return nil
	}
	r := &Clients{From: time.Unix(w.all.first*w.all.tick, 0).UTC(), StepS: w.all.tick}
	all := w.sorted()
	for _, c := range all[:min(len(all), namedClients)] {
		n := len(w.all.ticks)
		t := ClientTimeline{Client: name(c.name), Requests: c.requests, Refused: c.refused, Partial: c.late,
			Passed: make([]uint64, n), Stopped: make([]uint64, n), Held: make([]bool, n)}
		c.hold((w.all.first+int64(n))*w.all.tick*1e6 - 1)
		for at, tick := range c.line.in(&w.all) {
			t.Passed[at], t.Stopped[at], t.Held[at] = tick.Requests-tick.Refused, tick.Refused, tick.held
		}
		r.Top = append(r.Top, t)
	}
	return r
}

func (c *Clients) plot() chart.Block {
	s := chart.Strips{Title: "The clients with the most refusals over time", What: "client", PassedName: "passed",
		From: c.From, Step: time.Duration(c.StepS) * time.Second,
		Note: "UTC, in steps of " + figure.Period(c.StepS) + "; the stronger the color, the more requests"}
	for _, t := range c.Top {
		row := chart.Strip{Name: t.Client, Passed: t.Passed, Refused: t.Stopped, Held: t.Held}
		if t.Partial {
			row.Note = "earlier requests may be missing"
		}
		s.Rows = append(s.Rows, row)
	}
	return s
}
