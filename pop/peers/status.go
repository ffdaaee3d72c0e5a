package peers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/edgelimit/edge/pop/gossip"
)

// A Status lets nodes find out whether they agree. See Append for the encoding.
type Status struct {
	Digest       uint64
	Fingerprints Fingerprints
	Down         []uint64 // at most 255
	Drains       []byte   // at most Room bytes; see vote.Votes.AppendDrains
	Version      string   // at most MaxVersion bytes

	State             State
	Requests, Refused float32 // per second, lately
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

	// statusSize is the size of an encoded status without Down and Drains, in bytes.
	statusSize = 1 + 8 + 8*len(agreements) + MaxVersion + 1 + 2*4 + 1
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
func (s *Status) Room() int { return gossip.MaxStatus - statusSize - 8*len(s.Down) }

// Append appends the encoded status to dst. All numbers are big endian.
func (s *Status) Append(dst []byte) []byte {
	var version [MaxVersion]byte
	copy(version[:], s.Version)
	for _, part := range []any{byte(statusVersion), s.Digest, s.Fingerprints, version, s.State, s.Requests, s.Refused,
		byte(len(s.Down)), s.Down, s.Drains} {
		dst, _ = binary.Append(dst, binary.BigEndian, part) // it can encode these types
	}
	return dst
}

// ParseStatus decodes a status. The result refers to b.
func ParseStatus(b []byte) (s Status, err error) {
	if len(b) < statusSize || b[0] != statusVersion || len(b) < statusSize+8*int(b[statusSize-1]) {
		return s, errors.New("pop: unknown version of a status")
	}
	var encoding, down byte
	var version [MaxVersion]byte
	s.Down, s.Drains = make([]uint64, b[statusSize-1]), b
	for _, part := range []any{&encoding, &s.Digest, &s.Fingerprints, &version, &s.State, &s.Requests, &s.Refused,
		&down, s.Down} {
		n, _ := binary.Decode(s.Drains, binary.BigEndian, part) // b is long enough
		s.Drains = s.Drains[n:]
	}
	s.Version = strings.Map(func(r rune) rune {
		if r < '!' || r > '~' {
			return -1
		}
		return r
	}, string(version[:]))
	for _, rate := range [...]float32{s.Requests, s.Refused} {
		if !(0 <= rate && rate <= math.MaxFloat32) { // JSON has neither infinity nor NaN
			return s, fmt.Errorf("pop: a status with a rate of %v", rate)
		}
	}
	return s, nil
}
