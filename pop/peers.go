package pop

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/admin"
	"github.com/edgelimit/edge/pop/gossip"
)

// Peers carry messages to the other nodes of a PoP. What they carry back goes to
// Node.Receive and Node.ReceiveStatus. Their methods must not block, and may keep what
// they are given.
type Peers interface {
	// Send passes a message to all other nodes.
	Send(message []byte)

	// SendTo passes messages to one, and reports whether there is such a node, and it takes
	// them now.
	SendTo(name string, messages ...[]byte) bool

	// ClockAhead returns how far this node's clock is ahead of that of the node that is most
	// behind, 0 if none is.
	ClockAhead() time.Duration
}

// Messages between nodes begin with their kind.
const (
	messageRecords byte = 1 + iota // records that are new
	messageDigest                  // what the sender has: where that differs, it wants the receiver's records
	messageRepair                  // records, as an answer to that
)

// recordsInMessage is how many records a message holds at most.
const recordsInMessage = (gossip.MaxMessage - 1) / mitigation.SentSize

// A status tells other nodes whether they agree with this one. All numbers are big endian.
//
//	 0  version
//	 1  sum of the digest of the mitigations
//	 9  fingerprints of the secret, the shards and the rules
//	33  how many shards the node finds down, and each of them, in 8 bytes
//	..  which shards are drained, see drain: each in 16 bytes
//	..  fingerprint of the client prefixes; nodes from before it end here, and pass over it
//	..  version of the program, as text; nodes from before it end here, and pass over it
const (
	statusVersion = 1
	statusSize    = 34 // at least

	// versionSize is that of the version. With it, a status has another size, modulo that of a
	// drain, than without.
	versionSize = 25
)

// agreements are what all nodes of a PoP must have in common, in the order of their
// fingerprints.
var agreements = [...]string{"secret", "shards", "rules", "client_prefixes"}

// inHead is how many of the fingerprints are at the head of a status.
const inHead = 3

const (
	// repairPause is how long a node waits before it asks for what it lacks again, another
	// peer or the same one: most of what one sends is what the others would. For the same
	// peer the pause doubles up to maxRepairPause for as long as nothing comes of it. A node
	// without room waits for that each time: what it would learn takes the place of what others
	// have, and so on for ever.
	repairPause    = 250 * time.Millisecond
	maxRepairPause = 8 * time.Second

	// silence is how long a peer may send no status before it counts as gone.
	silence = 3 * time.Second

	// undecodablePause is the pause between two log lines about messages that cannot be decoded.
	undecodablePause = 10 * time.Second

	// disagreeFor is how long a peer may differ before that is logged: while rules are rolled
	// out, nodes differ for a time.
	disagreeFor = 30 * time.Second
)

// A peering is what a node knows of the others.
type peering struct {
	logger *slog.Logger
	seeks  bool        // whether it is to find others before it is ready
	full   func() bool // whether there is no room for more mitigations

	// most is how many nodes there were at once, with this one. It never falls: those that
	// are silent may still count.
	most atomic.Int32

	mu       sync.Mutex                   // guards what follows
	names    map[mitigation.NodeID]string // of nodes that were heard of, this one's too
	started  time.Time
	peers    map[string]*peer
	informed bool      // the mitigations of another node are all here
	asked    time.Time // when a peer was asked last
	logged   time.Time // when a message that cannot be decoded was logged last
	unlogged int       // how many were not logged since
}

// A peer is another node.
type peer struct {
	heard time.Time // its last status
	first time.Time // its first one since it was silent
	asked time.Time // when it was asked for what this node lacks
	pause time.Duration
	down  []uint64 // shards that it finds down

	version string
	prints  []uint64 // its fingerprints, in the order of agreements

	differ [len(agreements)]time.Time // since when; zero: it agrees
	said   [len(agreements)]bool      // whether that was logged
}

// start notes that the node runs from now on.
func (p *peering) start(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = now
}

// Receive merges a message that another node sent age ago. It returns an error if part of the
// message cannot be decoded; its other records are merged.
func (n *Node) Receive(from string, message []byte, age time.Duration) error {
	if len(message) == 0 {
		return errors.New("pop: empty message")
	}
	kind, body := message[0], message[1:]
	switch kind {
	case messageRecords, messageRepair:
		news, err := n.receiveRecords(body, n.o.Now(), age)
		if news && kind == messageRepair {
			n.peering.repaired(from)
		}
		return err
	case messageDigest:
		theirs, err := mitigation.ParseDigest(body)
		if err != nil {
			return err
		}
		n.repair(from, theirs)
		return nil
	}
	return fmt.Errorf("pop: unknown kind of message %d", kind)
}

// receiveRecords merges records, and reports whether one of them is new. It returns the error of
// the first one that cannot be decoded.
func (n *Node) receiveRecords(records []byte, now time.Time, age time.Duration) (news bool, err error) {
	for record := range slices.Chunk(records, mitigation.SentSize) {
		// What was left of its lifetime was so when it was sent.
		switch r, wrong := mitigation.ParseSent(record, now.Add(-age)); {
		case wrong == nil:
			news = n.limiter.Learn(r, "peer", now) || news
		case !errors.Is(wrong, mitigation.ErrExpired):
			err = cmp.Or(err, wrong)
		}
	}
	return news, err
}

// publish sends a record of this node to the others.
func (n *Node) publish(r mitigation.Record) {
	if n.o.Peers != nil {
		n.o.Peers.Send(r.AppendSent([]byte{messageRecords}, n.o.Now()))
	}
}

// recordsInRepair is how many records are sent to repair at most.
const recordsInRepair = gossip.MaxSendTo * recordsInMessage

// repair sends a peer the records where its digest differs from this node's.
func (n *Node) repair(to string, theirs mitigation.Digest) {
	now := n.o.Now()
	var messages [][]byte
	for some := range slices.Chunk(n.table.Where(theirs, recordsInRepair, now), recordsInMessage) {
		message := []byte{messageRepair}
		for _, r := range some {
			message = r.AppendSent(message, now)
		}
		messages = append(messages, message)
	}
	if len(messages) > 0 {
		n.o.Peers.SendTo(to, messages...)
	}
}

// Status returns this node's status, which the other nodes are sent four times a second.
func (n *Node) Status() []byte {
	digest := n.table.Digest()
	status := binary.BigEndian.AppendUint64([]byte{statusVersion}, digest.Sum())
	all := n.fingerprints()
	for _, fingerprint := range all[:inHead] {
		status = binary.BigEndian.AppendUint64(status, fingerprint)
	}
	status = binary.BigEndian.AppendUint64(n.ring.append(status), all[inHead])
	var version [versionSize]byte
	copy(version[:], n.shortVersion())
	return append(status, version[:]...)
}

// shortVersion returns the version of the program, without with what it was built.
func (n *Node) shortVersion() string {
	version, _, _ := strings.Cut(n.o.Version, " ")
	return version[:min(len(version), versionSize)]
}

// readTail returns the fingerprint and the version at the end of a status, if they are there.
func readTail(status []byte) (prefixes []uint64, version string) {
	lists := len(status) - statusSize - 8*int(status[statusSize-1])
	switch {
	case lists >= 8+versionSize && lists%drainSize == (8+versionSize)%drainSize:
		at := len(status) - versionSize
		text := strings.Map(func(r rune) rune {
			if r < '!' || r > '~' {
				return -1
			}
			return r
		}, string(status[at:]))
		return []uint64{binary.BigEndian.Uint64(status[at-8:])}, text
	case lists >= 8 && lists%drainSize == 8:
		return []uint64{binary.BigEndian.Uint64(status[len(status)-8:])}, ""
	}
	return nil, ""
}

// fingerprints returns hashes of what all nodes must have in common.
func (n *Node) fingerprints() [len(agreements)]uint64 {
	prefixes := uint64(n.o.Client.IPv4)<<8 | uint64(n.o.Client.IPv6)
	return [...]uint64{n.secret.Fingerprint(), shardsFingerprint(n.o.Shards), n.Rules().Hash(), prefixes}
}

// shardsFingerprint returns a hash of a list of shards, in any order.
func shardsFingerprint(shards []string) uint64 {
	hash := xxhash.New()
	for _, addr := range slices.Sorted(slices.Values(shards)) {
		_, _ = hash.WriteString(addr + "\n")
	}
	return hash.Sum64()
}

// ReceiveStatus reads the status of another node. If that node has other mitigations, this one
// asks for them.
func (n *Node) ReceiveStatus(from string, status []byte) {
	now := n.o.Now()
	if len(status) < statusSize || status[0] != statusVersion {
		n.peering.undecodable(from, errors.New("pop: unknown version of a status"), now)
		return
	}
	digest := n.table.Digest()
	same := binary.BigEndian.Uint64(status[1:]) == digest.Sum()
	down := n.ring.read(status[statusSize-1:])
	known := n.nodes()
	ask := n.peering.heard(from, same, down, now)
	if n.nodes() > known {
		n.noteNodes()
	}
	if ask {
		n.o.Peers.SendTo(from, digest.Append([]byte{messageDigest}))
	}
	var theirs []uint64
	for i := range inHead {
		theirs = append(theirs, binary.BigEndian.Uint64(status[9+8*i:]))
	}
	prefixes, version := readTail(status)
	theirs = append(theirs, prefixes...)
	ours := n.fingerprints()
	for i, fingerprint := range theirs {
		n.peering.agrees(from, i, ours[i] == fingerprint, now)
	}
	n.peering.describes(from, version, theirs)
}

// describes notes what a peer tells of itself.
func (p *peering) describes(name, version string, prints []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.peers[name]; one != nil {
		one.version, one.prints = version, prints
	}
}

// states returns the peers as operators see them, by name.
func (p *peering) states(now time.Time) (all []admin.Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(now)
	for name, one := range p.peers {
		of := admin.Node{Name: name, Version: one.version, Heard: now.Sub(one.heard).Seconds(), Fingerprints: map[string]string{}, Differs: []string{}}
		for i, print := range one.prints {
			of.Fingerprints[agreements[i]] = fmt.Sprintf("%016x", print)
		}
		for i, since := range one.differ {
			if !since.IsZero() {
				of.Differs = append(of.Differs, agreements[i])
			}
		}
		all = append(all, of)
	}
	slices.SortFunc(all, func(a, b admin.Node) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// heard notes a status of a peer: whether it has the same mitigations, and which shards it
// finds down. It reports whether the peer is to be asked for what this node lacks.
func (p *peering) heard(from string, same bool, down []uint64, now time.Time) (ask bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(now)
	one := p.peers[from]
	if one == nil {
		one = &peer{first: now, pause: repairPause}
		p.peers[from] = one
	}
	one.heard, one.down = now, down
	if id := idOf(from); p.names[id] == "" && len(p.names) < maxNames {
		p.names[id] = from
	}
	p.most.Store(max(p.most.Load(), int32(len(p.peers)+1)))
	if same {
		one.pause, p.informed = repairPause, true
		return false
	}
	pause := repairPause
	if p.full() {
		pause = maxRepairPause
	}
	if now.Sub(one.asked) < one.pause || now.Sub(p.asked) < pause {
		return false
	}
	if !one.asked.IsZero() {
		one.pause = min(2*one.pause, maxRepairPause)
	}
	one.asked, p.asked = now, now
	return true
}

// maxNames is how many names of nodes are remembered, for records that they made.
const maxNames = 1024

// nameOf returns the name of a node, or its ID in hexadecimal if the name is not known.
func (p *peering) nameOf(id mitigation.NodeID) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(p.names[id], fmt.Sprintf("%016x", uint64(id)))
}

// undecodable logs that a peer's message cannot be decoded, at most once in ten seconds: such a
// peer sends them again and again.
func (p *peering) undecodable(from string, err error, now time.Time) {
	p.mu.Lock()
	if now.Sub(p.logged) < undecodablePause {
		p.unlogged++
		p.mu.Unlock()
		return
	}
	more := p.unlogged
	p.logged, p.unlogged = now, 0
	p.mu.Unlock()
	p.logger.Warn("cannot decode a message from another node; run the same version on all nodes", "from", from, "err", err, "unlogged", more)
}

// votes returns which shards each of the live peers finds down.
func (p *peering) votes(now time.Time) (all [][]uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(now)
	for _, one := range p.peers {
		all = append(all, one.down)
	}
	return all
}

// repaired notes that asking a peer brought news.
func (p *peering) repaired(from string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.peers[from]; one != nil {
		one.pause = repairPause
	}
}

// agrees notes whether a peer agrees with this node, and says so once it has differed for a
// while.
func (p *peering) agrees(with string, i int, agrees bool, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.peers[with]
	switch {
	case one == nil: // this process stood still since, and another goroutine was faster
	case agrees && one.said[i]:
		p.logger.Info("nodes agree again", "on", agreements[i], "with", with)
		fallthrough
	case agrees:
		one.differ[i], one.said[i] = time.Time{}, false
	case one.differ[i].IsZero():
		one.differ[i] = now
	case now.Sub(one.differ[i]) >= disagreeFor && !one.said[i]:
		one.said[i] = true
		p.logger.Error("nodes differ, so that counts are split; configure all nodes alike", "in", agreements[i], "from", with)
	}
}

// forget removes the peers that are silent. mu is held.
func (p *peering) forget(now time.Time) {
	for name, one := range p.peers {
		if now.Sub(one.heard) > silence {
			delete(p.peers, name)
		}
	}
}

// differing returns the peers that differ from this node in the ith agreement. mu is held.
func (p *peering) differing(i int) (names []string) {
	for name, one := range p.peers {
		if one.said[i] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

const (
	// learnFor is how long a node that has found its peers may take to learn their
	// mitigations before it is ready without.
	learnFor = time.Second

	// seekFor is how long a node looks for peers before it is ready without any.
	seekFor = 2 * time.Second
)

// ready says why the node is not ready, and what an operator should know if it is.
func (p *peering) ready(now time.Time) (detail []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(now)
	met := time.Time{}
	for _, one := range p.peers {
		if met.IsZero() || one.first.Before(met) {
			met = one.first
		}
	}
	switch {
	case p.informed || !p.seeks:
	case met.IsZero() && now.Sub(p.started) < seekFor:
		return nil, errors.New("looking for other nodes")
	case !met.IsZero() && now.Sub(met) < learnFor:
		return nil, errors.New("fetching the mitigations of other nodes")
	}
	for i, of := range agreements {
		for _, name := range p.differing(i) {
			detail = append(detail, fmt.Sprintf("%s differ from those of %s", of, name))
		}
	}
	return detail, nil
}
