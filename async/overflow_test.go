package async

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/internal/harness"
)

var packedLayouts = func() (all []counter.Layout) {
	for fields := 2; fields <= counter.MaxFields; fields++ {
		l, _ := counter.LayoutOf(fields)
		all = append(all, l)
	}
	return all
}()

// fieldsOf returns the counts in a value.
func fieldsOf(l counter.Layout, number uint64) []uint64 {
	fields := make([]uint64, l.Fields)
	for k := range fields {
		fields[k] = number >> (int(l.Bits) * k) & (1<<l.Bits - 1)
	}
	return fields
}

// one returns the value whose kth field is n.
func one(l counter.Layout, k int, n uint64) uint64 { return n << (int(l.Bits) * k) }

// A crowd is a group of nodes that share one counter, each counting as fast as it can, with a shard
// that may stall, lose replies and restart.
type crowd struct {
	t      *testing.T
	layout counter.Layout
	random *rand.Rand
	nodes  []*crowdNode
	away   []*increment // sent but not executed

	number uint64   // at the shard, which knows nothing of fields
	fields []uint64 // the expected fields

	offered, executed, dropped, gone uint64 // requests: all, ever counted, dropped by full fields, certainly lost
}

type crowdNode struct {
	tally     tally
	waits     *increment // for the reply; nil if no increment is in flight
	restarted bool
	budget    uint64
}

type increment struct {
	delta, start uint64
	create       bool
	executed     bool
	absent       bool
	reply        uint64
}

func newCrowd(t *testing.T, l counter.Layout, nodes int, seed uint64) *crowd {
	c := &crowd{t: t, layout: l, random: rand.New(rand.NewPCG(seed, 6)), fields: make([]uint64, l.Fields)}
	for range nodes {
		c.nodes = append(c.nodes, &crowdNode{budget: l.Budget(counter.Senders(nodes))})
	}
	return c
}

// request adds n requests to the kth sub-window of a node.
func (c *crowd) request(node *crowdNode, k int, n uint64) {
	c.offered += n
	c.dropped += node.tally.add(c.layout, one(c.layout, k, n))
}

// send makes a node send its increments, unless it waits for a reply.
func (c *crowd) send(node *crowdNode) {
	if node.waits != nil {
		return
	}
	delta, full := node.tally.send(c.layout, node.budget)
	if c.dropped += full; delta > 0 {
		node.waits = &increment{delta: delta, create: !node.tally.exists, start: node.tally.start(c.layout)}
		c.away = append(c.away, node.waits)
	}
}

// execute makes the shard execute the ith increment in flight.
func (c *crowd) execute(i int) {
	it := c.away[i]
	c.away = append(c.away[:i], c.away[i+1:]...)
	switch {
	case c.number == 0 && !it.create: // the shard lacks the counter
		if it.absent = true; !slices.ContainsFunc(c.nodes, func(node *crowdNode) bool { return node.waits == it }) {
			c.gone += c.layout.Sum(it.delta) // its node was restarted
		}
		return
	case c.number == 0:
		c.number, c.fields = it.start, fieldsOf(c.layout, it.start)
	}
	c.number += it.delta
	for k, n := range fieldsOf(c.layout, it.delta) {
		c.fields[k] += n
		c.executed += n
	}
	it.executed, it.reply = true, c.number
	if got := fieldsOf(c.layout, c.number); !slices.Equal(got, c.fields) {
		c.t.Fatalf("%v: a field has overflowed: the value holds %v, but %v were counted", c.layout, got, c.fields)
	}
}

// answer gives a node the reply that it waits for, if there is one. Otherwise the node times out, as if
// the reply had been lost.
func (c *crowd) answer(node *crowdNode, lost bool) {
	switch it := node.waits; {
	case it == nil:
		return
	case it.executed && !lost:
		node.tally.reply(c.layout, it.reply, it.delta)
	case it.absent && !lost:
		c.unmade(node, counter.Absent)
	case it.absent:
		c.gone += c.layout.Sum(it.delta)
		fallthrough
	default:
		node.tally.unknown(c.layout, it.delta)
	}
	node.waits = nil
}

// unsent tells a node that its increment was provably not sent.
func (c *crowd) unsent(node *crowdNode) {
	for i, it := range c.away {
		if it == node.waits {
			c.away = append(c.away[:i], c.away[i+1:]...)
			c.unmade(node, counter.NotSent)
			node.waits = nil
			return
		}
	}
}

// unmade tells a node the outcome of its increment, which the shard has not made.
func (c *crowd) unmade(node *crowdNode, outcome counter.Outcome) {
	it := node.waits
	full, refused := node.tally.unmade(c.layout, &counter.Increment{Delta: it.delta, Create: it.create, Outcome: outcome})
	c.dropped += full + refused
}

// restart makes a node lose its state, once.
func (c *crowd) restart(node *crowdNode) {
	if node.restarted {
		return
	}
	c.gone += c.layout.Sum(node.tally.waiting)
	if it := node.waits; it != nil && it.absent {
		c.gone += c.layout.Sum(it.delta)
	}
	node.tally, node.waits, node.restarted = tally{}, nil, true
}

// lose loses the ith increment in flight.
func (c *crowd) lose(i int) {
	c.gone += c.layout.Sum(c.away[i].delta)
	c.away = append(c.away[:i], c.away[i+1:]...)
}

// total returns the number of all requests, wherever they are.
func (c *crowd) total() uint64 {
	sum := c.executed + c.dropped + c.gone
	for _, it := range c.away {
		sum += c.layout.Sum(it.delta)
	}
	for _, node := range c.nodes {
		sum += c.layout.Sum(node.tally.waiting)
		if it := node.waits; it != nil && it.absent {
			sum += c.layout.Sum(it.delta)
		}
	}
	return sum
}

// A thousand schedules of requests, flushes, timeouts whose increments are executed later, and
// restarts: no field overflows into its neighbor, and every request is accounted for.
func TestNoScheduleOverflowsField(t *testing.T) {
	const nodes, schedules = 16, 1000
	stopped := 0
	for seed := range uint64(schedules) {
		l := packedLayouts[3+seed%2] // layouts with few bits, which are soon full
		if seed%20 == 0 {
			l = packedLayouts[seed/20%3]
		}
		c := newCrowd(t, l, nodes, seed)
		// How often the shard executes, answers and fails differs from schedule to schedule.
		prompt, patient, faults := 2+c.random.IntN(12), 1+c.random.IntN(20), c.random.IntN(3)
		burst := 1 + c.random.Uint64N(2*l.Stop()/nodes)
		for range 3000 {
			node := c.nodes[c.random.IntN(nodes)]
			k := c.random.IntN(2) * c.random.IntN(int(l.Fields)) // mostly the first
			c.request(node, k, 1+c.random.Uint64N(burst))
			c.send(node)
			for range c.random.IntN(prompt) {
				if len(c.away) > 0 {
					c.execute(c.random.IntN(len(c.away)))
				}
			}
			if c.random.IntN(patient) == 0 {
				c.answer(node, c.random.IntN(3) < faults)
			} else if node.waits != nil && node.waits.executed {
				c.answer(node, false)
			}
			switch c.random.IntN(200) {
			case 0:
				c.restart(node)
			case 1:
				c.unsent(node)
			case 2:
				if faults > 0 && len(c.away) > 0 {
					c.lose(c.random.IntN(len(c.away)))
				}
			case 3:
				if faults > 1 && c.random.IntN(10) == 0 { // the shard restarts
					c.number = 0
					clear(c.fields)
				}
			}
			if got := c.total(); got != c.offered {
				t.Fatalf("schedule %d, %v: %d requests are accounted for, %d were made", seed, l, got, c.offered)
			}
		}
		for len(c.away) > 0 {
			c.execute(0) // increments that have stalled until now
		}
		if c.fields[0] >= l.Stop() {
			stopped++
		}
	}
	if stopped < schedules/2 {
		t.Errorf("a field was full in only %d of %d schedules: the test covers too little", stopped, schedules)
	}
}

// In the worst case, all nodes have as much in flight as they may when the field is one below its stop, then restart,
// and have as much in flight again.
func TestBudgetFillsFieldExactly(t *testing.T) {
	const nodes = 16
	for _, l := range packedLayouts {
		c := newCrowd(t, l, nodes, 0)
		for range counter.Senders(nodes) / nodes {
			for _, node := range c.nodes {
				for range 3 { // each timeout leaves less
					c.request(node, 0, l.Stop())
					c.send(node)
					c.answer(node, true)
				}
				c.restart(node)
			}
		}
		// Other nodes have filled the field meanwhile.
		c.number, c.fields[0] = l.Stop()-1, l.Stop()-1
		for len(c.away) > 0 {
			c.execute(0)
		}
		most := uint64(1)<<l.Bits - 1
		if got := c.fields[0]; got != most {
			t.Errorf("%v: a field is at %d in the worst case, want its maximum, %d", l, got, most)
		}
	}
}

// Nodes that count as fast as possible fill each field of a real memcached to its stop, but do not
// overflow it.
func TestGreedyNodesAtMemcached(t *testing.T) {
	m := harness.StartMemcached(t)
	for _, nodes := range []int{16, 64} {
		for _, fields := range []int{4, 5, 6} {
			l, _ := counter.LayoutOf(fields)
			t.Run(fmt.Sprintf("%d nodes, %v", nodes, l), func(t *testing.T) {
				key := fmt.Sprintf("greedy-%d-%06d", nodes, fields)
				var counted [64]uint64 // by each node
				var all sync.WaitGroup
				for i := range nodes {
					s := memcached.New(m.Addr, wire.Options{Timeout: 20 * time.Second})
					defer s.Close()
					all.Go(func() {
						var own tally
						for k := range fields {
							if k == 1 {
								continue // a neighbor that must stay empty
							}
							for {
								own.add(l, one(l, k, 3*l.Stop()/4))
								delta, full := own.send(l, l.Budget(counter.Senders(nodes)))
								if full > 0 {
									break
								}
								b := counter.Batch{Increments: []counter.Increment{{Item: counter.Item([]byte(key)), Delta: delta, TTL: 60, Create: true}}}
								if err := s.Exchange(&b); err != nil {
									t.Error(err)
									return
								}
								own.reply(l, b.Increments[0].Value, delta)
								counted[i] += l.Sum(delta)
							}
						}
					})
				}
				all.Wait()
				s := memcached.New(m.Addr, wire.Options{Timeout: 20 * time.Second})
				defer s.Close()
				number, ok := counter.ParseValue(harness.Values(t, s, key)[key])
				if !ok {
					t.Fatal("the counter is not a number")
				}
				var sum uint64
				for _, n := range counted {
					sum += n
				}
				got := fieldsOf(l, number)
				for k, n := range got {
					if full := n >= l.Stop(); full == (k == 1) || k == 1 && n != 0 {
						t.Errorf("field %d is at %d, the stop is %d: %v", k, n, l.Stop(), got)
					}
				}
				if l.Sum(number) != sum {
					t.Errorf("the number holds %d requests, %d were counted: %v", l.Sum(number), sum, got)
				}
				t.Log(strings.Trim(fmt.Sprint(got), "[]"))
			})
		}
	}
}

// Fields are added and compared independently.
func TestPackedTally(t *testing.T) {
	l := packedLayouts[4] // 6×10
	number := func(fields ...uint64) (n uint64) {
		for k, each := range fields {
			n |= one(l, k, each)
		}
		return n
	}
	type step struct {
		what string
		do   func(*tally)
		want uint64
	}
	const budget = 8
	for name, steps := range map[string][]step{
		"a field that is full does not carry": {
			{"1000 are counted", func(t *tally) { t.reply(l, number(1000, 2), 0) }, number(1000, 2)},
			{"100 more", func(t *tally) { t.add(l, number(100, 1)) }, number(1023, 3)},
			{"none of them is sent", func(t *tally) { t.send(l, budget) }, number(1000, 3)},
		},
		"what exceeds the budget is sent later": {
			{"20 wait", func(t *tally) { t.add(l, number(20, 3)) }, number(20, 3)},
			{"8 are sent", func(t *tally) { t.send(l, budget) }, number(20, 3)},
			{"counted", func(t *tally) { t.reply(l, number(8, 3), number(8, 3)) }, number(20, 3)},
			{"8 more", func(t *tally) { t.send(l, budget) }, number(20, 3)},
			{"others counted as well", func(t *tally) { t.reply(l, number(20, 3), number(8)) }, number(24, 3)},
		},
		"a restart that one field shows": {
			{"counted", func(t *tally) { t.reply(l, number(10, 20), 0) }, number(10, 20)},
			{"one more", func(t *tally) { t.add(l, number(1)); t.send(l, budget) }, number(11, 20)},
			{"the shard has begun anew", func(t *tally) { t.reply(l, number(1, 30), number(1)) }, number(11, 30)},
			{"what shards have counted continues", func(t *tally) { t.known = t.start(l) }, number(10, 30)},
		},
		"no answer, twice": {
			{"20 wait", func(t *tally) { t.add(l, number(20)) }, number(20)},
			{"unknown", func(t *tally) { d, _ := t.send(l, budget); t.unknown(l, d) }, number(20)},
			{"the budget is used up", func(t *tally) {
				if d, _ := t.send(l, budget); d != 0 {
					t.waiting = number(1023) // would show in the result
				}
			}, number(20)},
			{"another field has its own", func(t *tally) { t.add(l, number(0, 5)); d, _ := t.send(l, budget); t.reply(l, d, d) }, number(20, 5)},
		},
		"a full field starts below its stop": {
			{"counted", func(t *tally) { t.reply(l, number(1000, 7), 0) }, number(1000, 7)},
			{"anew", func(t *tally) { t.known = t.start(l) }, number(l.Stop()-1, 7)},
		},
	} {
		var tl tally
		for _, s := range steps {
			if s.do(&tl); tl.all(l) != s.want {
				t.Errorf("%s: %s: knows %v, want %v", name, s.what, fieldsOf(l, tl.all(l)), fieldsOf(l, s.want))
			}
		}
	}
}
