// Package ring finds the shard that owns a key, by consistent hashing with bounded
// loads. While a shard is out, its part of the keys is spread over the others, and no
// other key moves. When the list of shards itself changes, bounded loads move a few keys
// between those that stay, too.
//
// Placement is wire protocol: all nodes of a PoP that name the same shards, and the same
// of them as out, place every key alike, whatever the order in which they name them.
package ring

import (
	"errors"
	"fmt"
	"maps"
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

// ErrEmpty says that a ring has no shards, or that all of them are out.
var ErrEmpty = errors.New("ring: no shards")

// A Ring maps keys to shards of type S. The zero Ring is empty. Owner may be called
// concurrently with everything else; Set with itself.
type Ring[S any] struct {
	owners atomic.Pointer[[partitions]S]
}

// Set replaces the shards by those given under their names. A name is a shard's
// address, host:port, spelled alike on every node. Owner answers from the old shards
// until Set returns. After an error the old ones stay.
//
// out names those of the shards that own nothing for now. What they own in the ring of
// all goes to its owner in the ring of those that are in; what others own stays. Names
// in out that are not among the shards are ignored.
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

// Owners returns the owner of each of the equal parts of all keys, none if the ring is empty. It must
// not be changed.
func (r *Ring[S]) Owners() []S {
	owners := r.owners.Load()
	if owners == nil {
		return nil
	}
	return owners[:]
}

type name string

func (n name) String() string { return string(n) }

// hasher is not keyed: what it hashes, tags and shard names, no client can choose.
type hasher struct{}

func (hasher) Sum64(b []byte) uint64 { return xxhash.Sum64(b) }
