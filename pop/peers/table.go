// Package peers holds what a node knows about the other nodes of its PoP, from the statuses that they send.
package peers

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/gossip"
)

const (
	// repairPause is how long a node waits before it asks any peer again for missing records: peers mostly send
	// the same ones. For the same peer the pause doubles, up to maxRepairPause, while its answers contain
	// nothing new. A node without room always waits for maxRepairPause: new records evict others, which it would
	// then lack, and ask for again.
	repairPause    = 250 * time.Millisecond
	maxRepairPause = 8 * time.Second

	// silence is how long a peer may send no status before it counts as gone. While gossip considers the peer alive, it
	// has that time again for each silentNodes nodes of the PoP, because large PoPs pass statuses on less often.
	silence     = 3 * time.Second
	silentNodes = 64

	// disagreeFor is how long a peer may differ before that is logged: nodes differ for a time during the
	// rollout of rules.
	disagreeFor = 30 * time.Second

	// learnFor is how long a node that has found peers may take to learn their mitigations before it is ready
	// without them.
	learnFor = time.Second

	// seekFor is how long a node looks for peers before it is ready without any.
	seekFor = 2 * time.Second

	// maxNames is the maximum number of remembered node names, which records refer to.
	maxNames = 1024
)

// A Table holds what a node knows about its peers. Its methods may be called concurrently.
type Table struct {
	logger  *slog.Logger
	name    string       // of this node
	seeks   bool         // whether the node must find peers before it is ready
	maxSeen atomic.Int32 // greatest number of nodes seen at the same time

	mu       sync.Mutex                   // guards the fields below
	names    map[mitigation.NodeID]string // names of known nodes, including this one
	peers    map[string]*peer
	informed bool      // the node has received all mitigations of a peer
	asked    time.Time // when the node last asked a peer
}

// A peer is another node.
type peer struct {
	lastStatus  time.Time
	firstStatus time.Time     // since it was last silent
	asked       time.Time     // when this node last asked it for records
	pause       time.Duration // after asked, until it may be asked again; see repairPause

	Status // the last one, with the IDs of shards that it considers down

	differ   [len(agreements)]time.Time // start of the difference; zero if the peer agrees
	reported [len(agreements)]bool      // the difference was logged
}

// New returns the table of the node called name. If seeks is true, the node is not ready before it has found peers
// or has looked for them long enough. The metrics of the table read the time from clock.
func New(name string, seeks bool, clock func() time.Time, logger *slog.Logger, reg prometheus.Registerer) *Table {
	p := &Table{name: name, seeks: seeks, logger: logger, peers: map[string]*peer{},
		names: map[mitigation.NodeID]string{ID(name): name}}
	for i, subject := range agreements {
		promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{
			Name: "edge_nodes_differing",
			Help: "Peers whose secret, shards, rules or client prefixes have differed from this node's for a while, " +
				"so counts are split.",
			ConstLabels: prometheus.Labels{"in": subject},
		}, func() float64 {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.forget(clock())
			return float64(len(p.differing(i)))
		})
	}
	return p
}

// ID returns the ID of the node called name in records.
func ID(name string) mitigation.NodeID {
	sum := sha256.Sum256([]byte(name))
	return mitigation.NodeID(binary.BigEndian.Uint64(sum[:]))
}

// MaxSeen returns the greatest number of nodes seen at the same time, including this one. It never decreases: silent
// nodes may still count requests.
func (p *Table) MaxSeen() int { return int(p.maxSeen.Load()) }

// Received records the status s of a peer, whose fingerprints are compared with ours.
func (p *Table) Received(from string, s *Status, ours Fingerprints, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(now)
	other := p.peers[from]
	if other == nil {
		other = &peer{firstStatus: now, pause: repairPause}
		p.peers[from] = other
	}
	other.lastStatus, other.Status = now, *s
	other.Drains = nil // it refers to the packet
	if id := ID(from); p.names[id] == "" && len(p.names) < maxNames {
		p.names[id] = from
	}
	p.maxSeen.Store(max(p.maxSeen.Load(), int32(len(p.peers)+1)))
	p.compare(from, other, ours, now)
}

// Ask reports whether to ask a peer for missing records. same means that the status that the peer has just sent has the
// digest of this node, and full that there is no room for more records.
func (p *Table) Ask(from string, same, full bool, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	other := p.peers[from]
	if other == nil {
		return false // this process was paused after Received, and another call removed the peer as silent
	}
	if same {
		other.pause, p.informed = repairPause, true
		return false
	}
	pause := repairPause
	if full {
		pause = maxRepairPause
	}
	if now.Sub(other.asked) < other.pause || now.Sub(p.asked) < pause {
		return false
	}
	if !other.asked.IsZero() {
		other.pause = min(2*other.pause, maxRepairPause)
	}
	other.asked, p.asked = now, now
	return true
}

// compare records how a peer differs from this node, and logs a difference once it has lasted for a while. mu
// is held.
func (p *Table) compare(name string, other *peer, ours Fingerprints, now time.Time) {
	for i, subject := range agreements {
		switch agrees := other.Fingerprints[i] == ours[i]; {
		case agrees && other.reported[i]:
			p.logger.Info("nodes agree again", "on", subject, "with", name)
			fallthrough
		case agrees:
			other.differ[i], other.reported[i] = time.Time{}, false
		case other.differ[i].IsZero():
			other.differ[i] = now
		case now.Sub(other.differ[i]) >= disagreeFor && !other.reported[i]:
			other.reported[i] = true
			p.logger.Error("nodes have different settings, so they count separately: give all nodes the same",
				"in", subject, "from", name)
		}
	}
}

// Repaired records that a peer's answer contained something new.
func (p *Table) Repaired(from string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if other := p.peers[from]; other != nil {
		other.pause = repairPause
	}
}

// forget removes the peers that are silent. mu is held.
func (p *Table) forget(now time.Time) {
	most := silence * time.Duration(len(p.peers)/silentNodes+1)
	maps.DeleteFunc(p.peers, func(_ string, other *peer) bool { return now.Sub(other.lastStatus) > most })
}

// Alive removes the peers that gossip does not list as alive, once they are silent.
func (p *Table) Alive(peers []gossip.Peer, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	alive := map[string]bool{}
	for _, peer := range peers {
		alive[peer.Name] = true
	}
	maps.DeleteFunc(p.peers, func(name string, other *peer) bool {
		return !alive[name] && now.Sub(other.lastStatus) > silence
	})
}

// differing returns the peers whose ith fingerprint has differed from this node's for disagreeFor. mu is held.
func (p *Table) differing(i int) (names []string) {
	for name, other := range p.peers {
		if other.reported[i] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Votes returns the shards that each live peer considers down.
func (p *Table) Votes(now time.Time) (all [][]uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(now)
	for _, other := range p.peers {
		all = append(all, other.Down)
	}
	return all
}

// NameOf returns the name of a node, or its ID in hexadecimal if the name is not known.
func (p *Table) NameOf(id mitigation.NodeID) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(p.names[id], fmt.Sprintf("%016x", uint64(id)))
}

// A Node describes a peer, or this node itself.
type Node struct {
	Status
	Name    string
	Self    bool
	Heard   time.Duration // since its last status
	Differs []string      // names of the fingerprints that differ from this node's
}

// Nodes returns the nodes of the PoP: this one, with the status ours, and then its peers, by name.
func (p *Table) Nodes(ours *Status, now time.Time) (all []Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(now)
	for name, other := range p.peers {
		node := Node{Status: other.Status, Name: name, Heard: now.Sub(other.lastStatus), Differs: []string{}}
		for i, since := range other.differ {
			if !since.IsZero() {
				node.Differs = append(node.Differs, agreements[i])
			}
		}
		all = append(all, node)
	}
	slices.SortFunc(all, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	self := Node{Status: *ours, Name: p.name, Self: true, Differs: []string{}}
	return append([]Node{self}, all...)
}

// Ready returns an error that says why the node is not ready or, if it is ready, details for operators. The node
// started at started.
func (p *Table) Ready(started, now time.Time) (detail []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(now)
	met := time.Time{}
	for _, other := range p.peers {
		if met.IsZero() || other.firstStatus.Before(met) {
			met = other.firstStatus
		}
	}
	switch {
	case p.informed || !p.seeks:
	case met.IsZero() && now.Sub(started) < seekFor:
		return nil, errors.New("looking for other nodes")
	case !met.IsZero() && now.Sub(met) < learnFor:
		return nil, errors.New("fetching the mitigations of other nodes")
	}
	for i, subject := range agreements {
		for _, name := range p.differing(i) {
			detail = append(detail, fmt.Sprintf("%s: not the same as on %s", subject, name))
		}
	}
	return detail, nil
}
