package peers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/edgelimit/edge/pop/gossip"
)

// A Status lets nodes find out whether they agree. Encoded, with all numbers big endian:
//
//	  0  version of the status
//	  1  sum of the digest of the mitigations
//	  9  fingerprints of the secret, the shards and the rules
//	 33  number of shards that the node considers down, then the ID of each, in 8 bytes
//	 ..  drains, see vote.Votes.AppendDrains
//	-42  fingerprint of the client prefixes
//	-34  version of the program, as text
//	 -9  state of the node
//	 -8  requests per second, and those that were refused, as floating-point numbers of 32 bits
type Status struct {
	Digest       uint64
	Fingerprints Fingerprints
	Down         []uint64 // at most 255
	Drains       []byte   // at most Room bytes
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
	statusVersion = 2
	statusHead    = 34 // bytes before the shard IDs
	statusTail    = 8 + MaxVersion + 1 + 8

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
func (s *Status) Room() int { return gossip.MaxStatus - statusHead - 8*len(s.Down) - statusTail }

// Append appends the encoded status to dst.
func (s *Status) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, statusVersion), s.Digest)
	for _, print := range s.Fingerprints[:3] {
		dst = binary.BigEndian.AppendUint64(dst, print)
	}
	dst = append(dst, byte(len(s.Down)))
	for _, shard := range s.Down {
		dst = binary.BigEndian.AppendUint64(dst, shard)
	}
	dst = binary.BigEndian.AppendUint64(append(dst, s.Drains...), s.Fingerprints[3])
	var version [MaxVersion]byte
	copy(version[:], s.Version)
	dst = append(append(dst, version[:]...), byte(s.State))
	dst = binary.BigEndian.AppendUint32(dst, math.Float32bits(s.Requests))
	return binary.BigEndian.AppendUint32(dst, math.Float32bits(s.Refused))
}

// ParseStatus decodes a status. The result refers to b.
func ParseStatus(b []byte) (s Status, err error) {
	if len(b) < statusHead+statusTail || b[0] != statusVersion || len(b) < statusHead+8*int(b[statusHead-1])+statusTail {
		return s, errors.New("pop: unknown version of a status")
	}
	s.Digest = binary.BigEndian.Uint64(b[1:])
	tail := b[len(b)-statusTail:]
	for i := range 3 {
		s.Fingerprints[i] = binary.BigEndian.Uint64(b[9+8*i:])
	}
	s.Fingerprints[3] = binary.BigEndian.Uint64(tail)
	s.Version = strings.Map(func(r rune) rune {
		if r < '!' || r > '~' {
			return -1
		}
		return r
	}, string(tail[8:8+MaxVersion]))
	tail = tail[8+MaxVersion:]
	s.State = State(tail[0])
	s.Requests = math.Float32frombits(binary.BigEndian.Uint32(tail[1:]))
	s.Refused = math.Float32frombits(binary.BigEndian.Uint32(tail[5:]))
	for _, rate := range [...]float32{s.Requests, s.Refused} {
		if !(0 <= rate && rate <= math.MaxFloat32) { // JSON has neither infinity nor NaN
			return s, fmt.Errorf("pop: a status with a rate of %v", rate)
		}
	}
	lists := b[statusHead : len(b)-statusTail]
	for range b[statusHead-1] {
		s.Down, lists = append(s.Down, binary.BigEndian.Uint64(lists)), lists[8:]
	}
	s.Drains = lists
	return s, nil
}
