package pop

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// A status tells other nodes whether they agree with this one. It is sent as follows; all numbers
// are big endian.
//
//	  0  version of the status
//	  1  sum of the digest of the mitigations
//	  9  fingerprints of the secret, the shards and the rules
//	 33  how many shards the node finds down, and the ID of each, in 8 bytes
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
	statusHead    = 34 // bytes before the IDs of shards
	statusTail    = 8 + versionSize
	versionSize   = 25
)

// agreements are what all nodes of a PoP must have in common.
var agreements = [...]string{"secret", "shards", "rules", "client_prefixes"}

// fingerprints are hashes of the agreements, in their order.
type fingerprints [len(agreements)]uint64

// parseStatus reads a status, and shares its memory.
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

// Status returns this node's status, which the other nodes are sent four times a second.
func (n *Node) Status() []byte {
	digest, prints := n.table.Digest(), n.fingerprints()
	b := binary.BigEndian.AppendUint64([]byte{statusVersion}, digest.Sum())
	for _, print := range prints[:3] {
		b = binary.BigEndian.AppendUint64(b, print)
	}
	b = binary.BigEndian.AppendUint64(n.ring.append(b), prints[3])
	var version [versionSize]byte
	copy(version[:], n.shortVersion())
	return append(b, version[:]...)
}

// ReceiveStatus reads the status of another node. If that node has other mitigations, this one
// asks for them.
func (n *Node) ReceiveStatus(from string, text []byte) {
	now := n.o.Now()
	s, err := parseStatus(text)
	if err != nil {
		n.peering.undecodable(from, err, now)
		return
	}
	n.ring.hear(s.drains)
	digest, known := n.table.Digest(), n.nodes()
	ask := n.peering.heard(from, &s, digest.Sum(), n.fingerprints(), now)
	if n.nodes() > known {
		n.noteNodes()
	}
	if ask {
		n.peers.SendTo(from, digest.Append([]byte{messageDigest}))
	}
}

// shortVersion returns the version of the program, without with what it was built.
func (n *Node) shortVersion() string {
	version, _, _ := strings.Cut(n.o.Version, " ")
	return version[:min(len(version), versionSize)]
}

// fingerprints returns hashes of what all nodes must have in common.
func (n *Node) fingerprints() fingerprints {
	prefixes := uint64(n.o.Client.IPv4)<<8 | uint64(n.o.Client.IPv6)
	return fingerprints{n.secret.Fingerprint(), shardsFingerprint(n.o.Shards), n.Rules().Hash(), prefixes}
}

// shardsFingerprint returns a hash of a list of shards, in any order.
func shardsFingerprint(shards []string) uint64 {
	hash := xxhash.New()
	for _, addr := range slices.Sorted(slices.Values(shards)) {
		_, _ = hash.WriteString(addr + "\n")
	}
	return hash.Sum64()
}
