package pop

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/edgelimit/edge/pop/gossip"
)

// A status lets nodes find out whether they agree. Encoded, with all numbers big endian:
//
//	  0  version of the status
//	  1  sum of the digest of the mitigations
//	  9  fingerprints of the secret, the shards and the rules
//	 33  number of shards that the node finds down, then the ID of each, in 8 bytes
//	 ..  drains, see vote.Votes.AppendDrains
//	-33  fingerprint of the client prefixes
//	-25  version of the program, as text
type status struct {
	digest  uint64
	prints  fingerprints
	down    []uint64
	drains  []byte
	version string
}

const (
	statusVersion = 1
	statusHead    = 34 // bytes before the shard IDs
	statusTail    = 8 + versionSize
	versionSize   = 25
)

// agreements are the properties that all nodes of a PoP must share.
var agreements = [...]string{"secret", "shards", "rules", "client_prefixes"}

// fingerprints are hashes of the agreements, in their order.
type fingerprints [len(agreements)]uint64

// parseStatus decodes a status. The result refers to b.
func parseStatus(b []byte) (s status, err error) {
	if len(b) < statusHead+statusTail || b[0] != statusVersion || len(b) < statusHead+8*int(b[statusHead-1])+statusTail {
		return s, errors.New("pop: unknown version of a status")
	}
	s.digest = binary.BigEndian.Uint64(b[1:])
	tail := b[len(b)-statusTail:]
	for i := range s.prints[:3] {
		s.prints[i] = binary.BigEndian.Uint64(b[9+8*i:])
	}
	s.prints[3] = binary.BigEndian.Uint64(tail)
	s.version = strings.Map(func(r rune) rune {
		if r < '!' || r > '~' {
			return -1
		}
		return r
	}, string(tail[8:]))
	lists := b[statusHead : len(b)-statusTail]
	for range b[statusHead-1] {
		s.down, lists = append(s.down, binary.BigEndian.Uint64(lists)), lists[8:]
	}
	s.drains = lists
	return s, nil
}

// Status returns this node's status. Peers get it four times a second.
func (n *Node) Status() []byte {
	digest, prints := n.table.Digest(), n.fingerprints()
	b := binary.BigEndian.AppendUint64([]byte{statusVersion}, digest.Sum())
	for _, print := range prints[:3] {
		b = binary.BigEndian.AppendUint64(b, print)
	}
	down := n.shards.Against()
	b = append(b, byte(len(down)))
	for _, shard := range down {
		b = binary.BigEndian.AppendUint64(b, shard)
	}
	b = n.shards.AppendDrains(b, gossip.MaxStatus-statusTail)
	b = binary.BigEndian.AppendUint64(b, prints[3])
	var version [versionSize]byte
	copy(version[:], n.shortVersion())
	return append(b, version[:]...)
}

// ReceiveStatus handles the status of a peer. If the peer has other mitigations, this node asks for them.
func (n *Node) ReceiveStatus(from string, text []byte) {
	now := n.o.Now()
	s, err := parseStatus(text)
	if err != nil {
		n.peerTable.cannotDecode(from, err, now)
		return
	}
	n.shards.MergeDrains(s.drains)
	digest, known := n.table.Digest(), n.nodes()
	ask := n.peerTable.receivedStatus(from, &s, digest.Sum(), n.fingerprints(), now)
	if n.nodes() > known {
		n.noteNodes()
	}
	if ask {
		n.peers.SendTo(from, digest.Append([]byte{messageDigest}))
	}
}

// shortVersion returns the version of the program without the toolchain.
func (n *Node) shortVersion() string {
	version, _, _ := strings.Cut(n.o.Version, " ")
	return version[:min(len(version), versionSize)]
}

// fingerprints returns this node's hashes of the agreements.
func (n *Node) fingerprints() fingerprints {
	prefixes := uint64(n.o.Client.IPv4)<<8 | uint64(n.o.Client.IPv6)
	return fingerprints{n.secret.Fingerprint(), shardsFingerprint(n.o.Shards), n.Rules().Hash(), prefixes}
}

// shardsFingerprint returns a hash of a list of shards that does not depend on its order.
func shardsFingerprint(shards []string) uint64 {
	hash := xxhash.New()
	for _, addr := range slices.Sorted(slices.Values(shards)) {
		_, _ = hash.WriteString(addr + "\n")
	}
	return hash.Sum64()
}
