// Package operate serves a node's operators on separate listeners: metrics and health for machines, and an
// API for people, commands and the web page of package page. An [Operator] carries out what they ask.
package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
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
	Gossip        *gossip.Gossip // nil without one
	DecisionLog   *decision.Log  // nil without one
	Secret        counter.Secret
	Client        rule.ClientPrefix
	LogClients    bool // whether operators see the clients of mitigations
	Now           func() time.Time

	// Ready returns why the node should get no connections, and what operators should know.
	Ready func() (detail []string, err error)

	OwnStatus   func() peers.Status
	ReloadFiles func() error
}

// Status returns the health of the node.
func (o *Operator) Status() Status {
	s := Status{Node: o.Name, Version: o.Version, Problems: []string{}, Mitigations: map[string]int{}}
	detail, err := o.Ready()
	if err != nil {
		detail = []string{err.Error()}
	}
	s.Ready, s.Problems = err == nil, append(s.Problems, detail...)
	keys, oldest := o.Limiter.Backlog()
	s.BacklogKeys, s.Lag = keys, oldest.Seconds()
	var active map[*rule.Rule]int
	active, s.Ineffective, s.Lifted = o.counts()
	for r, n := range active {
		id := "" // not known
		if r != nil {
			id = r.ID
		}
		s.Mitigations[id] += n // a reload meanwhile may have replaced the rule
	}
	return s
}

// counts returns the number of active records by rule, under nil if the rule is not known, and the numbers of
// ineffective records and of lifts.
func (o *Operator) counts() (active map[*rule.Rule]int, ineffectives, lifts int) {
	active = map[*rule.Rule]int{}
	for r := range o.Table.All(o.Now()) {
		switch of, state := o.stateOf(r); state {
		case lifted:
			lifts++
		case ineffective:
			ineffectives++
		default:
			active[of]++
		}
	}
	return active, ineffectives, lifts
}

// Rules returns the current rules, with their active mitigations and requests on this node.
func (o *Operator) Rules() Rules {
	active, _, _ := o.counts()
	all := []Rule{}
	for _, r := range o.Limiter.Rules().Rules() {
		one := Rule{Rule: r.ID, Text: describe.Rule(r), Action: r.Action.String(), Characteristics: names(r.Characteristics), Mitigations: active[r], Requests: o.Limiter.Decided(r)}
		for _, l := range r.Limits {
			one.Limits = append(one.Limits, Limit{Threshold: l.Threshold, Period: l.Period.Seconds()})
		}
		all = append(all, one)
	}
	return Rules{Rules: all}
}

// names returns characteristics as rules files have them.
func names(characteristics []rule.Characteristic) (all []string) {
	for _, c := range characteristics {
		all = append(all, c.String())
	}
	return all
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

// Mitigation returns the mitigation of a key, which is given in hexadecimal.
func (o *Operator) Mitigation(text string) (m Mitigation, err error) {
	key, err := parseKey(text)
	if err != nil {
		return m, err
	}
	now := o.Now()
	r, ok := o.Table.Held(key, now)
	if !ok {
		return m, Unknown(fmt.Sprintf("pop: %s is not mitigated", text))
	}
	return *o.describe(&r, now), nil
}

// describe returns a record as operators see it.
func (o *Operator) describe(r *mitigation.Record, now time.Time) *Mitigation {
	m := &Mitigation{
		Key: r.Key.String(), ID: o.Secret.ID(r.Key).String(), Start: time.UnixMicro(r.Start).UTC(), Left: r.Deadline.Sub(now).Seconds(), Lifted: r.Lifted,
		ByHand: r.ByHand, Node: o.Peers.NameOf(r.Node), Why: r.Why.String(), Period: float64(r.Why.Limit.Period) / 1e6,
	}
	of, state := o.stateOf(r)
	m.Ineffective = state == ineffective
	if of != nil {
		m.Rule, m.Action = of.ID, of.Action.String()
	}
	if r.Client.IsValid() && o.LogClients {
		m.Client = r.Client.String()
	}
	if s := r.Sample; s != nil && o.LogClients {
		m.Method, m.Host, m.Path = s.Method, s.Host, s.Path
	}
	return m
}

// Add starts a mitigation by hand.
func (o *Operator) Add(order Order) (m Mitigation, err error) {
	r, key, err := o.keyOf(order.Values)
	if err != nil {
		return m, err
	}
	if order.Duration > mitigation.MaxLifetime {
		return m, Invalid(fmt.Sprintf("duration: a mitigation lasts at most %v", mitigation.MaxLifetime))
	}
	if order.Duration < time.Second {
		return m, Invalid("duration: a mitigation lasts at least 1s")
	}
	now := o.Now()
	client, _ := netip.ParseAddr(order.Values["ip"]) // invalid for rules with other characteristics
	record, err := o.Limiter.Add(key, r, client, order.Duration, now)
	if err != nil {
		return m, err
	}
	return *o.describe(&record, now), nil
}

// Lift lifts the mitigation of a key.
func (o *Operator) Lift(l LiftOne) (Lifted, error) {
	var key counter.Key
	var err error
	if text, ok := l.Values["key"]; ok && len(l.Values) == 1 {
		key, err = parseKey(text)
	} else {
		_, key, err = o.keyOf(l.Values)
	}
	if err != nil {
		return Lifted{}, err
	}
	_, err = o.Limiter.Lift(key, o.Now())
	if err == limit.ErrNotMitigated {
		text := "key " + key.String() + " is not mitigated"
		if id, ok := l.Values["rule"]; ok {
			text = "rule " + id + " does not mitigate this client"
		}
		err = Unknown("pop: " + text)
	}
	return Lifted{Key: key.String()}, err
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
		case s.Rule != "" && r.Rule == 0, s.Client.IsValid() && !r.Client.IsValid():
			result.Unknown++
		case matches(r):
			keys = append(keys, r.Key)
		}
	}
	result.Mitigations, result.DryRun = len(keys), s.DryRun
	if !s.DryRun {
		result.Mitigations = o.Limiter.LiftAll(keys, now)
	}
	return result, nil
}

// States of a record, as queries name them.
const (
	inForce     = "active"
	ineffective = "ineffective"
	lifted      = "lifted"
)

// stateOf returns the current rule of a record, nil if it was removed or is not known, and the record's state.
// The limits that overrides give the key are only known after the key's next request: until then such a record
// counts as effective.
func (o *Operator) stateOf(r *mitigation.Record) (of *rule.Rule, state string) {
	return stateUnder(o.Limiter.Rules(), r)
}

func stateUnder(rules *rule.Set, r *mitigation.Record) (of *rule.Rule, state string) {
	of = rules.ByFingerprint(r.Rule)
	switch {
	case r.Lifted:
		return of, lifted
	case of == nil && r.Rule != 0, of != nil && of.Overrides == "" && !async.Acts(of, r):
		return of, ineffective
	}
	return of, inForce
}

// Freed returns the number of mitigations that the former rules act on, and the current ones do not.
func (o *Operator) Freed(former *rule.Set) (n int) {
	for r := range o.Table.All(o.Now()) {
		_, before := stateUnder(former, r)
		if _, state := o.stateOf(r); before == inForce && state == ineffective {
			n++
		}
	}
	return n
}

// Reload reloads the node's files, and returns what is in force then.
func (o *Operator) Reload() (Reloaded, error) {
	err := o.ReloadFiles()
	return Reloaded{Rules: len(o.Limiter.Rules().Rules())}, err
}

// Drain takes a shard out of the ring, or puts it back.
func (o *Operator) Drain(shard string, on bool) error {
	err := o.Ring.Drain(shard, on)
	if errors.Is(err, shards.ErrUnknown) {
		return Unknown(err.Error())
	}
	return err
}

// Shards returns the shards, in the order of their addresses.
func (o *Operator) Shards() Shards {
	all, loads := []Shard{}, o.Limiter.Loads()
	for _, s := range o.Ring.States() {
		load := loads[s.Addr]
		all = append(all, Shard{
			Addr: s.Addr, Down: s.Down, InRing: s.InRing, Drained: s.Drained, Breaker: s.Breaker,
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
		all = append(all, Node{Name: n.Name, Self: n.Self, Version: n.Version, Heard: n.Heard.Seconds(), Fingerprints: n.Fingerprints, Differs: n.Differs})
	}
	if o.Gossip == nil {
		return Nodes{Nodes: all}
	}
	all[0].Addr = o.Gossip.Addr()
	for _, m := range o.Gossip.Peers() {
		if i := slices.IndexFunc(all, func(of Node) bool { return of.Name == m.Name && !of.Self }); i >= 0 {
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
		return found, errors.New("pop: the node has no decision log: set decision_log")
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
