package pop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/admin"
	"github.com/edgelimit/edge/pop/count"
	"github.com/edgelimit/edge/pop/limit"
	"github.com/edgelimit/edge/pop/page"
	"github.com/edgelimit/edge/pop/rule"
)

// operations returns the operations of the admin API on this node.
func (n *Node) operations() *admin.Operations {
	return &admin.Operations{
		Status: n.status, Rules: n.ruleStates, Mitigations: n.Mitigations, Mitigation: n.mitigation, Explain: n.Explain,
		Add: n.add, Lift: n.liftOne, LiftAll: n.liftAll, Shards: n.shardStates, Drain: n.Drain, Nodes: n.nodeStates, Decisions: n.recentDecisions,
		Reload: func() (admin.Reloaded, error) {
			err := n.Reload()
			return admin.Reloaded{Rules: len(n.Rules().Rules())}, err
		},
	}
}

// status returns the health of the node.
func (n *Node) status() admin.Status {
	now := n.o.Now()
	s := admin.Status{Node: n.o.Name, Version: n.o.Version, Problems: []string{}, Mitigations: map[string]int{}}
	detail, err := n.readiness()
	if s.Ready = err == nil; err != nil {
		detail = []string{err.Error()}
	}
	s.Problems = append(s.Problems, detail...)
	keys, oldest := n.limiter.Backlog()
	s.BacklogKeys, s.Lag = keys, oldest.Seconds()
	for r := range n.table.All(now) {
		switch of, state := n.stateOf(r); state {
		case lifted:
			s.Lifted++
		case ineffective:
			s.Ineffective++
		default:
			id := "" // not known
			if of != nil {
				id = of.ID
			}
			s.Mitigations[id]++
		}
	}
	return s
}

// ruleStates returns the current rules with their figures.
func (n *Node) ruleStates() (all []admin.Rule) {
	active := map[*rule.Rule]int{}
	for r := range n.table.All(n.o.Now()) {
		if of, state := n.stateOf(r); state == inForce {
			active[of]++
		}
	}
	for _, r := range n.Rules().Rules() {
		one := admin.Rule{Rule: r.ID, Text: r.Describe(), Action: r.Action.String(), Mitigations: active[r], Requests: n.limiter.Decided(r)}
		for _, c := range r.Characteristics {
			one.Characteristics = append(one.Characteristics, c.String())
		}
		for _, l := range r.Limits {
			one.Limits = append(one.Limits, admin.Limit{Threshold: l.Threshold, Period: l.Period.Seconds()})
		}
		all = append(all, one)
	}
	return all
}

// changed returns a number that changes whenever mitigations or rules do.
func (n *Node) changed() uint64 {
	digest := n.table.Digest()
	return digest.Sum() ^ n.Rules().Hash()
}

// nearWait is how long the page waits for the counting loop.
const nearWait = time.Second

// near returns at most n keys near their threshold.
func (n *Node) near(most int) (all []page.Near) {
	ctx, cancel := context.WithTimeout(context.Background(), nearWait)
	defer cancel()
	for _, of := range n.limiter.Near(ctx, most) {
		one := page.Near{Key: of.Key.String(), Rule: of.Rule.ID, Threshold: of.Limit.Threshold, Period: time.Duration(of.Limit.Period) * time.Microsecond, Remaining: of.Remaining}
		if of.Client.IsValid() {
			one.Client = of.Client.String()
		}
		all = append(all, one)
	}
	return all
}

// setRules replaces the rules by checked ones.
func (n *Node) setRules(set *rule.Set) {
	before := n.effective()
	n.limiter.SetRules(set)
	if freed := before - n.effective(); freed > 0 {
		n.o.Logger.Info("some mitigations have no effect under the new rules", "mitigations", freed)
	}
	n.noteNodes()
}

// effective returns the number of mitigations that are effective under the current rules.
func (n *Node) effective() (effective int) {
	for r := range n.table.All(n.o.Now()) {
		if of, state := n.stateOf(r); of != nil && state == inForce {
			effective++
		}
	}
	return effective
}

// mitigation returns the state of one key.
func (n *Node) mitigation(text string) (m admin.Mitigation, err error) {
	key, err := parseKey(text)
	if err != nil {
		return m, err
	}
	now := n.o.Now()
	r, ok := n.table.Held(key, now)
	if !ok {
		return m, admin.Unknown(fmt.Sprintf("pop: %s is not mitigated", text))
	}
	return *n.describe(&r, now), nil
}

// describe returns a record as operators see it.
func (n *Node) describe(r *mitigation.Record, now time.Time) *admin.Mitigation {
	m := &admin.Mitigation{
		Key: r.Key.String(), ID: n.secret.ID(r.Key).String(), Start: time.UnixMicro(r.Start).UTC(), Left: r.Deadline.Sub(now).Seconds(), Lifted: r.Lifted,
		ByHand: r.ByHand, Node: n.peerTable.nameOf(r.Node), Why: r.Why.String(), Period: float64(r.Why.Limit.Period) / 1e6,
	}
	of, state := n.stateOf(r)
	if m.Ineffective = state == ineffective; of != nil {
		m.Rule, m.Action = of.ID, of.Action.String()
	}
	if r.Client.IsValid() && n.o.LogClients {
		m.Client = r.Client.String()
	}
	if s := r.Sample; s != nil && n.o.LogClients {
		m.Method, m.Host, m.Path = s.Method, s.Host, s.Path
	}
	return m
}

// add starts a mitigation by hand.
func (n *Node) add(o admin.Order) (m admin.Mitigation, err error) {
	_, r, key, err := n.keyOf(o.Values)
	if err != nil {
		return m, err
	}
	if r == nil {
		return m, errors.New("pop: the overrides of the rule exempt this key")
	}
	if o.Duration > mitigation.MaxLifetime {
		return m, admin.Invalid(fmt.Sprintf("duration: a mitigation lasts at most %v", mitigation.MaxLifetime))
	}
	if o.Duration < time.Second {
		return m, admin.Invalid("duration: a mitigation lasts at least 1s")
	}
	now := n.o.Now()
	client, _ := netip.ParseAddr(o.Values["ip"]) // invalid for rules with other characteristics
	record, err := n.limiter.Add(key, r, client, o.Duration, now)
	if err != nil {
		return m, err
	}
	return *n.describe(&record, now), nil
}

// liftOne lifts the mitigation of a key.
func (n *Node) liftOne(l admin.LiftOne) (admin.Lifted, error) {
	var key counter.Key
	var err error
	if text, ok := l.Values["key"]; ok && len(l.Values) == 1 {
		key, err = parseKey(text)
	} else {
		_, _, key, err = n.keyOf(l.Values)
	}
	if err != nil {
		return admin.Lifted{}, err
	}
	if _, err = n.Lift(key); err == limit.ErrNotMitigated {
		who := "key " + key.String()
		if id, ok := l.Values["rule"]; ok {
			who = "by rule " + id + ", this client"
		}
		err = admin.Unknown(fmt.Sprintf("pop: %s is not mitigated", who))
	}
	return admin.Lifted{Key: key.String()}, err
}

// liftAll lifts the mitigations of a selection, unless it is a dry run.
func (n *Node) liftAll(s admin.Selection) (result admin.LiftedAll, err error) {
	matches, err := n.matcher(admin.Query{Rule: s.Rule, Client: s.Client})
	if err != nil {
		return result, err
	}
	now := n.o.Now()
	var keys []counter.Key
	for r := range n.table.All(now) {
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
		result.Mitigations = n.limiter.LiftAll(keys, now)
	}
	return result, nil
}

// shardStates returns the shards as operators see them.
func (n *Node) shardStates() []admin.Shard {
	all, loads := n.ring.states(), n.limiter.Loads()
	for i := range all {
		of := loads[all[i].Addr]
		all[i].Share, all[i].Waiting, all[i].Lag = of.Share, of.Waiting, of.Oldest.Seconds()
	}
	return all
}

// nodeStates returns the nodes of the PoP, this one first.
func (n *Node) nodeStates() []admin.Node {
	all := n.peerTable.states(n.o.Now())
	if n.gossip != nil {
		for _, m := range n.gossip.Members() {
			if i := slices.IndexFunc(all, func(of admin.Node) bool { return of.Name == m.Name }); i >= 0 {
				if all[i].Addr = m.Addr; m.ClockKnown {
					ahead := m.ClockAhead.Seconds()
					all[i].ClockAhead = &ahead
				}
			}
		}
	}
	self := admin.Node{Name: n.o.Name, Self: true, Version: n.shortVersion(), Fingerprints: n.fingerprints().shown(), Differs: []string{}}
	if addr := n.Addr("gossip"); addr != nil {
		self.Addr = addr.String()
	}
	return append([]admin.Node{self}, all...)
}

// States of a record.
const (
	inForce = iota
	ineffective
	lifted
)

// stateOf returns the current rule of a record, nil if it was removed or is not known, and the record's state.
// The limits that overrides give the key are only known after the key's next request: until then such a record
// counts as effective.
func (n *Node) stateOf(r *mitigation.Record) (of *rule.Rule, state int) {
	of = n.Rules().ByFingerprint(r.Rule)
	switch {
	case r.Lifted:
		return of, lifted
	case of == nil && r.Rule != 0, of != nil && of.Overrides == "" && !count.Acts(of, r):
		return of, ineffective
	}
	return of, inForce
}
