package analysis

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// PoPOptions configures a simulated PoP. The zero value is one node that knows everything
// immediately.
type PoPOptions struct {
	// Nodes is the number of nodes, at most 1000. If zero, 1.
	Nodes int

	// Shards is the number of counter shards, at most 1000. If zero, 1.
	Shards int

	// Spread determines how requests are distributed over nodes.
	Spread Spread

	// Lag is the time from a node's first pending count until it sends its counts, and the time that a record
	// takes to reach the other nodes. If zero, both happen before the next request. A real node does not wait
	// that long for a key near its threshold, so no more requests pass there than here. Like real nodes, a
	// simulated one refuses by its own counts before it has sent them, and sends counts sooner if there are
	// many.
	Lag time.Duration

	// Skew is the difference between the nodes' clocks: the first node is Skew/2 behind the log's time, the
	// last one Skew/2 ahead, the others evenly between them.
	Skew time.Duration

	// Losses are the shards that fail.
	Losses []Loss

	// Client is the prefix length of networks that are one client each. If zero, a client is an IPv4 address or
	// an IPv6 /64.
	Client rule.ClientPrefix

	seed uint64 // determines the nodes of requests

	// waiting is the maximum number of pending counts of a node: half of its queue's size, so that no count is
	// dropped. If zero, 8192. Tests with fewer counts save memory.
	waiting int
}

const maxParts = 1000 // of nodes and of shards: each needs memory

func (o PoPOptions) withDefaults() (PoPOptions, error) {
	switch {
	case o.Nodes < 0 || o.Nodes > maxParts:
		return o, fmt.Errorf("analysis: invalid number of nodes %d: must be 1 to %d", o.Nodes, maxParts)
	case o.Shards < 0 || o.Shards > maxParts:
		return o, fmt.Errorf("analysis: invalid number of shards %d: must be 1 to %d", o.Shards, maxParts)
	case o.Lag < 0 || o.Skew < 0:
		return o, errors.New("analysis: lag and skew must not be negative")
	case o.Spread > ByRequest:
		return o, fmt.Errorf("analysis: unknown spread %d", o.Spread)
	}
	o.Nodes, o.Shards, o.waiting = max(1, o.Nodes), max(1, o.Shards), cmp.Or(o.waiting, 8192)
	for _, l := range o.Losses {
		if l.Shard < 0 || l.Shard >= o.Shards {
			return o, fmt.Errorf("analysis: shard %d cannot fail: the PoP has %s", l.Shard+1, chart.Count(o.Shards, "shard"))
		}
		if l.At < 0 || l.For < 0 {
			return o, errors.New("analysis: the time and duration of a shard's failure must not be negative")
		}
	}
	return o, nil
}

// report describes o for the report.
func (o PoPOptions) report() PoPReport {
	r := PoPReport{Nodes: o.Nodes, Shards: o.Shards, Spread: o.Spread.String(), LagS: o.Lag.Seconds(),
		SkewS: o.Skew.Seconds()}
	for _, l := range o.Losses {
		r.Losses = append(r.Losses, l.String())
	}
	return r
}

// A Simulation is a PoP on a virtual clock, in the caller's goroutine. Its nodes decide and count with the
// limiter of a real node. Its shards and its network are in memory. Its clock follows the times of the log.
type Simulation struct {
	o        PoPOptions
	requests requests
	counted  []uint64 // requests that a rule counted, by its index
	begun    bool
	start    int64 // time of the log's first request
	now      int64 // the virtual time, in microseconds since the Unix epoch
	nodes    []*simulatedNode
	shards   []*memoryShard
	spread   spread
	messages []message // in flight, in the order of their arrival
	changes  []int64   // times at which shards change, in order

	// mitigated is called with each record that a node makes or extends, the time of the log, and the time of
	// the log when the record ends. It may be nil.
	mitigated func(record mitigation.Record, now, end int64)
}

// A simulatedNode is a node without its sockets.
type simulatedNode struct {
	limiter *limit.Limiter
	ahead   int64 // how far its clock is ahead of the log's time, in microseconds
	flush   int64 // time of its next flush; never if it has no counts
	waiting int   // number of pending counts
	offered bool  // the limiter has pending counts
	due     int64 // time of its limiter's next step
}

// A message is a record in flight to all nodes but its sender.
type message struct {
	from   int   // index of the sender
	at     int64 // when it arrives
	packet []byte
}

// never is a time after the end of any log.
const never = 1<<63 - 1

// NewSimulation returns a PoP that enforces rules.
func NewSimulation(o PoPOptions, rules *rule.Set) (*Simulation, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := rulefile.CheckNodes(rules, o.Nodes); err != nil {
		return nil, err
	}
	s := &Simulation{
		o: o, spread: newSpread(o), requests: requests{fields: rules.ReadsFields()},
		counted: make([]uint64, len(rules.Rules())),
	}
	var shards []async.Shard
	for i := range o.Shards {
		s.shards = append(s.shards, newMemoryShard(fmt.Sprintf("shard-%d", i+1), &s.now))
		shards = append(shards, s.shards[i])
	}
	// Without a lag, at most the keys of one request wait. A queue has 16 parts, and all keys may be in one of them.
	queue := 16 * min(len(rules.Rules())+1, 1<<10)
	if o.Lag > 0 {
		queue = 2*o.waiting + 16*len(rules.Rules())
	}
	for i := range o.Nodes {
		n := &simulatedNode{flush: never, due: never}
		if o.Nodes > 1 {
			n.ahead = o.Skew.Microseconds() * int64(2*i-(o.Nodes-1)) / int64(2*(o.Nodes-1))
		}
		table := mitigation.New(mitigation.Options{})
		n.limiter, err = limit.New(limit.Options{
			Secret:   secret,
			Node:     mitigation.NodeID(i + 1),
			Rules:    rules,
			Table:    table,
			Shards:   shards,
			Client:   o.Client,
			Interval: max(o.Lag, 1),
			Queue:    queue,
			Now:      func() time.Time { return n.clock(s.now) },
			Publish:  func(r mitigation.Record) { s.publish(i, r) },
			Nodes:    func() int { return o.Nodes },
			Ahead:    func() time.Duration { return time.Duration(n.ahead-s.nodes[0].ahead) * time.Microsecond },
			Logger:   slog.New(slog.DiscardHandler),
		}, nil)
		if err != nil {
			return nil, err
		}
		s.nodes = append(s.nodes, n)
	}
	return s, nil
}

// secret is the key of all hashes. It may be public: it is too late for the clients in a log to choose requests whose
// keys collide.
var secret = func() counter.Secret {
	s, err := counter.NewSecret("nobody sends to a simulation")
	if err != nil {
		panic("analysis: " + err.Error())
	}
	return s
}()

// clock returns the time on n's clock at a time of the log.
func (n *simulatedNode) clock(now int64) time.Time { return time.UnixMicro(now + n.ahead) }

// Decide sends a request to one of the nodes, and returns that node's decision. A request that
// is older than the previous one is treated as simultaneous with it. The origin answers immediately,
// with the status in the log. Decide does not retain e.
func (s *Simulation) Decide(e *accesslog.Entry) (d limit.Decision) {
	addr := e.Address()
	s.decide(&d, e, addr, s.spread.node(addr, max(s.now, e.Time)))
	if s.requests.next.Malformed && !d.Verdict.Refused() {
		return limit.Decision{Verdict: limit.Malformed}
	}
	return d
}

// decide is Decide for a given node, except that the rules alone decide about a malformed request. d must be zero.
func (s *Simulation) decide(d *limit.Decision, e *accesslog.Entry, addr netip.Addr, node uint16) {
	s.advance(max(s.now, e.Time))
	n := s.nodes[node]
	req, now := s.requests.at(e, addr), n.clock(s.now)
	req.Identify(s.o.Client)
	if req.Malformed {
		*d = n.limiter.Look(req, now)
		n.limiter.Decide(req, now)
	} else {
		n.limiter.DecideTo(d, req, now)
	}
	n.limiter.Answered(d, e.Status, nil, now) // logs contain neither headers nor bodies of answers
	n.limiter.EndBody(d, true, now)
	counted := 0
	var last *rule.Rule // the keys of a rule are adjacent
	for r := range d.Counts {
		if !counts(r, e.Status) {
			continue
		}
		counted++
		if r = r.Base(); r != last {
			s.counted[r.Index]++
			last = r
		}
	}
	n.offered = n.offered || counted > 0
	// Without losses, nothing else is due. With each request that counts, a node tries again to reach a shard that is
	// down.
	if n.limiter.Woken() || counted > 0 && len(s.o.Losses) > 0 {
		n.step(n.limiter.Step())
	}
	s.wait(n, counted)
}

// pass replaces decide for a request that counts under this number of keys, none of which ever exceeds a limit. The
// node does not count the request, but flushes as if it did.
func (s *Simulation) pass(at int64, node uint16, counted int) {
	s.advance(max(s.now, at))
	s.wait(s.nodes[node], counted)
}

// wait adds counts to those that wait for n's next flush. If there are too many, or without a lag, it flushes.
func (s *Simulation) wait(n *simulatedNode, counted int) {
	n.waiting += counted
	switch {
	case counted == 0:
	case s.o.Lag == 0 || n.waiting >= s.o.waiting:
		s.count(n)
		s.advance(s.now) // without a lag, records arrive before the next request
	case n.flush == never:
		n.flush = s.now + s.o.Lag.Microseconds()
	}
}

// advance moves the clock to a time, and runs everything that is due until then, in order. If several events are due
// at once, shards change first, then records arrive, then counts are sent. The first call begins the simulation, at
// the time of the log's first request.
func (s *Simulation) advance(to int64) {
	if !s.begun {
		s.begun, s.start, s.now, s.changes = true, to, to, changesOf(s.o.Losses, to)
	}
	for {
		at, next := int64(never), (*simulatedNode)(nil)
		if len(s.changes) > 0 {
			at = s.changes[0]
		}
		arrives := len(s.messages) > 0 && s.messages[0].at < at
		if arrives {
			at = s.messages[0].at
		}
		for _, n := range s.nodes {
			if due := min(n.flush, n.due); due < at {
				at, next = due, n
			}
		}
		if at > to {
			break
		}
		s.now = max(s.now, at)
		switch {
		case next == nil && arrives:
			s.deliver()
		case next == nil:
			s.changeShards()
		case next.flush == at:
			s.count(next)
		default:
			next.step(next.limiter.Step())
		}
	}
	s.now = to
}

// count sends n's counts and handles the answers.
func (s *Simulation) count(n *simulatedNode) {
	n.flush, n.waiting = never, 0
	if n.offered {
		n.offered = false
		n.step(n.limiter.Flush())
	}
}

// step schedules the next step of n's limiter.
func (n *simulatedNode) step(next time.Time) {
	n.due = never
	if !next.IsZero() {
		n.due = next.Add(time.Microsecond-1).UnixMicro() - n.ahead
	}
}

// publish sends a record to the other nodes, encoded as between real nodes.
func (s *Simulation) publish(from int, r mitigation.Record) {
	now := s.nodes[from].clock(s.now)
	if s.mitigated != nil {
		s.mitigated(r, s.now, s.now+r.Deadline.Sub(now).Microseconds())
	}
	if len(s.nodes) > 1 {
		s.messages = append(s.messages, message{from, s.now + s.o.Lag.Microseconds(), r.AppendSent(nil, now)})
	}
}

// deliver delivers the oldest record in flight to all nodes but its sender.
func (s *Simulation) deliver() {
	l := s.messages[0]
	s.messages = s.messages[1:]
	for i, n := range s.nodes {
		if i == l.from {
			continue
		}
		now := n.clock(s.now)
		if r, err := mitigation.ParseSent(l.packet, now.Add(-s.o.Lag)); err == nil { // an error means that it has ended
			n.limiter.Learn(r, "peer", now)
			n.step(n.limiter.Step())
		}
	}
}

// changeShards makes shards fail, recover, leave the ring and return to it.
func (s *Simulation) changeShards() {
	for len(s.changes) > 0 && s.changes[0] <= s.now {
		s.changes = s.changes[1:]
	}
	var out []string
	for i, shard := range s.shards {
		at, was := s.now-s.start, shard.down
		shard.down = slices.ContainsFunc(s.o.Losses, func(l Loss) bool { return l.Shard == i && l.lasts(at, 0, 0) })
		if shard.down && !was {
			shard.clear()
		}
		if slices.ContainsFunc(s.o.Losses, func(l Loss) bool { return l.Shard == i && l.keepsOut(at) }) {
			out = append(out, shard.addr)
		}
	}
	if len(out) == len(s.shards) {
		out = nil // votes do not empty the ring: see vote.Votes.Out
	}
	for _, n := range s.nodes {
		// SetOut fails only for unknown shards.
		_ = n.limiter.SetOut(out...)
		n.step(n.limiter.Step())
	}
}
