// Package ring finds the shard that owns a key, by consistent hashing with bounded
// loads: when a shard comes or goes, only its part of the keys moves.
//
// Placement is wire protocol: all nodes of a PoP that name the same shards place every
// key alike, whatever the order in which they name them.
package ring

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"
)

// These decide where keys are, as does the version of the consistent module. A node that
// differs in one of them splits the counts of its PoP.
const (
	partitions  = 1021 // prime, far above the number of shards
	replication = 100  // points of a shard on the ring
	load        = 1.25 // of the fullest shard, as a multiple of the mean
)

// ErrEmpty says that a ring has no shards.
var ErrEmpty = errors.New("ring: no shards")

// A Ring maps keys to shards of type S. The zero Ring is empty. Owner may be called
// concurrently with everything else; Set with itself.
type Ring[S any] struct {
	owners atomic.Pointer[[partitions]S]
}

// Set replaces the shards by those given under their names. A name is a shard's
// address, host:port, spelled alike on every node. Owner answers from the old shards
// until Set returns. After an error the old ones stay.
func (r *Ring[S]) Set(shards map[string]S) error {
	if len(shards) == 0 {
		r.owners.Store(nil)
		return nil
	}
	placed, err := place(shards)
	if err != nil {
		return err
	}
	var owners [partitions]S
	for i := range owners {
		owners[i] = shards[placed.GetPartitionOwner(i).String()]
	}
	r.owners.Store(&owners)
	return nil
}

// place distributes the partitions. The library panics where it finds no room.
func place[S any](shards map[string]S) (placed *consistent.Consistent, err error) {
	members := make([]consistent.Member, 0, len(shards))
	for n := range shards {
		members = append(members, name(n))
	}
	defer func() {
		if r := recover(); r != nil {
			placed, err = nil, fmt.Errorf("ring: placing %d shards: %v", len(members), r)
		}
	}()
	return consistent.New(members, consistent.Config{
		Hasher:            hasher{},
		PartitionCount:    partitions,
		ReplicationFactor: replication,
		Load:              load,
	}), nil
}

// Owner returns the shard that owns key. It reads a table that Set replaces whole, so
// that it takes no lock and allocates nothing. The error is ErrEmpty.
func (r *Ring[S]) Owner(key [16]byte) (shard S, err error) {
	owners := r.owners.Load()
	if owners == nil {
		return shard, ErrEmpty
	}
	return owners[xxhash.Sum64(key[:])%partitions], nil
}

type name string

func (n name) String() string { return string(n) }

// hasher is not keyed: what it hashes, tags and shard names, no client can choose.
type hasher struct{}

func (hasher) Sum64(b []byte) uint64 { return xxhash.Sum64(b) }
