package analysis

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/client"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/pop/count"
	"github.com/edgelimit/edge/pop/rule"
)

// coldKeys are the keys of a Simulation that no node can refuse yet: within the time that an estimate covers, they had no
// more requests than the threshold. A request whose keys are all cold passes, and counting it is deferred. When a key gets
// hot, the nodes count its deferred requests: see Simulation.catchUp.
type coldKeys struct {
	bounds map[*rule.Rule][]bound
	span   int64            // of the longest bound
	states aging[coldState] // a key without requests during their life has no effect any more
	sink   uint64           // keeps the compiler from dropping the reads of fetch
}

// A bound is the maximum number of requests that a cold key has within a span.
type bound struct {
	n    int
	span int64 // in microseconds
}

// A coldState is the state of a key.
type coldState struct {
	deferred []deferredRequest // its requests, while it is cold
	hot      bool
}

// A deferredRequest is a request that its node has not counted yet.
type deferredRequest struct {
	at    int64
	flush int32 // index of the node's flush that would have sent it
	node  int16
}

// newColdKeys returns an empty set, or nil if shards fail: what a node knows then depends on when it asked, so no request is
// deferred.
func newColdKeys(o PoPOptions, rules *rule.Set) *coldKeys {
	if len(o.Losses) > 0 {
		return nil
	}
	c := &coldKeys{bounds: map[*rule.Rule][]bound{}}
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
		plans, _, _ := rules.Overridden(r)
		for _, plan := range plans {
			add(plan)
		}
	}
	return c
}

// A simulatedKey is a key of a request.
type simulatedKey struct {
	*coldState // set by coldKeys.stayCold
	rule       *rule.Rule
	bounds     []bound
	key        accesslog.Client
	hash       uint64
	counts     bool // the rule counts the request, if it passes
}

func (k *simulatedKey) of() counter.Key { return counter.Key(k.key) }

// A keyFinder finds the keys of requests.
type keyFinder struct {
	rules    *rule.Set
	client   rule.ClientPrefix
	bounds   map[*rule.Rule][]bound // if nil, no key is cold, and no keys are looked up
	asks     requests
	matched  []*rule.Rule
	material [256]byte
}

// append appends the keys of a request to all, and returns its canonical path. hot reports whether the node must decide
// about the request even if its keys are cold.
func (f *keyFinder) append(all []simulatedKey, e *accesslog.Entry, addr netip.Addr) (keys []simulatedKey, path string, hot bool) {
	req := f.asks.at(e, addr)
	req.Canonicalize(f.client)
	if f.bounds == nil || f.rules.Access(req.Addr) != rule.Unlisted {
		return all, req.Path, true
	}
	f.matched = f.rules.Match(&req, f.matched[:0])
	for _, base := range f.matched {
		keys := base.Keys(f.material[:0], &req)
		for i := range keys.Len() {
			if r := f.rules.Override(base, keys.At(i)); r != nil {
				k := simulatedKey{rule: r, bounds: f.bounds[r], key: accesslog.Client(secret.Tag(keys.At(i))), counts: counts(r, e.Status)}
				k.hash = client.Hash(&k.key)
				all = append(all, k)
			}
		}
	}
	return all, req.Path, req.Malformed
}

// fetch reads the places of keys in the table, so that their cache misses overlap.
func (c *coldKeys) fetch(keys []simulatedKey) {
	for i := range keys {
		c.sink += uint64(c.states.touch(keys[i].hash))
	}
}

// stayCold looks up the keys of a request that comes at now, and reports whether they are all cold and stay so.
func (c *coldKeys) stayCold(keys []simulatedKey, now int64) (cold bool) {
	cold = true
	for i := range keys {
		k := &keys[i]
		k.coldState, _ = c.states.get(&k.key, k.hash, now)
		cold = cold && !k.hot && !(k.counts && k.exceeds(now))
	}
	return cold
}

// exceeds reports whether one more request at now exceeds a bound.
func (k *simulatedKey) exceeds(now int64) bool {
	return slices.ContainsFunc(k.bounds, func(b bound) bool {
		before := len(k.deferred) - b.n
		return before >= 0 && (b.n == 0 || k.deferred[before].at > now-b.span)
	})
}

// add defers a request with this key.
func (c *coldKeys) add(k *simulatedKey, p deferredRequest) {
	if len(k.deferred) == cap(k.deferred) {
		k.deferred = c.recent(k.deferred, p.at)
	}
	k.deferred = append(k.deferred, p)
}

// recent returns those of all that may still count at now. It reuses all.
func (c *coldKeys) recent(all []deferredRequest, now int64) []deferredRequest {
	first := slices.IndexFunc(all, func(p deferredRequest) bool { return p.at > now-c.span })
	if first < 0 {
		return all[:0]
	}
	return all[:copy(all, all[first:])]
}

// flushes are the latest flushes of a node.
type flushes struct {
	n   int32 // number of flushes so far
	all []flush
}

// A flush is when a node sent what it had counted.
type flush struct {
	at   int64 // in microseconds since the Unix epoch
	rank int64 // in the order of all nodes' flushes
}

// add adds a flush. Those before until are not needed any more.
func (f *flushes) add(one flush, until int64) {
	if len(f.all) == cap(f.all) {
		old, _ := slices.BinarySearchFunc(f.all, until, func(one flush, until int64) int { return cmp.Compare(one.at, until) })
		f.all = f.all[:copy(f.all, f.all[old:])]
	}
	f.n, f.all = f.n+1, append(f.all, one)
}

// at returns the flush with index n. If it is still to come, its time is never.
func (f *flushes) at(n int32) flush {
	if n == f.n {
		return flush{never, never}
	}
	return f.all[len(f.all)-int(f.n-n)]
}

// catchUp lets the nodes count the deferred requests of keys. It sets the clock back, so that each flush happens when it
// would have, and so do its effects. What other keys have done since does not matter, since keys do not affect each other,
// as long as a node's memory holds the hot ones. In the end the clock is where it was.
func (s *Simulation) catchUp(keys []simulatedKey) {
	now := s.now
	for i := range keys {
		k := &keys[i]
		for _, send := range s.flushesOf(k.deferred) {
			n, cost := s.nodes[send.node], k.rule.CostOf(1)
			if send.at == never {
				for _, at := range send.arrived {
					n.limiter.Offer(k.rule, k.of(), 0, &count.Source{}, cost, at)
				}
				n.offered = true
				continue
			}
			s.stepUntil(send.at, send.node)
			s.set(send.at)
			n.limiter.Count(k.rule, k.of(), cost, send.arrived)
			s.step(n)
		}
		s.stepUntil(now, len(s.nodes))
		s.set(now)
		k.deferred, k.hot = nil, true
	}
}

// A deferredFlush is the requests of a key that a node would have sent together.
type deferredFlush struct {
	flush   // at never if it is still to come
	node    int
	index   int32
	arrived []time.Time // by the node's clock
}

// flushesOf returns the flushes that would have sent a key's deferred requests, in order.
func (s *Simulation) flushesOf(all []deferredRequest) (sent []deferredFlush) {
	for _, p := range s.cold.recent(all, s.now) {
		i := slices.IndexFunc(sent, func(of deferredFlush) bool { return of.node == int(p.node) && of.index == p.flush })
		if i < 0 {
			i = len(sent)
			sent = append(sent, deferredFlush{flush: s.nodes[p.node].flushed.at(p.flush), node: int(p.node), index: p.flush})
		}
		sent[i].arrived = append(sent[i].arrived, s.nodes[p.node].clock(p.at))
	}
	slices.SortStableFunc(sent, func(a, b deferredFlush) int { return cmp.Compare(a.rank, b.rank) })
	return sent
}

// stepUntil runs the steps of all nodes that are due before to, and those due at to of the nodes with an index below before.
func (s *Simulation) stepUntil(to int64, before int) {
	for {
		next := slices.MinFunc(s.nodes, func(a, b *simulatedNode) int { return cmp.Compare(a.due, b.due) })
		if next.due > to || next.due == to && slices.Index(s.nodes, next) >= before {
			return
		}
		s.set(next.due)
		s.step(next)
	}
}
