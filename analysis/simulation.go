package analysis

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/count"
	"github.com/edgelimit/edge/pop/limit"
	"github.com/edgelimit/edge/pop/rule"
)

// PoPOptions say what a simulated PoP is like. The zero value is one node that knows
// everything at once.
type PoPOptions struct {
	// Nodes is how many nodes there are, at most 1000. If zero, 1.
	Nodes int

	// Shards is how many counter shards there are, at most 1000. If zero, 1.
	Shards int

	// Spread says how requests come to nodes.
	Spread Spread

	// Lag is how long a node gathers counts before it sends them, from the first one on,
	// and how long a record takes to the other nodes. If zero, both are done before the
	// next request. Real nodes do not wait that long with a key that is near its threshold,
	// so what passes here is the most that passes there. Here as there a node refuses on its own
	// evidence before it has sent it, and sends counts sooner where it has gathered many.
	Lag time.Duration

	// Skew is how far the nodes' clocks are apart: evenly from Skew/2 behind the log's time,
	// the first node, to Skew/2 ahead of it, the last one.
	Skew time.Duration

	// Losses are shards that fail.
	Losses []Loss

	// Client says which part of an address is one client. If zero, an IPv4 address, an
	// IPv6 /64.
	Client rule.ClientPrefix

	// Seed decides which node a request comes to.
	Seed uint64
}

const maxParts = 1000 // nodes, and shards; each takes memory

func (o PoPOptions) withDefaults() (PoPOptions, error) {
	switch {
	case o.Nodes < 0 || o.Nodes > maxParts:
		return o, fmt.Errorf("analysis: a PoP cannot have %d nodes, 1 to %d can be simulated", o.Nodes, maxParts)
	case o.Shards < 0 || o.Shards > maxParts:
		return o, fmt.Errorf("analysis: a PoP cannot have %d shards, 1 to %d can be simulated", o.Shards, maxParts)
	case o.Lag < 0 || o.Skew < 0:
		return o, errors.New("analysis: a lag or a skew cannot be negative")
	case o.Spread > ByRequest:
		return o, fmt.Errorf("analysis: there is no spread %d", o.Spread)
	}
	o.Nodes, o.Shards = max(1, o.Nodes), max(1, o.Shards)
	for _, l := range o.Losses {
		if l.Shard < 0 || l.Shard >= o.Shards {
			return o, fmt.Errorf("analysis: shard %d cannot be lost, there are %d", l.Shard+1, o.Shards)
		}
		if l.At < 0 || l.For < 0 {
			return o, errors.New("analysis: a shard cannot be lost at a negative time, or for one")
		}
	}
	return o, nil
}

// isInstant reports whether the PoP knows everything at once, so that an instantPoP will do.
func (o PoPOptions) isInstant() bool { return o.Nodes == 1 && o.Lag == 0 && len(o.Losses) == 0 }

// report returns what o is like.
func (o PoPOptions) report() PoPReport {
	r := PoPReport{Nodes: o.Nodes, Shards: o.Shards, Spread: o.Spread.String(), LagS: o.Lag.Seconds(), SkewS: o.Skew.Seconds(), Seed: o.Seed}
	for _, l := range o.Losses {
		r.Losses = append(r.Losses, l.String())
	}
	return r
}

// A Simulation is a PoP on a virtual clock, in the caller's goroutine. Its nodes decide and
// count by the limiter of a real one; its shards and what lies between them are in memory.
// Its clock stands where the log does.
type Simulation struct {
	o       PoPOptions
	asks    requests
	begun   bool
	start   int64 // of the log, in microseconds since the Unix epoch
	now     int64 // its virtual time
	nodes   []*simulatedNode
	shards  []*memoryShard
	spread  spread
	letters []letter // on their way, in the order in which they arrive
	turns   []int64  // when something happens to shards, in order

	// mitigated is called with each record that a node makes or prolongs, now, and when it
	// ends by the time of the log. May be nil.
	mitigated func(record mitigation.Record, now, end int64)
}

// A simulatedNode is a node without its sockets.
type simulatedNode struct {
	limiter *limit.Limiter
	ahead   int64 // of the log's time, in microseconds
	flush   int64 // when it sends what it has counted; never if there is nothing
	waiting int   // how many counts that are
	due     int64 // when else there is something to do
}

// A letter is a record on its way to all nodes but its sender.
type letter struct {
	from   int
	at     int64
	packet []byte
}

// maxWaiting is how many counts a node gathers: half of what its queue holds, so that none is
// dropped.
const maxWaiting = 8192

// never is later than any time of a log.
const never = 1<<63 - 1

// NewSimulation returns a PoP with rules.
func NewSimulation(o PoPOptions, rules *rule.Set) (*Simulation, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := rules.CheckNodes(o.Nodes); err != nil {
		return nil, err
	}
	s := &Simulation{o: o, spread: newSpread(o), asks: requests{fields: rules.ReadsFields()}}
	var shards []count.Shard
	for i := range o.Shards {
		s.shards = append(s.shards, newMemoryShard(fmt.Sprintf("shard-%d", i+1)))
		shards = append(shards, s.shards[i])
	}
	for i := range o.Nodes {
		n := &simulatedNode{flush: never, due: never}
		if o.Nodes > 1 {
			n.ahead = o.Skew.Microseconds() * int64(2*i-(o.Nodes-1)) / int64(2*(o.Nodes-1))
		}
		table, err := mitigation.New(mitigation.Options{})
		if err != nil {
			return nil, err
		}
		n.limiter, err = limit.New(limit.Options{
			Secret:   secret,
			Node:     mitigation.NodeID(i + 1),
			Rules:    rules,
			Table:    table,
			Shards:   shards,
			Client:   o.Client,
			Interval: max(o.Lag, 1),
			Queue:    s.queue(rules),
			Now:      func() time.Time { return n.clock(s.now) },
			Publish:  func(r mitigation.Record) { s.publish(i, r) },
			Nodes:    func() int { return o.Nodes },
			Ahead:    func() time.Duration { return time.Duration(n.ahead-s.nodes[0].ahead) * time.Microsecond },
			Logger:   slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return nil, err
		}
		s.nodes = append(s.nodes, n)
	}
	return s, nil
}

// secret makes the keys. No client of a log can see or choose one.
var secret = func() counter.Secret {
	s, err := counter.NewSecret("nobody sends to a simulation")
	if err != nil {
		panic("analysis: " + err.Error())
	}
	return s
}()

// queue returns how many keys wait to be counted at most: without a lag, those of one
// request. A queue has 16 parts, and keys may all fall into one.
func (s *Simulation) queue(rules *rule.Set) int {
	if s.o.Lag == 0 {
		return 16 * min(len(rules.Rules())+1, 1<<10)
	}
	return 2*maxWaiting + 16*len(rules.Rules())
}

// clock returns what n's clock shows at a time of the log.
func (n *simulatedNode) clock(now int64) time.Time { return time.UnixMicro(now + n.ahead) }

// Decide lets a request come to one of the nodes, and returns what that decides. Its time must
// not fall; if it does, it comes right after the one before. The origin answers at once, with
// the status of the log. e is not kept.
func (s *Simulation) Decide(e *accesslog.Entry) (d limit.Decision) {
	req := s.asks.of(e)
	s.begin(e.Time)
	s.decide(&d, e, &req, s.spread.node(req.Addr, max(s.now, e.Time)))
	return d
}

// decide is Decide for a request that was made of e, and comes to a node. d must be zero.
func (s *Simulation) decide(d *limit.Decision, e *accesslog.Entry, req *rule.Request, node int) {
	s.begin(e.Time)
	s.advance(max(s.now, e.Time))
	n := s.nodes[node]
	now := n.clock(s.now)
	n.limiter.DecideTo(d, req, now)
	n.limiter.Answered(d, e.Status, nil, now) // a log does not tell headers of answers
	before := n.waiting
	for r := range d.Counts {
		if counts(r, e.Status) {
			n.waiting++
		}
	}
	switch {
	case d.Verdict.Refused() && n.waiting == before:
	case s.o.Lag == 0 || n.waiting >= maxWaiting:
		s.count(n)
		s.advance(s.now) // without a lag, records arrive before the next request
	case n.waiting > 0 && n.flush == never:
		n.flush = s.now + s.o.Lag.Microseconds()
	}
}

// begin sets the clock to the time of the log's first request, which is at.
func (s *Simulation) begin(at int64) {
	if s.begun {
		return
	}
	s.begun, s.start, s.now = true, at, at
	for _, after := range turnsOf(s.o.Losses) {
		s.turns = append(s.turns, at+after)
	}
	s.tick()
}

// tick tells the shards the time.
func (s *Simulation) tick() {
	for _, shard := range s.shards {
		shard.tick(s.now / 1e6)
	}
}

// advance lets the clock go on to a time, and everything happen in its order until then. Of what
// happens at the same time, shards fail first, then records arrive, then counts are sent.
func (s *Simulation) advance(to int64) {
	for {
		at, next := int64(never), (*simulatedNode)(nil)
		if len(s.turns) > 0 {
			at = s.turns[0]
		}
		arrives := len(s.letters) > 0 && s.letters[0].at < at
		if arrives {
			at = s.letters[0].at
		}
		for _, n := range s.nodes {
			if does := min(n.flush, n.due); does < at {
				at, next = does, n
			}
		}
		if at > to {
			break
		}
		s.set(max(s.now, at))
		switch {
		case next == nil && arrives:
			s.deliver()
		case next == nil:
			s.turn()
		case next.flush == at:
			s.count(next)
		default:
			s.step(next)
		}
	}
	s.set(to)
}

func (s *Simulation) set(now int64) {
	if now/1e6 != s.now/1e6 {
		s.now = now
		s.tick()
	}
	s.now = now
}

// count sends what n has counted, and takes in the answers.
func (s *Simulation) count(n *simulatedNode) {
	n.flush, n.waiting = never, 0
	n.limiter.Flush()
	s.step(n)
}

// step does what else is due at n.
func (s *Simulation) step(n *simulatedNode) {
	n.due = never
	if next := n.limiter.Step(); !next.IsZero() {
		n.due = next.Add(time.Microsecond-1).UnixMicro() - n.ahead
	}
}

// publish sends a record to the other nodes, in the form that it has between nodes.
func (s *Simulation) publish(from int, r mitigation.Record) {
	now := s.nodes[from].clock(s.now)
	if s.mitigated != nil {
		s.mitigated(r, s.now, s.now+r.Deadline.Sub(now).Microseconds())
	}
	if len(s.nodes) > 1 {
		s.letters = append(s.letters, letter{from, s.now + s.o.Lag.Microseconds(), r.AppendSent(nil, now)})
	}
}

// deliver lets all nodes but its sender learn the oldest record that is on its way.
func (s *Simulation) deliver() {
	l := s.letters[0]
	if s.letters = s.letters[1:]; len(s.letters) == 0 {
		s.letters = nil
	}
	for i, n := range s.nodes {
		if i == l.from {
			continue
		}
		now := n.clock(s.now)
		if r, err := mitigation.ParseSent(l.packet, now.Add(-s.o.Lag)); err == nil { // else it is over
			n.limiter.Learn(r, "peer", now)
			s.step(n)
		}
	}
}

// turn lets shards fail and come back, leave the ring and return to it.
func (s *Simulation) turn() {
	s.turns = s.turns[1:]
	var out []string
	for i, shard := range s.shards {
		lost, outside := stateOf(s.o.Losses, i, s.now-s.start)
		if lost && !shard.Down() {
			shard.fail()
		} else if !lost && shard.Down() {
			shard.restart()
		}
		if outside {
			out = append(out, shard.addr)
		}
	}
	if len(out) == len(s.shards) {
		out = nil // nothing would be gained
	}
	for _, n := range s.nodes {
		// The shards are those that there are: there is nothing to go wrong.
		_ = n.limiter.SetOut(out...)
		s.step(n)
	}
}
