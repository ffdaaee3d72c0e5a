// Package ring maps keys to shards by consistent hashing with bounded loads. While a shard is out, the others own its
// keys, and no other key moves. When the list of shards itself changes, bounded loads also move a few keys between the
// remaining shards.
//
// Placement is part of the wire protocol: all nodes of a PoP that have the same shards, with
// the same ones out, place every key identically, regardless of the order of the shards.
package ring

import (
	"fmt"
	"maps"
	"sync/atomic"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"
)

// These constants and the version of the consistent module determine where keys are placed. A node with different ones
// splits the counts of its PoP.
const (
	partitions  = 1021 // prime, far above the number of shards
	replication = 100  // points of a shard on the ring
	load        = 1.25 // maximum load of a shard, as a multiple of the mean
)

// A Ring maps keys to shards of type S. The zero Ring is empty. A Ring is safe for
// concurrent use.
type Ring[S any] struct {
	owners atomic.Pointer[[partitions]S]
}

// Set replaces the shards, which are keyed by name. A shard's name is its address,
// host:port, which must be spelled identically on every node. Owner uses the old shards
// until Set returns. After an error, the old shards remain.
//
// out names shards that own nothing for now. The keys that they own in the ring of all
// shards go to their owners in the ring without them; other keys do not move. Names in out
// that are not among the shards are ignored.
func (r *Ring[S]) Set(shards map[string]S, out ...string) error {
	in := maps.Clone(shards)
	for _, name := range out {
		delete(in, name)
	}
	if len(in) == 0 {
		r.owners.Store(nil)
		return nil
	}
	home, err := place(shards)
	if err != nil {
		return err
	}
	refuge := home
	if len(in) < len(shards) {
		if refuge, err = place(in); err != nil {
			return err
		}
	}
	var owners [partitions]S
	for i := range owners {
		owner, ok := in[home.GetPartitionOwner(i).String()]
		if !ok {
			owner = in[refuge.GetPartitionOwner(i).String()]
		}
		owners[i] = owner
	}
	r.owners.Store(&owners)
	return nil
}

// place distributes the partitions. It returns an error if the library panics for lack of room.
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

// Owner returns the shard that owns key, or the zero S if the ring has no shards or all are out. It reads a table that
// Set replaces as a whole, so it takes no lock and does not allocate.
func (r *Ring[S]) Owner(key [16]byte) (shard S) {
	if owners := r.owners.Load(); owners != nil {
		shard = owners[xxhash.Sum64(key[:])%partitions]
	}
	return shard
}

// Owners returns the owner of each partition, or nil if the ring is empty. Partitions have equal shares
// of the keys. The caller must not modify the result.
func (r *Ring[S]) Owners() []S {
	owners := r.owners.Load()
	if owners == nil {
		return nil
	}
	return owners[:]
}

type name string

func (n name) String() string { return string(n) }

// A hasher needs no secret, because clients cannot choose its input: keys and shard names.
type hasher struct{}

func (hasher) Sum64(b []byte) uint64 { return xxhash.Sum64(b) }
