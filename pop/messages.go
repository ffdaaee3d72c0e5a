package pop

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/gossip"
	"github.com/edgelimit/edge/pop/peers"
)

// Peers carries messages to the other nodes of a PoP. It passes the messages of other nodes to Node.Receive and
// Node.ReceiveStatus. The methods must not block, and may keep their arguments.
type Peers interface {
	// Send passes a message to all other nodes.
	Send(message []byte)

	// SendTo passes messages to one node, and reports whether that node is known and can receive them now.
	SendTo(name string, messages ...[]byte) bool

	// ClockAhead returns how far this node's clock is ahead of the clock that is furthest behind, or 0 if none is
	// behind.
	ClockAhead() time.Duration
}

// noPeers implements Peers for a node that is alone.
type noPeers struct{}

func (noPeers) Send([]byte)                   {}
func (noPeers) SendTo(string, ...[]byte) bool { return false }
func (noPeers) ClockAhead() time.Duration     { return 0 }

// Messages between nodes begin with their kind.
const (
	messageRecords byte = 1 + iota // new records
	messageDigest                  // digest of the sender's records, to request the receiver's where they differ
	messageRepair                  // records, in answer to a digest
)

const (
	// recordsInMessage is the maximum number of records in a message.
	recordsInMessage = (gossip.MaxMessage - 1) / mitigation.SentSize

	// recordsInRepair is the maximum number of records in one repair.
	recordsInRepair = gossip.MaxSendTo * recordsInMessage
)

// Receive merges a message that another node sent age ago. It returns an error if part of the
// message cannot be decoded; its other records are merged.
func (n *Node) Receive(from string, message []byte, age time.Duration) error {
	if len(message) == 0 {
		return errors.New("pop: empty message")
	}
	switch kind, body := message[0], message[1:]; kind {
	case messageRecords, messageRepair:
		var first error // of decoding a record
		now, news := n.o.Now(), false
		for record := range slices.Chunk(body, mitigation.SentSize) {
			// A record carries its remaining lifetime at the time of sending.
			switch r, err := mitigation.ParseSent(record, now.Add(-age)); {
			case err == nil:
				news = n.limiter.Learn(r, "peer", now) || news
			case !errors.Is(err, mitigation.ErrExpired):
				first = cmp.Or(first, err)
			}
		}
		if news && kind == messageRepair {
			n.peerTable.Repaired(from)
		}
		return first
	case messageDigest:
		theirs, err := mitigation.ParseDigest(body)
		if err != nil {
			return err
		}
		n.repair(from, theirs)
		return nil
	}
	return fmt.Errorf("pop: unknown kind of message %d", message[0])
}

// publish sends a record of this node to its peers.
func (n *Node) publish(r mitigation.Record) {
	n.peers.Send(r.AppendSent([]byte{messageRecords}, n.o.Now()))
	if n.o.local != nil {
		n.o.local.told(r)
	}
}

// repair sends a peer the records for which its digest differs from this node's.
func (n *Node) repair(to string, theirs mitigation.Digest) {
	now := n.o.Now()
	var messages [][]byte
	for records := range slices.Chunk(n.table.Where(theirs, recordsInRepair, now), recordsInMessage) {
		message := []byte{messageRepair}
		for _, r := range records {
			message = r.AppendSent(message, now)
		}
		messages = append(messages, message)
	}
	if len(messages) > 0 {
		n.peers.SendTo(to, messages...)
	}
}

// status returns this node's status, without drains and the shards that it considers down.
func (n *Node) status() peers.Status {
	digest := n.table.Digest()
	version, _, _ := strings.Cut(n.o.Version, " ") // without the toolchain
	prefixes := uint64(n.o.Client.IPv4)<<8 | uint64(n.o.Client.IPv6)
	return peers.Status{
		Digest:       digest.Sum(),
		Fingerprints: peers.Fingerprints{n.secret.Fingerprint(), shardsFingerprint(n.ShardNames()), n.Rules().Hash(), prefixes},
		Version:      version[:min(len(version), peers.MaxVersion)],
	}
}

// ownStatus returns this node's status as operators see it.
func (n *Node) ownStatus() peers.Status {
	s := n.status()
	_, err := n.readiness()
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.state == stopping:
		s.State = peers.Stopping
	case err == nil:
		s.State = peers.Ready
	}
	s.Requests, s.Refused = n.operator.History.Rates()
	return s
}

// Status returns this node's status. Some peers get it four times a second, and pass it on.
func (n *Node) Status() []byte {
	s := n.ownStatus()
	s.Down = n.shards.Against()
	s.Drains = n.shards.AppendDrains(nil, s.Room())
	return s.Append(nil)
}

// ReceiveStatus handles the status of a peer. If the peer has different mitigations, this node asks for them, unless
// the status was relayed: it may be too old to say which mitigations the peer has. ReceiveStatus returns an error if
// the status cannot be decoded.
func (n *Node) ReceiveStatus(from string, text []byte, relayed bool) error {
	now := n.o.Now()
	s, err := peers.ParseStatus(text)
	if err != nil {
		return err
	}
	n.shards.MergeDrains(s.Drains)
	if n.gossip != nil {
		n.gossip.Leaving(from, s.State == peers.Stopping)
	}
	ours, known := n.status(), n.nodes()
	n.peerTable.Received(from, &s, ours.Fingerprints, now)
	if n.nodes() > known {
		n.noteNodes()
	}
	if !relayed && n.peerTable.Ask(from, s.Digest == ours.Digest, n.table.Full(), now) {
		digest := n.table.Digest()
		n.peers.SendTo(from, digest.Append([]byte{messageDigest}))
	}
	return nil
}

// shardsFingerprint returns a hash of a list of shards that does not depend on its order.
func shardsFingerprint(shards []string) uint64 {
	hash := xxhash.New()
	for _, addr := range slices.Sorted(slices.Values(shards)) {
		_, _ = hash.WriteString(addr + "\n")
	}
	return hash.Sum64()
}
