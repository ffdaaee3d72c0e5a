package peers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/edgelimit/edge/pop/gossip"
)

// A Status lets nodes find out whether they agree. Encoded, it is a statusHead, the IDs of the shards that the node
// considers down, drains, and a statusTail, with all numbers big endian.
type Status struct {
	Digest       uint64
	Fingerprints Fingerprints
	Down         []uint64 // at most 255
	Drains       []byte   // at most Room bytes; see vote.Votes.AppendDrains
	Version      string   // at most MaxVersion bytes

	State             State
	Requests, Refused float32 // per second, lately
}

type statusHead struct {
	Encoding     byte // statusVersion
	Digest       uint64
	Fingerprints [3]uint64 // of the secret, the shards and the rules
	Down         byte      // number of shards that the node considers down
}

type statusTail struct {
	Prefixes          uint64 // fingerprint of the client prefixes
	Version           [MaxVersion]byte
	State             State
	Requests, Refused float32
}

// A State says whether a node should get connections.
type State byte

const (
	NotReady State = iota
	Ready
	Stopping // it sends clients to other nodes and ends
)

// String returns the state as operators see it.
func (s State) String() string {
	return [...]string{"not_ready", "ready", "stopping"}[min(s, Stopping)]
}

const (
	statusVersion = 2

	// MaxVersion is the maximum length of the version, in bytes.
	MaxVersion = 25
)

// agreements are the names of the Fingerprints.
var agreements = [...]string{"secret", "shards", "rules", "client_prefixes"}

// Fingerprints are hashes of the settings that all nodes of a PoP must share: the secret, the shards, the rules and the
// client prefixes.
type Fingerprints [len(agreements)]uint64

// Shown returns f as operators see it, in hexadecimal, by name.
func (f Fingerprints) Shown() map[string]string {
	all := map[string]string{}
	for i, print := range f {
		all[agreements[i]] = fmt.Sprintf("%016x", print)
	}
	return all
}

// Room returns the maximum size of the drains, in bytes.
func (s *Status) Room() int {
	return gossip.MaxStatus - binary.Size(statusHead{}) - 8*len(s.Down) - binary.Size(statusTail{})
}

// Append appends the encoded status to dst.
func (s *Status) Append(dst []byte) []byte {
	head := statusHead{statusVersion, s.Digest, [3]uint64(s.Fingerprints[:]), byte(len(s.Down))}
	tail := statusTail{s.Fingerprints[3], [MaxVersion]byte{}, s.State, s.Requests, s.Refused}
	copy(tail.Version[:], s.Version)
	for _, part := range []any{head, s.Down, s.Drains, tail} {
		dst, _ = binary.Append(dst, binary.BigEndian, part) // it can encode these types
	}
	return dst
}

// ParseStatus decodes a status. The result refers to b.
func ParseStatus(b []byte) (s Status, err error) {
	var head statusHead
	var tail statusTail
	n, _ := binary.Decode(b, binary.BigEndian, &head) // 0 if b is too short
	drains, end := n+8*int(head.Down), len(b)-binary.Size(tail)
	if head.Encoding != statusVersion || drains > end {
		return s, errors.New("pop: unknown version of a status")
	}
	_, _ = binary.Decode(b[end:], binary.BigEndian, &tail)
	s = Status{Digest: head.Digest, State: tail.State, Requests: tail.Requests, Refused: tail.Refused}
	s.Fingerprints = Fingerprints{head.Fingerprints[0], head.Fingerprints[1], head.Fingerprints[2], tail.Prefixes}
	s.Version = strings.Map(func(r rune) rune {
		if r < '!' || r > '~' {
			return -1
		}
		return r
	}, string(tail.Version[:]))
	for _, rate := range [...]float32{s.Requests, s.Refused} {
		if !(0 <= rate && rate <= math.MaxFloat32) { // JSON has neither infinity nor NaN
			return s, fmt.Errorf("pop: a status with a rate of %v", rate)
		}
	}
	s.Down = make([]uint64, head.Down)
	_, _ = binary.Decode(b[n:], binary.BigEndian, s.Down)
	s.Drains = b[drains:end]
	return s, nil
}
