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
// considers down, and drains, with all numbers big endian.
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
	Encoding          byte // statusVersion
	Digest            uint64
	Fingerprints      Fingerprints
	Version           [MaxVersion]byte
	State             State
	Requests, Refused float32
	Down              byte // number of shards that the node considers down
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
	statusVersion = 3

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
	return gossip.MaxStatus - binary.Size(statusHead{}) - 8*len(s.Down)
}

// Append appends the encoded status to dst.
func (s *Status) Append(dst []byte) []byte {
	head := statusHead{
		Encoding: statusVersion, Digest: s.Digest, Fingerprints: s.Fingerprints, State: s.State, Requests: s.Requests,
		Refused: s.Refused, Down: byte(len(s.Down)),
	}
	copy(head.Version[:], s.Version)
	for _, part := range []any{head, s.Down, s.Drains} {
		dst, _ = binary.Append(dst, binary.BigEndian, part) // it can encode these types
	}
	return dst
}

// ParseStatus decodes a status. The result refers to b.
func ParseStatus(b []byte) (s Status, err error) {
	var head statusHead
	n, _ := binary.Decode(b, binary.BigEndian, &head) // 0 if b is too short
	drains := n + 8*int(head.Down)
	if head.Encoding != statusVersion || drains > len(b) {
		return s, errors.New("pop: unknown version of a status")
	}
	s = Status{
		Digest: head.Digest, Fingerprints: head.Fingerprints, State: head.State, Requests: head.Requests,
		Refused: head.Refused,
	}
	s.Version = strings.Map(func(r rune) rune {
		if r < '!' || r > '~' {
			return -1
		}
		return r
	}, string(head.Version[:]))
	for _, rate := range [...]float32{s.Requests, s.Refused} {
		if !(0 <= rate && rate <= math.MaxFloat32) { // JSON has neither infinity nor NaN
			return s, fmt.Errorf("pop: a status with a rate of %v", rate)
		}
	}
	s.Down = make([]uint64, head.Down)
	_, _ = binary.Decode(b[n:], binary.BigEndian, s.Down)
	s.Drains = b[drains:]
	return s, nil
}
