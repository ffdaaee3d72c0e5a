// Package operate serves a node's operators on separate listeners: metrics and health for machines, and an API for
// people, commands and the web page of package page. An [Operator] carries out the operations of the API.
package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/limit/decision"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/gossip"
	"github.com/edgelimit/edge/pop/peers"
	"github.com/edgelimit/edge/pop/shards"
	"github.com/edgelimit/edge/rule"
	"github.com/edgelimit/edge/rule/describe"
)

// An Operator carries out the operations of a node's API and page. Its methods may be called concurrently.
type Operator struct {
	Name, Version string // of the node
	Limiter       *limit.Limiter
	Table         *mitigation.Table
	Peers         *peers.Table
	Ring          *shards.Watch
	Gossip        *gossip.Gossip // nil if the node does not gossip
	DecisionLog   *decision.Log  // nil if the node writes none
	Secret        counter.Secret
	Client        rule.ClientPrefix
	LogClients    bool // whether operators see the clients of mitigations
	Now           func() time.Time

	Logger  *slog.Logger
	History *History // of the node's metrics

	// Ready returns why the node should get no connections, and what operators should know.
	Ready func() (detail []string, err error)

	Certificates func() []Certificate // certificates that clients get; nil without TLS
	OwnStatus    func() peers.Status
	ReloadFiles  func() error
	ReadRules    func() (*rule.Set, error) // reads the rules files; nil without files

	mu      sync.Mutex // guards the following
	changes []Change   // the last ones, the oldest first
}

// Status returns the health of the node.
func (o *Operator) Status() Status {
	s := Status{Node: o.Name, Version: o.Version, Problems: []string{}}
	detail, err := o.Ready()
	if err != nil {
		detail = []string{err.Error()}
	}
	s.Ready, s.Problems = err == nil, append(s.Problems, detail...)
	keys, oldest := o.Limiter.Backlog()
	s.BacklogKeys, s.Lag = keys, oldest.Seconds()
	t := o.tally()
	s.Mitigations, s.Logged, s.Ineffective, s.Lifted = t.refused, t.logged, t.states[ineffective], t.states[lifted]
	s.Certificates = o.Certificates()
	return s
}

// anyRule and its name stand for the rule of clients that an operator refuses, regardless of rules.
const (
	anyRule     = "*"
	anyRuleName = "any" // the name that operators see; a rule may have it as its ID
)

// A tally counts records.
type tally struct {
	refused, logged map[string]int // by the ID of the rule, which is "" if it is not known, or by anyRule
	states          map[string]int
}

// tally counts the records by their rules and states.
func (o *Operator) tally() tally {
	t := tally{map[string]int{}, map[string]int{}, map[string]int{inForce: 0, logged: 0, ineffective: 0, lifted: 0}}
	for record := range o.Table.All(o.Now()) {
		r, state := o.stateOf(record)
		t.states[state]++
		id := ""
		switch {
		case record.Rule == mitigation.AnyRule:
			id = anyRule
		case r != nil:
			id = r.ID
		}
		switch state {
		case logged:
			t.logged[id]++
		case inForce:
			t.refused[id]++
		}
	}
	return t
}

var mitigationsDesc = prometheus.NewDesc("edge_mitigations",
	"Mitigations that this node knows, by state: active (refused), logged (dry runs, action: log), ineffective, lifted.", []string{"state"}, nil)

// Describe implements [prometheus.Collector].
func (o *Operator) Describe(to chan<- *prometheus.Desc) { to <- mitigationsDesc }

// Collect implements [prometheus.Collector].
func (o *Operator) Collect(to chan<- prometheus.Metric) {
	for state, n := range o.tally().states {
		to <- prometheus.MustNewConstMetric(mitigationsDesc, prometheus.GaugeValue, float64(n), state)
	}
}

// Rules returns the current rules, with their mitigations and requests on this node.
func (o *Operator) Rules() Rules {
	t, set := o.tally(), o.Limiter.Rules()
	all := Rules{Rules: []Rule{}}
	for _, r := range set.Rules() {
		shown := Rule{
			Rule: r.ID, Text: describe.Rule(r), Action: r.Action.String(),
			Characteristics: prose.Texts(r.Characteristics, rule.Characteristic.String),
			Mitigations:     t.refused[r.ID] + t.logged[r.ID], Requests: o.Limiter.Decided(r), LastHour: o.History.RefusedInHour(r.ID),
		}
		for _, l := range r.Limits {
			shown.Limits = append(shown.Limits, Limit{Threshold: l.Threshold, Period: l.Period.Seconds()})
		}
		all.Rules = append(all.Rules, shown)
	}
	return all
}

// Files reads the rules files and returns what a reload would change, or nil if the node has no rules files.
func (o *Operator) Files() *Files {
	if o.ReadRules == nil {
		return nil
	}
	onDisk, err := o.ReadRules()
	if err != nil {
		return &Files{Changed: true, Error: prose.Message(err)}
	}
	set := o.Limiter.Rules()
	return &Files{Changed: onDisk.Hash() != set.Hash(), Frees: o.Freed(set, onDisk)}
}

// Changed returns a number that changes whenever mitigations or rules do.
func (o *Operator) Changed() uint64 {
	digest := o.Table.Digest()
	return digest.Sum() ^ o.Limiter.Rules().Hash()
}

// nearWait is how long Near waits for the counting loop.
const nearWait = time.Second

// Near returns at most n keys near their threshold.
func (o *Operator) Near(n int) []async.Near {
	ctx, cancel := context.WithTimeout(context.Background(), nearWait)
	defer cancel()
	return o.Limiter.Near(ctx, n)
}

// Mitigation returns the mitigation of the key that text is in hexadecimal.
func (o *Operator) Mitigation(text string) (m Mitigation, err error) {
	key, err := parseKey(text)
	if err != nil {
		return m, err
	}
	now := o.Now()
	r, ok := o.Table.Held(key, now)
	if !ok {
		return m, Unknown(fmt.Sprintf("operate: %s is not mitigated", text))
	}
	return *o.describe(&r, now), nil
}

// describe returns a record as operators see it.
func (o *Operator) describe(record *mitigation.Record, now time.Time) *Mitigation {
	m := &Mitigation{
		Key: record.Key.String(), ID: o.Secret.ID(record.Key).String(), Start: time.UnixMicro(record.Start).UTC(), Left: record.Deadline.Sub(now).Seconds(), Lifted: record.Lifted,
		ByHand: record.ByHand, Node: o.Peers.NameOf(record.Node), Why: record.Why.String(), Period: float64(record.Why.Limit.Period) / 1e6,
	}
	r, state := o.stateOf(record)
	m.State, m.Ineffective, m.About = state, state == ineffective, o.about(r, record)
	switch {
	case r != nil:
		m.Rule, m.Action = r.ID, r.Action.String()
	case record.Rule == mitigation.AnyRule:
		m.Action = "deny"
	}
	if record.Client.IsValid() && o.LogClients {
		m.Client = record.Client.String()
	}
	if s := record.Sample; s != nil && o.LogClients {
		m.Method, m.Host, m.Path = s.Method, s.Host, s.Path
	}
	return m
}

// Add starts a mitigation by hand: of a key, or of a client regardless of rules.
func (o *Operator) Add(order Order) (m Mitigation, err error) {
	now := o.Now()
	f, err := o.single(order.Values, now)
	switch {
	case err != nil:
		return m, err
	case order.Duration > mitigation.MaxLifetime:
		return m, Invalid(fmt.Sprintf("duration: a mitigation lasts at most %s", prose.Duration(mitigation.MaxLifetime)))
	case order.Duration < time.Second:
		return m, Invalid("duration: a mitigation lasts at least 1s")
	}
	record, err := o.Limiter.Add(f.key, f.rule, f.addr, order.Duration, now)
	if err != nil {
		return m, err
	}
	o.Ring.Keep()
	m = *o.describe(&record, now)
	m.About = f.about
	switch text := spares(f.rule, nil, o.clientOf(order.Values)); {
	case f.rule == nil:
	case text != "":
		m.Note = "the rule does not refuse this client: " + text
	case !f.rule.Action.Refuses():
		m.Note = fmt.Sprintf("the rule's action is %v, so nothing is refused", f.rule.Action)
	case f.rule.Action == rule.Shed:
		m.Note = "the rule's action is shed, so it refuses only clients beyond its threshold"
	}
	return m, nil
}

// single returns the one key that values name. An address alone names the key under which operators refuse the client
// regardless of rules.
func (o *Operator) single(values map[string]string, now time.Time) (f foundKey, err error) {
	client := o.clientOf(values)
	if values["network"] != "" {
		return f, Invalid("a network cannot be refused by hand: add it to deny in the rules files, " +
			"or give a rule that counts by network and whose action is not shed or log")
	}
	if l := o.listed(client, netip.Prefix{}); l != nil {
		return f, Invalid(fmt.Sprintf("the %s list has %s, and decides before any mitigation: see the rules files", l.List, l.Network))
	}
	if client.IsValid() && len(values) == 1 {
		values = map[string]string{"rule": anyRule, "ip": values["ip"]}
	}
	t, err := o.find(values, 2, now)
	switch {
	case err != nil:
		return f, err
	case len(t.keys) != 1:
		return f, Invalid("give an address, or a rule and the values of its characteristics, such as rule=login&ip=203.0.113.7")
	}
	f = t.keys[0]
	record, ok := o.Table.Held(f.key, now)
	if ok && f.rule == nil && values["rule"] == "" && record.Rule != mitigation.AnyRule {
		err = Unknown("operate: the rule of the mitigation was removed, or is not known here")
	}
	return f, err
}

// Lift lifts all mitigations of a target; of an address, all that act on it.
func (o *Operator) Lift(l LiftOne) (Lifted, error) {
	now, result := o.Now(), Lifted{Mitigations: []Mitigation{}}
	t, err := o.find(l.Values, math.MaxInt, now)
	if err != nil {
		return result, err
	}
	for _, f := range t.keys {
		record, ok := o.Table.Held(f.key, now)
		if !ok || record.Lifted {
			continue
		}
		m := *o.describe(&record, now)
		m.About = f.about
		if _, err := o.Limiter.Lift(f.key, now); err == nil {
			result.Mitigations = append(result.Mitigations, m)
		}
	}
	switch {
	case len(result.Mitigations) > 0:
		result.Key = result.Mitigations[0].Key
		o.Ring.Keep()
		return result, nil
	case t.listed != nil && t.listed.List == "deny":
		return result, Unknown("operate: the deny list refuses this client: remove " + t.listed.Network + " from the rules files")
	case l.Values["rule"] != "":
		return result, Unknown("operate: rule " + l.Values["rule"] + " does not mitigate this client")
	}
	return result, Unknown("operate: no mitigation acts on " + named(l.Values))
}

// LiftAll lifts the mitigations of a selection, unless it is a dry run.
func (o *Operator) LiftAll(s Selection) (result LiftedAll, err error) {
	matches, err := o.matcher(Query{Rule: s.Rule, Client: s.Client})
	if err != nil {
		return result, err
	}
	now := o.Now()
	var keys []counter.Key
	for r := range o.Table.All(now) {
		switch {
		case r.Lifted:
		case matches(r):
			keys = append(keys, r.Key)
		case s.Rule != "" && r.Rule == 0, s.Client.IsValid() && !r.Client.IsValid():
			result.Unknown++
		}
	}
	result.Mitigations, result.DryRun = len(keys), s.DryRun
	if !s.DryRun {
		result.Mitigations = o.Limiter.LiftAll(keys, now)
		o.Ring.Keep()
	}
	return result, nil
}

// States of a record, as queries name them.
const (
	inForce     = "active"
	logged      = "logged" // a dry run, action: log
	ineffective = "ineffective"
	lifted      = "lifted"
)

// stateOf returns a record's current rule, nil if it was removed or is not known, and the record's state. The limits
// that overrides give a key are not known here, so every record of a rule with overrides counts as effective.
func (o *Operator) stateOf(record *mitigation.Record) (r *rule.Rule, state string) {
	return stateUnder(o.Limiter.Rules(), record)
}

func stateUnder(rules *rule.Set, record *mitigation.Record) (r *rule.Rule, state string) {
	r = rules.ByFingerprint(record.Rule)
	switch {
	case record.Lifted:
		return r, lifted
	case record.Rule == mitigation.AnyRule:
	case r == nil && record.Rule != 0, r != nil && r.Overrides == "" && !async.Acts(r, record):
		return r, ineffective
	case r != nil && !r.Action.Refuses():
		return r, logged
	}
	return r, inForce
}

// Freed returns the number of clients that the former rules refuse and the next ones do not.
func (o *Operator) Freed(former, next *rule.Set) (n int) {
	for r := range o.Table.All(o.Now()) {
		_, before := stateUnder(former, r)
		if _, after := stateUnder(next, r); before == inForce && after != inForce {
			n++
		}
	}
	return n
}

// Reload reloads the node's files, and returns what is in force afterwards.
func (o *Operator) Reload() (Reloaded, error) {
	former := o.Limiter.Rules()
	err := o.ReloadFiles()
	current := o.Limiter.Rules()
	return Reloaded{Rules: len(current.Rules()), Frees: o.Freed(former, current)}, err
}

// Drain takes a shard out of the ring, or puts it back.
func (o *Operator) Drain(shard string, on bool) error { return o.Ring.Drain(shard, on) }

// Shards returns the shards, in the order of their addresses.
func (o *Operator) Shards() Shards {
	all, loads := []Shard{}, o.Limiter.Loads()
	for _, s := range o.Ring.States() {
		load := loads[s.Addr]
		all = append(all, Shard{
			Addr: s.Addr, Down: s.Down, Answers: s.Answers, InRing: s.InRing, Drained: s.Drained, Breaker: s.Breaker,
			Waiting: load.Waiting, Lag: load.Oldest.Seconds(), Share: load.Share,
		})
	}
	return Shards{Shards: all}
}

// Nodes returns the nodes of the PoP, this one first.
func (o *Operator) Nodes() Nodes {
	ours := o.OwnStatus()
	var all []Node
	for _, n := range o.Peers.Nodes(&ours, o.Now()) {
		all = append(all, Node{
			Name: n.Name, Self: n.Self, State: n.State.String(), Version: n.Version, Heard: n.Heard.Seconds(),
			Requests: float64(n.Requests), Refused: float64(n.Refused), Fingerprints: n.Fingerprints.Shown(), Differs: n.Differs,
		})
	}
	if o.Gossip == nil {
		return Nodes{Nodes: all}
	}
	all[0].Addr = o.Gossip.Addr()
	for _, m := range o.Gossip.Peers() {
		if i := slices.IndexFunc(all, func(n Node) bool { return n.Name == m.Name && !n.Self }); i >= 0 {
			all[i].Addr = m.Addr
			if m.ClockKnown {
				ahead := m.ClockAhead.Seconds()
				all[i].ClockAhead = &ahead
			}
		}
	}
	return Nodes{Nodes: all}
}

// Decisions returns the last lines of the decision log that q selects.
func (o *Operator) Decisions(q DecisionQuery) (found Decisions, err error) {
	if o.DecisionLog == nil {
		return found, errors.New("operate: the node has no decision log: set decision_log")
	}
	found.Decisions = []Decision{}
	for _, line := range o.DecisionLog.Recent() {
		if q.Rule != "" && line.Rule != q.Rule || !strings.HasPrefix(line.Key, strings.ToLower(q.Key)) {
			continue
		}
		d := Decision{
			Event: line.Event, Time: time.UnixMicro(line.Time).UTC(), Rule: line.Rule, Key: line.Key, Client: line.Client, Verdict: line.Verdict, By: line.By,
			Mitigated: line.Mitigated, ByHand: line.ByHand, Other: line.Other, Counted: line.Counted, Cost: line.Cost, Generation: int(line.Generation),
		}
		if line.Decided != 0 {
			at := time.UnixMicro(line.Decided).UTC()
			d.Decided = &at
		}
		found.Decisions = append(found.Decisions, d)
		if len(found.Decisions) == cmp.Or(q.Limit, 100) {
			break
		}
	}
	return found, nil
}
