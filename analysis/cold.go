package analysis

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/client"
	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/rule"
)

// coldKeys finds the keys of a Simulation's requests, and which are cold: no node can refuse them yet, as within the time
// that an estimate covers, they had no more requests than the threshold. A request whose keys are all cold
// passes, and counting it is deferred. When a key becomes hot, the nodes count its deferred requests: see
// Simulation.catchUp. coldKeys does not depend on the decisions of nodes, so it may run ahead of them.
type coldKeys struct {
	rules    *rule.Set
	client   rule.ClientPrefix
	requests requests
	matched  []*rule.Rule
	material [256]byte

	bounds  map[*rule.Rule][]bound // nil if no request is deferred
	span    int64                  // of the longest bound
	states  agingTable[coldState]  // its life is the time after which an idle key has no effect
	counted []uint64               // deferred requests that a rule counts, by the rule's index
	n       uint32                 // number of requests so far; it may wrap around
	sink    uint64                 // keeps the compiler from dropping the reads of fetch
}

// A bound is the maximum number of requests that a cold key has within a span.
type bound struct {
	n    int
	span int64 // in microseconds
}

// A coldState is the state of a key.
type coldState struct {
	deferred []deferredRequest // its requests, as long as it is cold
	hot      bool
}

// A deferredRequest is a request that its node has not counted yet.
type deferredRequest struct {
	at     int64
	number uint32 // number of the request
	node   uint16
}

// newColdKeys returns an empty set. If shards fail, no key is cold, because a node's state then depends on when it
// asks them.
func newColdKeys(o PoPOptions, rules *rule.Set) *coldKeys {
	c := &coldKeys{rules: rules, client: o.Client, requests: requests{fields: rules.ReadsFields()}, counted: make([]uint64, len(rules.Rules())), states: newAgingTable[coldState](0)}
	if len(o.Losses) > 0 {
		return c
	}
	c.bounds = map[*rule.Rule][]bound{}
	add := func(r *rule.Rule) {
		for _, l := range r.Limits {
			const rounding = 1e6 // nodes count a request at the start of its tick
			b := bound{int(min(l.Threshold/r.CostOf(1), 1<<30)), 2*l.Period.Microseconds() + o.Skew.Microseconds() + rounding}
			if r.MinClients > 1 {
				b.n = 0 // a deferred request does not name its client
			}
			c.bounds[r] = append(c.bounds[r], b)
			c.span = max(c.span, b.span)
			c.states.life = max(c.states.life, c.span+r.MitigationTimeout.Microseconds()+2*o.Lag.Microseconds())
		}
	}
	for _, r := range rules.Rules() {
		add(r)
		plans, _ := rules.Overridden(r)
		for _, plan := range plans {
			add(plan)
		}
	}
	return c
}

// A simulatedKey is a key of a request.
type simulatedKey struct {
	rule   *rule.Rule
	bounds []bound
	key    accesslog.Client
	hash   uint64
	counts bool              // the rule counts the request, if it passes
	state  *coldState        // set by coldKeys.take
	late   []deferredRequest // to be counted by the nodes first: the key has just become hot
}

func (k *simulatedKey) counterKey() counter.Key { return counter.Key(k.key) }

// find appends the keys of a request to all, and returns its canonical path. hot reports whether a node must
// decide the request even if its keys are cold.
func (c *coldKeys) find(all []simulatedKey, e *accesslog.Entry, addr netip.Addr) (keys []simulatedKey, path string, hot bool) {
	req := c.requests.at(e, addr)
	req.Canonicalize(c.client)
	if c.bounds == nil || c.rules.Access(req.Addr) != rule.Unlisted {
		return all, req.Path, true
	}
	c.matched = c.rules.Match(&req, c.matched[:0])
	for _, base := range c.matched {
		keys := base.Keys(c.material[:0], &req)
		for i := range keys.Len() {
			r := c.rules.Override(base, keys.At(i))
			k := simulatedKey{rule: r, bounds: c.bounds[r], key: accesslog.Client(secret.Tag(keys.At(i))), counts: counts(r, e.Status)}
			k.hash = client.Hash(&k.key)
			all = append(all, k)
		}
	}
	return all, req.Path, req.Malformed
}

// fetch reads the table entries of keys, so that their cache misses overlap.
func (c *coldKeys) fetch(keys []simulatedKey) {
	for i := range keys {
		c.sink += uint64(c.states.touch(keys[i].hash))
	}
}

// take defers the next request, which reaches a node at now, if all its keys are cold and stay so, and returns
// how often the node counts it. Otherwise it returns mustDecide.
func (c *coldKeys) take(keys []simulatedKey, hot bool, now int64, node uint16) (n int) {
	p := deferredRequest{now, c.n, node}
	c.n++
	c.states.age(now, now)
	for i := range keys {
		k := &keys[i]
		k.state = c.states.get(&k.key, k.hash)
		hot = hot || k.state.hot || k.counts && k.exceeds(now)
	}
	if hot {
		for i := range keys {
			k := &keys[i]
			k.late, k.state.deferred, k.state.hot = c.recent(k.state.deferred, now), nil, true
		}
		return mustDecide
	}
	var last *rule.Rule // the keys of a rule are adjacent
	for i := range keys {
		k := &keys[i]
		if !k.counts {
			continue
		}
		if len(k.state.deferred) == cap(k.state.deferred) {
			k.state.deferred = c.recent(k.state.deferred, now)
		}
		k.state.deferred = append(k.state.deferred, p)
		n++
		if r := k.rule.Base(); r != last {
			c.counted[r.Index]++
			last = r
		}
	}
	return n
}

const mustDecide = -1

// exceeds reports whether one more request at now exceeds a bound.
func (k *simulatedKey) exceeds(now int64) bool {
	return slices.ContainsFunc(k.bounds, func(b bound) bool {
		before := len(k.state.deferred) - b.n
		return before >= 0 && (b.n == 0 || k.state.deferred[before].at > now-b.span)
	})
}

// recent returns the requests in all that may still count at now. It reuses the memory of all.
func (c *coldKeys) recent(all []deferredRequest, now int64) []deferredRequest {
	first := slices.IndexFunc(all, func(p deferredRequest) bool { return p.at > now-c.span })
	if first < 0 {
		return all[:0]
	}
	return all[:copy(all, all[first:])]
}

// flushes are the latest flushes of a node, in order.
type flushes []flush

// A flush is the time at which a node sent its counts.
type flush struct {
	at    int64  // in microseconds since the Unix epoch
	rank  int64  // position among the flushes of all nodes
	after uint32 // number of requests that nodes had decided
}

// add adds a flush. Flushes before until are no longer needed.
func (f *flushes) add(added flush, until int64) {
	if len(*f) == cap(*f) {
		old, _ := slices.BinarySearchFunc(*f, until, func(f flush, until int64) int { return cmp.Compare(f.at, until) })
		*f = (*f)[:copy(*f, (*f)[old:])]
	}
	*f = append(*f, added)
}

// flushOf returns the flush that sent a request. If it has not happened yet, its time is never.
func (f flushes) flushOf(request uint32) flush {
	i, _ := slices.BinarySearchFunc(f, request, func(f flush, request uint32) int { return cmp.Compare(int32(f.after-request), 1) })
	if i == len(f) {
		return flush{at: never, rank: never}
	}
	return f[i]
}

// catchUp makes the nodes count the late requests of keys. It sets the clock back, so that each flush and its
// effects happen at the right time. Other keys do not matter: keys do not affect each other as long as a node's
// memory can hold the hot ones. At the end the clock is restored.
func (s *Simulation) catchUp(keys []simulatedKey) {
	now := s.now
	for i := range keys {
		k := &keys[i]
		if len(k.late) == 0 {
			continue
		}
		for _, send := range s.flushesOf(k.late) {
			n, cost := s.nodes[send.node], k.rule.CostOf(1)
			if send.at == never {
				for _, at := range send.arrived {
					n.limiter.Offer(k.rule, k.counterKey(), 0, &async.Source{}, cost, at)
				}
				n.offered = true
				continue
			}
			s.stepUntil(send.at, int(send.node))
			s.now = send.at
			n.limiter.Count(k.rule, k.counterKey(), cost, send.arrived)
			s.step(n)
		}
		s.stepUntil(now, len(s.nodes))
		s.now = now
	}
}

// A deferredFlush holds the requests of a key that a node would have sent together.
type deferredFlush struct {
	flush   // its time is never if it has not happened yet
	node    uint16
	arrived []time.Time // by the node's clock
}

// flushesOf returns the flushes that would have sent a key's deferred requests, in order.
func (s *Simulation) flushesOf(late []deferredRequest) (sent []deferredFlush) {
	for _, p := range late {
		sentIn := s.nodes[p.node].flushed.flushOf(p.number)
		i := slices.IndexFunc(sent, func(other deferredFlush) bool { return other.node == p.node && other.rank == sentIn.rank })
		if i < 0 {
			i = len(sent)
			sent = append(sent, deferredFlush{flush: sentIn, node: p.node})
		}
		sent[i].arrived = append(sent[i].arrived, s.nodes[p.node].clock(p.at))
	}
	slices.SortStableFunc(sent, func(a, b deferredFlush) int { return cmp.Compare(a.rank, b.rank) })
	return sent
}

// stepUntil runs the steps that are due before to on all nodes, and those due at to on the nodes whose index is
// below before.
func (s *Simulation) stepUntil(to int64, before int) {
	for {
		next := slices.MinFunc(s.nodes, func(a, b *simulatedNode) int { return cmp.Compare(a.due, b.due) })
		if next.due > to || next.due == to && slices.Index(s.nodes, next) >= before {
			return
		}
		s.now = next.due
		s.step(next)
	}
}
