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
	"github.com/edgelimit/edge/pop/rule"
)

// An operator has the operations of the admin API and the page on a node. Some hide methods of the node.
type operator struct{ *Node }

// Reload reloads the node's files, and returns what is in force then.
func (n operator) Reload() (admin.Reloaded, error) {
	err := n.Node.Reload()
	return admin.Reloaded{Rules: len(n.Node.Rules().Rules())}, err
}

// Status returns the health of the node.
func (n operator) Status() admin.Status {
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

// Rules returns the current rules with their figures.
func (n operator) Rules() admin.Rules {
	active := map[*rule.Rule]int{}
	for r := range n.table.All(n.o.Now()) {
		if of, state := n.stateOf(r); state == inForce {
			active[of]++
		}
	}
	all := []admin.Rule{}
	for _, r := range n.Node.Rules().Rules() {
		one := admin.Rule{Rule: r.ID, Text: r.Describe(), Action: r.Action.String(), Characteristics: names(r.Characteristics), Mitigations: active[r], Requests: n.limiter.Decided(r)}
		for _, l := range r.Limits {
			one.Limits = append(one.Limits, admin.Limit{Threshold: l.Threshold, Period: l.Period.Seconds()})
		}
		all = append(all, one)
	}
	return admin.Rules{Rules: all}
}

// names returns characteristics as rules files have them.
func names(characteristics []rule.Characteristic) (all []string) {
	for _, c := range characteristics {
		all = append(all, c.String())
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
func (n *Node) near(most int) []count.Near {
	ctx, cancel := context.WithTimeout(context.Background(), nearWait)
	defer cancel()
	return n.limiter.Near(ctx, most)
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

// Mitigation returns the state of one key.
func (n operator) Mitigation(text string) (m admin.Mitigation, err error) {
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
		ByHand: r.ByHand, Node: n.peerTable.NameOf(r.Node), Why: r.Why.String(), Period: float64(r.Why.Limit.Period) / 1e6,
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

// Add starts a mitigation by hand.
func (n operator) Add(o admin.Order) (m admin.Mitigation, err error) {
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

// Lift lifts the mitigation of a key.
func (n operator) Lift(l admin.LiftOne) (admin.Lifted, error) {
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
	if _, err = n.Node.Lift(key); err == limit.ErrNotMitigated {
		who := "key " + key.String()
		if id, ok := l.Values["rule"]; ok {
			who = "by rule " + id + ", this client"
		}
		err = admin.Unknown(fmt.Sprintf("pop: %s is not mitigated", who))
	}
	return admin.Lifted{Key: key.String()}, err
}

// LiftAll lifts the mitigations of a selection, unless it is a dry run.
func (n operator) LiftAll(s admin.Selection) (result admin.LiftedAll, err error) {
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

// Shards returns the shards, in the order of their addresses.
func (n operator) Shards() admin.Shards {
	all, loads := n.shards.States(), n.limiter.Loads()
	for i := range all {
		of := loads[all[i].Addr]
		all[i].Share, all[i].Waiting, all[i].Lag = of.Share, of.Waiting, of.Oldest.Seconds()
	}
	return admin.Shards{Shards: all}
}

// Nodes returns the nodes of the PoP, this one first.
func (n operator) Nodes() admin.Nodes {
	ours := n.status()
	all := n.peerTable.States(&ours, n.o.Now())
	if addr := n.Addr("gossip"); addr != nil {
		all[0].Addr = addr.String()
	}
	if n.gossip == nil {
		return admin.Nodes{Nodes: all}
	}
	for _, m := range n.gossip.Members() {
		if i := slices.IndexFunc(all, func(of admin.Node) bool { return of.Name == m.Name && !of.Self }); i >= 0 {
			if all[i].Addr = m.Addr; m.ClockKnown {
				ahead := m.ClockAhead.Seconds()
				all[i].ClockAhead = &ahead
			}
		}
	}
	return admin.Nodes{Nodes: all}
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
func (n *Node) stateOf(r *mitigation.Record) (of *rule.Rule, state string) {
	of = n.Rules().ByFingerprint(r.Rule)
	switch {
	case r.Lifted:
		return of, lifted
	case of == nil && r.Rule != 0, of != nil && of.Overrides == "" && !count.Acts(of, r):
		return of, ineffective
	}
	return of, inForce
}
