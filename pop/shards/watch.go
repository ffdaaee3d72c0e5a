// Package shards keeps a node's ring up to date. The ring has the configured shards, or those that the nodes embed
// and announce by gossip, without those that operators have drained or most nodes consider down; see package vote.
package shards

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/internal/tick"
	"github.com/edgelimit/edge/pop/gossip"
	"github.com/edgelimit/edge/pop/vote"
)

const (
	// voteInterval is how often the votes are counted, and problems reported.
	voteInterval = 250 * time.Millisecond

	// idleInterval is how often a shard that is not down is probed. Without requests, nothing else would show that
	// it died. Counting finds a dead shard sooner, if there is anything to count.
	idleInterval = 5 * time.Second

	// probes is how many probes of a shard may fail in a row: as many as open a breaker by default.
	probes = 3

	// MaxVotes is the maximum number of shards that a node votes against.
	MaxVotes = 64
)

// Options configures a Watch. Without Addrs, the node counts in the shard that it embeds, and with Peers in those of
// its peers, too.
type Options struct {
	Addrs  []Address                                                         // of the PoP's shards
	Client wire.Options                                                      // of the clients of shards, except Metrics
	Own    func(ctx context.Context, network, addr string) (net.Conn, error) // connects to the embedded shard
	Peers  func() []gossip.Peer

	// Set sets the ring; see async.Loop.SetShards. Votes returns the IDs of the shards that each live peer votes against.
	Set   func(shards []async.Shard, out ...string) error
	Votes func(now time.Time) [][]uint64

	DrainsItem  counter.Item               // where shards with Addrs store the drains
	ClientsItem counter.Item               // where they store the records of clients that operators refuse
	Clients     func(stored []byte) []byte // merges such records, and returns those to store

	// Problem is called with a description while no live shard is left, and Unfit while a shard answers but cannot be
	// used; both with "" otherwise.
	Problem, Unfit func(text string)

	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// A Watch keeps a node's ring in line with the votes. Its methods may be called concurrently, except Discover, Run
// and Close, each of which is called at most once and in this order. Against, AppendDrains, MergeDrains and States
// never wait for the ring to change.
type Watch struct {
	o       Options
	changed chan struct{} // capacity 1: an operator has changed what the shards store

	own       string            // address of the embedded shard
	known     map[string]Client // of configured shards, and of those in the ring
	sightings sightings
	late      string // own, if peers must add it before this node does; otherwise ""

	setting sync.Mutex           // held while the ring changes; locked before mu
	failed  map[string]*failures // by address; guarded by setting

	mu     sync.Mutex // guards the fields below; not held during calls that may wait
	shards []Client   // those that may be in the ring
	votes  vote.Votes
	ring   []Client // the shards when the ring was last set
	out    []string // addresses of shards that are kept out of it
}

// New returns a Watch, and sets the ring unless its shards have to be discovered.
func New(o Options) *Watch {
	o.Client.Metrics = wire.NewMetrics(o.Registerer)
	w := &Watch{o: o, known: map[string]Client{}, sightings: sightings{},
		changed: make(chan struct{}, 1)}
	var names []string
	for _, addr := range o.Addrs {
		w.known[addr.name] = addr.connect(o.Client)
		names = append(names, addr.name)
	}
	switch {
	case o.Peers != nil: // Discover sets the ring
	case len(names) > 0:
		w.replace(names)
	default:
		w.own = "inside"
		w.replace([]string{w.own})
	}
	if o.Registerer != nil {
		o.Registerer.MustRegister(prometheus.CollectorFunc(w.collect))
	}
	return w
}

// collect sends the metric of the ring.
func (w *Watch) collect(to chan<- prometheus.Metric) {
	desc := prometheus.NewDesc("edge_shard_in_ring",
		"1 while the shard is in the ring, 0 while it is not, because most nodes consider it down or an operator has "+
			"drained it.", []string{"shard"}, nil)
	w.mu.Lock()
	ring, out := w.ring, w.out
	w.mu.Unlock()
	for _, s := range ring {
		in := 1.0
		if slices.Contains(out, s.Addr()) {
			in = 0
		}
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, in, s.Addr())
	}
}

// Run keeps the ring up to date until ctx is done.
func (w *Watch) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { tick.Every(ctx, voteInterval, w.countVotes) })
	if w.o.Peers != nil {
		wg.Go(func() { tick.Every(ctx, lookInterval, func() { w.look(time.Now()) }) })
	}
	wg.Go(func() { tick.Every(ctx, idleInterval, func() { w.probe(func(Client) bool { return true }) }) })
	if len(w.o.Addrs) > 0 {
		wg.Go(func() { w.runKeep(ctx) })
	}
	wg.Wait()
}

// Close closes the connections to all shards.
func (w *Watch) Close() error {
	var errs []error
	for _, s := range w.known {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// replace replaces the shards, and returns once the ring has been updated.
func (w *Watch) replace(addrs []string) {
	var shards []Client
	for _, addr := range addrs {
		if w.known[addr] == nil {
			o := w.o.Client
			if addr == w.own {
				o.Dial = w.o.Own
			}
			w.known[addr] = memcached.New(addr, o)
		}
		shards = append(shards, w.known[addr])
	}
	w.mu.Lock()
	w.shards = shards
	w.votes.Replace(addrs)
	w.mu.Unlock()
	w.follow()
}

// all returns the shards.
func (w *Watch) all() []Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shards
}

// Against returns the IDs of the shards that this node votes against.
func (w *Watch) Against() (all []uint64) {
	for _, s := range w.all() {
		if s.Down() && len(all) < MaxVotes {
			all = append(all, vote.ID(s.Addr()))
		}
	}
	return all
}

// follow sets the ring if the votes have changed it.
func (w *Watch) follow() {
	w.setting.Lock()
	defer w.setting.Unlock()
	w.mu.Lock()
	shards, out := w.shards, w.votes.Out()
	before, same := w.ring, slices.Equal(shards, w.ring) && slices.Equal(out, w.out)
	w.mu.Unlock()
	w.logFailures(shards)
	w.report()
	if same {
		return
	}
	all := make([]async.Shard, len(shards))
	for i, s := range shards {
		all[i] = s
	}
	if err := w.o.Set(all, out...); err != nil {
		w.o.Logger.Error("cannot change the ring", "shards", len(shards), "out", out, "err", err)
		return
	}
	if before != nil {
		w.o.Logger.Info("the ring has changed", "out", out, "shards", len(shards))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ring, w.out = shards, out
}

// countVotes counts the votes, and updates the ring: drains may have changed it, too. It notices when a shard is back,
// even that of a PoP with only one.
func (w *Watch) countVotes() {
	now := w.o.Now()
	all := w.o.Votes(now)
	// A shard may have a mistyped address, or answer this node but not those that vote against it.
	w.probe(func(s Client) bool {
		asked, err := s.Last()
		return !asked || err != nil ||
			slices.ContainsFunc(all, func(ids []uint64) bool { return slices.Contains(ids, vote.ID(s.Addr())) })
	})
	all = append(all, w.Against())
	w.mu.Lock()
	w.votes.Count(all, now)
	w.mu.Unlock()
	w.follow()
}

// failures are the failures of a shard that are logged. Those of a shard that fails again and again are not.
type failures struct {
	last   time.Time // when one was logged
	logged bool      // one was, and the shard has not answered since
}

// failurePause is the minimum time between two lines about failures of one shard.
const failurePause = time.Minute

// logFailures logs which shards have failed, and which answer again. It forgets those that have left. w.setting is
// held.
func (w *Watch) logFailures(shards []Client) {
	now, before := w.o.Now(), w.failed
	w.failed = make(map[string]*failures, len(shards))
	for _, s := range shards {
		f := cmp.Or(before[s.Addr()], new(failures))
		w.failed[s.Addr()] = f
		switch down := s.Down(); {
		case down && !f.logged && s.Unfit() == nil && now.Sub(f.last) >= failurePause: // report reports unfit ones
			_, err := s.Last()
			w.o.Logger.Warn("shard is down; it gets no counts until it answers", "shard", s.Addr(), "err", err)
			f.last, f.logged = now, true
		case !down && f.logged:
			w.o.Logger.Info("shard answers again", "shard", s.Addr())
			f.logged = false
		}
	}
}

// report reports the shards that answer but cannot be used, and whether no live shard is left.
func (w *Watch) report() {
	w.mu.Lock()
	shards, drained := w.shards, 0
	unfit, none, live := "", "", 0
	for _, s := range shards {
		err := s.Unfit()
		switch {
		case w.votes.Drained(s.Addr()):
			drained++
		case err == nil && !s.Down():
			live++
		case err != nil:
			unfit += fmt.Sprintf("shard %s cannot be used: %v", s.Addr(), err)
			switch isRedis := strings.HasPrefix(s.Addr(), "redis"); {
			case errors.Is(err, wire.ErrMalformed) && isRedis:
				unfit += ": if it is memcached, write HOST:PORT"
			case errors.Is(err, wire.ErrMalformed):
				unfit += ": if it is Redis, write redis://HOST:PORT"
			}
			unfit += "; "
		}
	}
	w.mu.Unlock()
	switch {
	case live > 0:
	case drained > 0:
		none = fmt.Sprintf("no live shard is left (%d of %d drained), so each node counts alone: undrain one", drained,
			len(shards))
	case unfit == "" && len(shards) > 0:
		none = "no shard answers, so each node counts alone: start the shards, or correct their addresses"
	}
	if unfit != "" {
		unfit += "until this is fixed, each node counts alone what belongs there"
	}
	w.o.Unfit(unfit)
	w.o.Problem(none)
}

// probe probes the shards that are down, to notice when they are back, and suspect ones until a probe succeeds or the
// breaker opens.
func (w *Watch) probe(suspect func(Client) bool) {
	for _, s := range w.all() {
		switch {
		case s.Down():
			if s.Available() {
				_ = s.Probe() // the breaker records the result
			}
		case suspect(s):
			for n := 0; n < probes && !s.Down() && s.Probe() != nil; n++ {
			}
		}
	}
}

// ErrUnknown is wrapped by the error that Drain returns if no shard has the address.
var ErrUnknown = errors.New("pop: there is no shard")

// Drain takes the shard at addr out of the ring of all nodes, or puts it back if on is false. The other shards take
// over its keys within a second; see async.Loop.SetShards. Drain returns once this node's ring has been updated.
// Configured shards, unlike discovered ones, store the drain, so it survives a restart of all nodes. Nodes without
// peers learn of it within 30 s.
func (w *Watch) Drain(addr string, on bool) error {
	w.mu.Lock()
	ok := w.votes.Drain(addr, on, w.o.Now())
	w.mu.Unlock()
	if !ok {
		return fmt.Errorf("%w %s", ErrUnknown, addr)
	}
	w.Keep()
	w.follow()
	return nil
}

// Keep makes the shards store changes by an operator soon.
func (w *Watch) Keep() {
	select {
	case w.changed <- struct{}{}:
	default: // soon in any case
	}
}

// AppendDrains appends the drains to dst, which grows to at most longest bytes; see [vote.Votes.AppendDrains].
func (w *Watch) AppendDrains(dst []byte, longest int) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.votes.AppendDrains(dst, longest)
}

// MergeDrains merges the drains from a peer. If they change the ring, it is updated when the votes are next counted.
func (w *Watch) MergeDrains(drains []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.votes.ReadDrains(drains)
}

const (
	// keepInterval is how often drains and refused clients are read from the shards and stored again: a shard may have
	// been down or have lost them, and nodes without peers learn of them only from shards.
	keepInterval = 30 * time.Second

	// keepFor is how long a shard keeps them. memcached reads longer times as dates.
	keepFor = 30 * 24 * time.Hour

	// maxKept is the maximum size of the stored drains, in bytes.
	maxKept = 1 << 16
)

// runKeep stores the drains and the refused clients in the shards, so that they survive a restart of all nodes, and
// merges those that are stored there, until ctx is done.
func (w *Watch) runKeep(ctx context.Context) {
	tick := time.NewTicker(keepInterval)
	defer tick.Stop()
	for {
		for _, s := range w.all() {
			// An idle connection may have been closed: then the second attempt dials.
			if w.keepAt(s) != nil {
				_ = w.keepAt(s)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-w.changed:
		}
	}
}

// keepAt merges the drains and the refused clients in s with those that this node knows, and stores the result there.
func (w *Watch) keepAt(s Client) error {
	err := s.Update(w.o.ClientsItem, func(old []byte) ([]byte, int32) {
		return w.o.Clients(old), int32(keepFor / time.Second)
	})
	if err != nil || len(w.o.Addrs) == 1 {
		return err
	}
	err = s.Update(w.o.DrainsItem, func(old []byte) ([]byte, int32) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.votes.ReadDrains(old)
		return w.votes.AppendDrains(nil, maxKept), int32(keepFor / time.Second)
	})
	w.follow()
	return err
}

// A State describes a shard as this node sees it.
type State struct {
	Addr    string
	Down    bool
	Answers bool   // the last exchange with it succeeded; false before the first one
	Breaker string // closed while the shard is used, open while it is down, half_open while it is probed
	InRing  bool
	Drained bool // an operator has taken it out of the ring
}

// States returns the shards, in the order of their addresses.
func (w *Watch) States() (all []State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.shards {
		breaker := "closed"
		switch down := s.Down(); {
		case down && s.Available():
			breaker = "half_open"
		case down:
			breaker = "open"
		}
		asked, err := s.Last()
		all = append(all, State{
			Addr: s.Addr(), Down: breaker != "closed", Answers: asked && err == nil, Breaker: breaker,
			InRing: !slices.Contains(w.out, s.Addr()), Drained: w.votes.Drained(s.Addr()),
		})
	}
	slices.SortFunc(all, func(a, b State) int { return strings.Compare(a.Addr, b.Addr) })
	return all
}
