package analysis

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/rule"
)

// ComparisonOptions configures a Comparer. Rules and Base are required; the zero value of every
// other field is usable.
type ComparisonOptions struct {
	// Rules are the new rules, Base the old ones.
	Rules, Base *rule.Set

	// PoP is the PoP that enforces them.
	PoP PoPOptions

	ReportOptions

	// MaxNewlyRefused is the maximum number of newly refused requests. If nil, there is no maximum.
	MaxNewlyRefused *uint64
}

// A Comparer determines which decisions differ between new and old rules: it plays a log through two
// identical PoPs. Its methods must not be called concurrently.
type Comparer struct {
	o       ComparisonOptions
	player  *player
	sums    Comparison
	clients map[netip.Addr][2]bool // whether the old and the new rules refused a request of the client
	changes [2]change              // requests that only the old or only the new rules refuse
}

// A change collects a Change.
type change struct {
	refusals
	rules map[string]uint64
}

func (c *change) add(r *replayedRequest, p rule.ClientPrefix, by *rule.Rule) {
	c.refusals.add(r, p)
	id := "(deny list)" // no rule can have this ID
	if by != nil {
		id = by.ID
	}
	if c.rules == nil {
		c.rules = map[string]uint64{}
	}
	c.rules[id]++
}

// NewComparer returns a Comparer.
func NewComparer(o ComparisonOptions) (*Comparer, error) {
	if o.Rules == nil || o.Base == nil {
		return nil, errors.New("analysis: Rules and Base are required")
	}
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	var err error
	if o.PoP, err = o.PoP.withDefaults(); err != nil {
		return nil, err
	}
	c := &Comparer{o: o, player: newRulesPlayer(o.PoP.Client, o.Base, o.Rules), clients: map[netip.Addr][2]bool{}}
	for i, rules := range []*rule.Set{o.Base, o.Rules} {
		if o.PoP.report().simplest() {
			c.player.instant(rules, i, false)
			continue
		}
		s, err := NewSimulation(o.PoP, rules)
		if err != nil {
			return nil, err
		}
		c.player.simulate(s, i)
	}
	c.player.done = c.add
	return c, nil
}

// Add adds the next request of the log; see Enforcer.Add.
func (c *Comparer) Add(e *accesslog.Entry) { c.player.add(e) }

func (c *Comparer) add(r *replayedRequest) {
	history := c.clients[r.network]
	for i, sum := range []*uint64{&c.sums.BaseRefused, &c.sums.Refused} {
		if r.decided[i].level() == refused {
			*sum++
			history[i] = true
			if r.decided[1-i].level() < refused {
				c.changes[i].add(r, c.o.PoP.Client, r.decided[i].rule)
			}
		}
	}
	c.clients[r.network] = history
}

// A Comparison describes the decisions that differ between new and old rules. Rules that only log do not refuse
// requests here.
type Comparison struct {
	Requests uint64    `json:"requests"`
	Clients  int       `json:"clients"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	PoP      PoPReport `json:"pop"`

	Refused     uint64 `json:"refused"`      // by the new rules, including their deny list
	BaseRefused uint64 `json:"base_refused"` // by the old ones, likewise

	NewlyRefused Change `json:"newly_refused"` // by the new rules only
	NewlyAllowed Change `json:"newly_allowed"` // by the old rules only

	// MaxNewlyRefused is the maximum number of newly refused requests; nil if there is none.
	MaxNewlyRefused *uint64 `json:"max_newly_refused,omitempty"`
}

// A Change describes requests that only one of two sets of rules refuses.
type Change struct {
	Requests uint64 `json:"requests"`
	Clients  int    `json:"clients"` // clients with such requests

	// Only is the number of these clients that the other rules never refuse. Both sets of rules refuse
	// requests of the others, but different ones.
	Only int `json:"clients_only_here"`

	First      *time.Time   `json:"first,omitempty"`
	Rules      []RuleChange `json:"rules,omitempty"` // the rules that refused them, those with the most requests first
	TopClients []TopClient  `json:"top_clients,omitempty"`
	TopPaths   []TopPath    `json:"top_paths,omitempty"`
}

// A RuleChange is the number of requests of a Change that a rule refused.
type RuleChange struct {
	Rule     string `json:"rule"` // its ID, or "(deny list)"
	Requests uint64 `json:"requests"`
}

// Report returns the results. It must be called once, after all requests have been added.
func (c *Comparer) Report() *Comparison {
	c.player.finish()
	r := &c.sums
	r.Requests, r.Clients, r.PoP = c.player.n, len(c.clients), c.o.PoP.report()
	r.From, r.To = figure.TimeOf(c.player.first), figure.TimeOf(c.player.last)
	for i, to := range []*Change{&r.NewlyAllowed, &r.NewlyRefused} {
		*to = c.changes[i].report(c.o)
		for client := range c.changes[i].clients {
			if !c.clients[client][1-i] {
				to.Only++
			}
		}
	}
	r.MaxNewlyRefused = c.o.MaxNewlyRefused
	return r
}

func (c *change) report(o ComparisonOptions) Change {
	r := Change{
		Requests: c.requests, Clients: len(c.clients), First: c.first,
		TopClients: c.topClients(o.Top, o.Name), TopPaths: c.topPaths(o.Top),
	}
	for _, id := range byCount(c.rules) {
		r.Rules = append(r.Rules, RuleChange{id, c.rules[id]})
	}
	return r
}

// Check returns an error if more than MaxNewlyRefused requests are newly refused.
func (r *Comparison) Check() error {
	if most := r.MaxNewlyRefused; most != nil && r.NewlyRefused.Requests > *most {
		return fmt.Errorf("analysis: %d requests are newly refused: the maximum is %d", r.NewlyRefused.Requests, *most)
	}
	return nil
}
