package vote_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edge/pop/vote"
)

// A shard leaves the ring after most nodes have voted against it for a second, and returns after three, later
// each time it leaves again soon.
func TestVotes(t *testing.T) {
	const a, b = "10.0.0.1:11211", "10.0.0.2:11211"
	type step struct {
		at      time.Duration
		against string // the shard that each node votes against: a, b, or - for none
		want    string // the shards that are out
	}
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"a node alone decides", []step{{0, "a", ""}, {time.Second, "a", "a"}}},
		{"one of two is a tie", []step{{0, "a-", ""}, {time.Minute, "a-", ""}}},
		{"two of four are a tie", []step{{0, "aa--", ""}, {time.Minute, "aa--", ""}}},
		{"two of three are a majority", []step{{0, "aa-", ""}, {time.Second, "aa-", "a"}}},
		{"a tie brings a shard back", []step{{0, "aa", ""}, {time.Second, "aa", "a"}, {2 * time.Second, "a-", "a"}, {5 * time.Second, "a-", ""}}},
		{"a short silence", []step{{0, "a", ""}, {999 * time.Millisecond, "a", ""}, {time.Second, "-", ""}, {1500 * time.Millisecond, "a", ""}, {2499 * time.Millisecond, "a", ""}, {2500 * time.Millisecond, "a", "a"}}},
		{"votes against different shards", []step{{0, "ab-", ""}, {time.Minute, "ab-", ""}}},
		{"votes do not empty the ring", []step{{0, "a", ""}, {time.Second, "a", "a"}, {2 * time.Second, "b", "a"}, {4 * time.Second, "b", ""}, {5 * time.Second, "b", "b"}}},
		{"it comes back later each time", []step{
			{0, "a", ""}, {time.Second, "a", "a"},
			{2 * time.Second, "-", "a"}, {4999 * time.Millisecond, "-", "a"}, {5 * time.Second, "-", ""},
			{6 * time.Second, "a", ""}, {7 * time.Second, "a", "a"},
			{8 * time.Second, "-", "a"}, {13999 * time.Millisecond, "-", "a"}, {14 * time.Second, "-", ""},
			{15 * time.Second, "a", ""}, {16 * time.Second, "a", "a"},
			{17 * time.Second, "-", "a"}, {28999 * time.Millisecond, "-", "a"}, {29 * time.Second, "-", ""},
		}},
		{"calm begins when it last left", []step{
			{0, "a", ""}, {time.Second, "a", "a"}, {2 * time.Second, "-", "a"}, {5 * time.Second, "-", ""},
			{4 * time.Minute, "a", ""}, {4*time.Minute + time.Second, "a", "a"},
			{4*time.Minute + 2*time.Second, "-", "a"}, {4*time.Minute + 8*time.Second, "-", ""},
			{8 * time.Minute, "a", ""}, {8*time.Minute + time.Second, "a", "a"},
			{8*time.Minute + 2*time.Second, "-", "a"}, {8*time.Minute + 13*time.Second, "-", "a"},
			{8*time.Minute + 14*time.Second, "-", ""},
		}},
		{"after a calm time it comes back as soon as the first time", []step{
			{0, "a", ""}, {time.Second, "a", "a"}, {2 * time.Second, "-", "a"}, {5 * time.Second, "-", ""},
			{5 * time.Minute, "a", ""}, {5*time.Minute + 2*time.Second, "a", "a"},
			{5*time.Minute + 3*time.Second, "-", "a"}, {5*time.Minute + 6*time.Second, "-", ""},
		}},
	} {
		var v vote.Votes
		v.Replace([]string{a, b})
		start := time.Unix(1_800_000_000, 0)
		for _, s := range tt.steps {
			var against [][]uint64
			for _, c := range s.against {
				of := map[rune][]uint64{'a': {vote.ID(a)}, 'b': {vote.ID(b)}}[c]
				against = append(against, of)
			}
			v.Count(against, start.Add(s.at))
			out := ""
			for _, addr := range v.Out() {
				out += map[string]string{a: "a", b: "b"}[addr]
			}
			if out != s.want {
				t.Errorf("%s: after %v, with votes %s: %q are out, want %q", tt.name, s.at, s.against, out, s.want)
			}
		}
	}
}

// However often a shard leaves, it is back a minute after the votes against it end.
func TestTheLongestAbsence(t *testing.T) {
	const addr = "10.0.0.1:11211"
	var v vote.Votes
	v.Replace([]string{addr, "10.0.0.2:11211"})
	now := time.Unix(1_800_000_000, 0)
	for range 20 {
		for _, against := range [][][]uint64{{{vote.ID(addr)}}, {nil}} {
			for _, after := range []time.Duration{0, time.Minute} {
				now = now.Add(after)
				v.Count(against, now)
			}
		}
		if out := v.Out(); len(out) > 0 {
			t.Fatalf("a minute after the last vote %s are out", out)
		}
	}
}

// Votes do not take the last shards that operators have left in the ring.
func TestVotesBesideDrains(t *testing.T) {
	var v vote.Votes
	v.Replace([]string{"a:1", "b:1"})
	now := time.Unix(1_800_000_000, 0)
	v.Drain("a:1", true, now)
	for range 2 {
		v.Count([][]uint64{{vote.ID("b:1")}}, now)
		now = now.Add(time.Minute)
	}
	if got, want := fmt.Sprint(v.Out()), "[a:1]"; got != want {
		t.Errorf("%s are out, want %s", got, want)
	}
}

// A shard keeps its standing and its drain while other shards join and leave.
func TestVotesOverReplacement(t *testing.T) {
	var v vote.Votes
	v.Replace([]string{"a:1", "b:1", "c:1"})
	start := time.Unix(1_800_000_000, 0)
	v.Drain("b:1", true, start)
	for _, at := range []time.Duration{0, time.Second} {
		v.Count([][]uint64{{vote.ID("a:1")}}, start.Add(at))
	}
	v.Replace([]string{"a:1", "b:1", "d:1"})
	if got, want := fmt.Sprint(v.Out()), "[a:1 b:1]"; got != want {
		t.Errorf("%s are out, want %s", got, want)
	}
	if v.Drain("c:1", true, start) {
		t.Error("a shard that left is drained")
	}
}

// Drains that exceed the size of a message are sent in several.
func TestManyDrains(t *testing.T) {
	const shards, room = 200, 1000 // bytes
	var here, there vote.Votes
	var addrs []string
	for i := range shards {
		addrs = append(addrs, fmt.Sprintf("10.0.0.%d:11211", i))
	}
	here.Replace(addrs)
	there.Replace(addrs)
	for _, addr := range addrs {
		here.Drain(addr, true, time.Unix(1_800_000_000, 0))
	}
	for range 4 {
		drains := here.AppendDrains(nil, room)
		if len(drains) > room {
			t.Fatalf("drains have %d bytes, want at most %d", len(drains), room)
		}
		there.ReadDrains(drains)
	}
	if got := len(there.Out()); got != shards {
		t.Errorf("%d shards are out after four messages, want %d", got, shards)
	}
}

// All nodes keep the same order to drain a shard, whatever the sequence in which they receive several.
func TestDrainsConverge(t *testing.T) {
	const addr = "10.0.0.1:11211"
	now := time.Unix(1_800_000_000, 0)
	exchange := func(a, b *vote.Votes) {
		toB, toA := a.AppendDrains(nil, 1<<16), b.AppendDrains(nil, 1<<16)
		a.ReadDrains(toA)
		b.ReadDrains(toB)
	}
	for _, tt := range []struct {
		name       string
		a, b       bool          // the orders of two operators
		behind     time.Duration // of the second one's clock
		heardFirst bool          // the second node has received the first order
		want       bool
	}{
		{"the later one holds", true, false, -time.Second, false, false},
		{"the earlier one does not", true, false, time.Second, false, true},
		{"at the same time", true, false, 0, false, true},
		{"at the same time, the other way", false, true, 0, false, true},
		{"by a clock that is behind", true, false, time.Hour, true, false},
	} {
		var a, b vote.Votes
		a.Replace([]string{addr})
		b.Replace([]string{addr})
		a.Drain(addr, tt.a, now)
		if tt.heardFirst {
			exchange(&a, &b)
		}
		b.Drain(addr, tt.b, now.Add(-tt.behind))
		exchange(&a, &b)
		for name, v := range map[string]*vote.Votes{"first": &a, "second": &b} {
			if got := slices.Contains(v.Out(), addr); got != tt.want {
				t.Errorf("%s: drained on the %s node: %t, want %t", tt.name, name, got, tt.want)
			}
		}
	}
}

// Operators have the last word, even after garbage in a shard.
func TestDrainAfterGarbage(t *testing.T) {
	const addr = "10.0.0.1:11211"
	var v vote.Votes
	v.Replace([]string{addr})
	v.ReadDrains(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, vote.ID(addr)), math.MaxUint64-1))
	for _, on := range []bool{true, false, true} {
		v.Drain(addr, on, time.Now())
		if got := slices.Contains(v.Out(), addr); got != on {
			t.Errorf("drained: %t, want %t", got, on)
		}
	}
}
