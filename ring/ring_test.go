package ring_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/edgelimit/edge/ring"
)

// named returns n shards, keyed by their addresses.
func named(n int) map[string]string {
	shards := map[string]string{}
	for i := range n {
		addr := fmt.Sprintf("10.0.0.%d:11211", i)
		shards[addr] = addr
	}
	return shards
}

func newRing(t testing.TB, shards map[string]string, out ...string) *ring.Ring[string] {
	t.Helper()
	r := new(ring.Ring[string])
	if err := r.Set(shards, out...); err != nil {
		t.Fatalf("Set(%v, %v): %v", shards, out, err)
	}
	return r
}

func owner(t testing.TB, r *ring.Ring[string], key [16]byte) string {
	t.Helper()
	shard := r.Owner(key)
	if shard == "" {
		t.Fatalf("Owner(%x) of a ring with shards is empty", key)
	}
	return shard
}

// keys returns n keys, always the same.
func keys(n int) [][16]byte {
	source := rand.NewChaCha8([32]byte{1})
	list := make([][16]byte, n)
	for i := range list {
		source.Read(list[i][:])
	}
	return list
}

func TestEmpty(t *testing.T) {
	r := new(ring.Ring[string])
	if shard := r.Owner([16]byte{1}); shard != "" {
		t.Errorf("Owner of the zero Ring = %q, want none", shard)
	}
	r = newRing(t, named(3))
	if err := r.Set(nil); err != nil {
		t.Fatal(err)
	}
	if shard := r.Owner([16]byte{1}); shard != "" {
		t.Errorf("Owner after Set(nil) = %q, want none", shard)
	}
	r = newRing(t, named(2), "10.0.0.0:11211", "10.0.0.1:11211")
	if shard := r.Owner([16]byte{1}); shard != "" {
		t.Errorf("Owner with all shards out = %q, want none", shard)
	}
}

// The table must equal the library's answers. Otherwise nodes with different versions of this package would
// disagree.
func TestOwnerIsLocateKey(t *testing.T) {
	for _, n := range []int{1, 2, 3, 10, 40} {
		shards := named(n)
		var members []consistent.Member
		for addr := range shards {
			members = append(members, member(addr))
		}
		want := consistent.New(members, consistent.Config{Hasher: hasher{}, PartitionCount: 1021, ReplicationFactor: 100, Load: 1.25})
		r := newRing(t, shards)
		for _, key := range keys(5000) {
			if got, want := owner(t, r, key), want.LocateKey(key[:]).String(); got != want {
				t.Fatalf("with %d shards Owner(%x) = %s, want %s", n, key, got, want)
			}
		}
	}
}

type member string

func (m member) String() string { return string(m) }

type hasher struct{}

func (hasher) Sum64(b []byte) uint64 { return xxhash.Sum64(b) }

// These owners were computed once. If they change, so does the wire protocol: nodes of the old and the new
// version would count the same client on different shards.
func TestPlacementIsPinned(t *testing.T) {
	r := newRing(t, named(5))
	got := map[string]string{}
	for _, key := range keys(8) {
		got[fmt.Sprintf("%x", key[:4])] = owner(t, r, key)
	}
	want := map[string]string{
		"0cd87274": "10.0.0.1:11211",
		"12f4a465": "10.0.0.4:11211",
		"3a311de8": "10.0.0.0:11211",
		"6ae6783f": "10.0.0.1:11211",
		"740489ea": "10.0.0.4:11211",
		"dbe5882e": "10.0.0.1:11211",
		"ee635acc": "10.0.0.4:11211",
		"fef55fe0": "10.0.0.2:11211",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("placement (-want +got):\n%s", diff)
	}
}

// The owners while a shard is out were computed once, too.
func TestPlacementWithAShardOutIsPinned(t *testing.T) {
	r := newRing(t, named(5), "10.0.0.1:11211", "10.0.0.2:11211")
	got := map[string]string{}
	for _, key := range keys(8) {
		got[fmt.Sprintf("%x", key[:4])] = owner(t, r, key)
	}
	want := map[string]string{
		"0cd87274": "10.0.0.0:11211",
		"12f4a465": "10.0.0.4:11211",
		"3a311de8": "10.0.0.0:11211",
		"6ae6783f": "10.0.0.0:11211",
		"740489ea": "10.0.0.4:11211",
		"dbe5882e": "10.0.0.3:11211",
		"ee635acc": "10.0.0.4:11211",
		"fef55fe0": "10.0.0.3:11211",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("placement (-want +got):\n%s", diff)
	}
}

// When a shard leaves the list, its keys move to several others; bounded loads move a few more.
func TestOneShardLess(t *testing.T) {
	all, list := named(10), keys(20000)
	before := newRing(t, all)
	const gone = "10.0.0.3:11211"
	fewer := named(10)
	delete(fewer, gone)
	for _, tt := range []struct {
		name  string
		after *ring.Ring[string]
		most  int // maximum number of keys that move between remaining shards
	}{
		{"not in the list", newRing(t, fewer), len(list) * 4 / 100},
		{"out", newRing(t, all, gone), 0},
	} {
		moved, elsewhere, heirs := 0, 0, map[string]int{}
		for _, key := range list {
			switch was, is := owner(t, before, key), owner(t, tt.after, key); {
			case was == gone:
				moved++
				heirs[is]++
			case was != is:
				elsewhere++
			}
		}
		if elsewhere > tt.most {
			t.Errorf("%s: %d of %d keys moved between shards that stayed, want at most %d", tt.name, elsewhere, len(list), tt.most)
		}
		if moved < len(list)*6/100 || moved > len(list)*13/100 {
			t.Errorf("%s: %d of %d keys were on one shard of ten", tt.name, moved, len(list))
		}
		if len(heirs) < 5 || heirs[gone] > 0 {
			t.Errorf("%s: the keys of one shard went to %v, want most of the others", tt.name, heirs)
		}
	}
}

// The keys of shards that are in never move, whichever others are out. Shards that are out own no keys. Once
// all are back, every key is where it was.
func TestOnlyKeysOfShardsThatAreOutMove(t *testing.T) {
	list := keys(4000) // keys of most partitions
	rapid.Check(t, func(rt *rapid.T) {
		all := named(rapid.IntRange(1, 12).Draw(rt, "shards"))
		out := map[string]bool{}
		r := newRing(t, all)
		before := map[[16]byte]string{}
		for _, key := range list {
			before[key] = owner(t, r, key)
		}
		for range rapid.IntRange(1, 4).Draw(rt, "changes") {
			var names []string
			clear(out)
			for _, addr := range slices.Sorted(maps.Keys(all)) {
				if rapid.Bool().Draw(rt, "out") && len(names) < len(all)-1 {
					names, out[addr] = append(names, addr), true
				}
			}
			if err := r.Set(all, names...); err != nil {
				rt.Fatal(err)
			}
			for _, key := range list {
				if was, is := before[key], owner(t, r, key); was != is && !out[was] || out[is] {
					rt.Fatalf("%x of %s is on %s while %v are out", key, was, is, names)
				}
			}
		}
		if err := r.Set(all, "10.9.9.9:11211"); err != nil { // not in the list
			rt.Fatal(err)
		}
		for _, key := range list {
			if was, is := before[key], owner(t, r, key); was != is {
				rt.Fatalf("%x was on %s, and with all shards back is on %s", key, was, is)
			}
		}
	})
}

func TestBalance(t *testing.T) {
	for _, n := range []int{2, 3, 5, 10, 30} {
		r, list := newRing(t, named(n)), keys(50000)
		counts := map[string]int{}
		for _, key := range list {
			counts[owner(t, r, key)]++
		}
		mean := float64(len(list)) / float64(n)
		for addr, count := range counts {
			if ratio := float64(count) / mean; ratio > 1.35 || len(counts) != n {
				t.Errorf("%d shards: %s has %.2f times the mean", n, addr, ratio)
			}
		}
	}
}

// Two nodes with the same shards agree, however they arrived at them.
func TestOrderDoesNotMatter(t *testing.T) {
	list := keys(200)
	rapid.Check(t, func(rt *rapid.T) {
		shards := named(rapid.IntRange(1, 12).Draw(rt, "shards"))
		a := newRing(t, shards)
		b := newRing(t, named(rapid.IntRange(0, 12).Draw(rt, "shards before")))
		if err := b.Set(shards); err != nil {
			rt.Fatal(err)
		}
		for _, key := range list {
			if x, y := owner(t, a, key), owner(t, b, key); x != y {
				rt.Fatalf("one node finds %x on %s, another on %s", key, x, y)
			}
		}
	})
}

func TestOwnerAllocatesNothing(t *testing.T) {
	r, key := newRing(t, named(10)), keys(1)[0]
	if n := testing.AllocsPerRun(1000, func() { r.Owner(key) }); n != 0 {
		t.Errorf("Owner allocates %v times, want 0", n)
	}
}

func BenchmarkOwner(b *testing.B) {
	r, list := newRing(b, named(10)), keys(1024)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		r.Owner(list[i%1024])
		i++
	}
}

func BenchmarkSet(b *testing.B) {
	shards := named(10)
	var r ring.Ring[string]
	for b.Loop() {
		if err := r.Set(shards); err != nil {
			b.Fatal(err)
		}
	}
}
