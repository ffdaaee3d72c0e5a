package gossip

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/edgelimit/edge/internal/bubble"
)

// In any order, no number is fresh twice, and each that is not too old is fresh once. 0 is invalid.
func TestWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w window
		seen := map[uint64]bool{}
		var highest uint64
		near := rapid.Int64Range(-9, 9) // of 0, the highest, and one and two windows from it
		for _, step := range rapid.SliceOfN(rapid.Int64Range(-1, 2), 100, 300).Draw(t, "windows") {
			n := uint64(max(0, int64(highest)+step*windowSize+near.Draw(t, "number")))
			want := fresh
			switch {
			case n == 0 || n+windowSize <= highest:
				want = outdated
			case seen[n]:
				want = repeated
			}
			if got := w.take(n); got != want {
				t.Fatalf("take(%d) = %v, want %v; the highest was %d", n, got, want, highest)
			}
			seen[n], highest = true, max(highest, n)
		}
	})
}

func FuzzPacket(f *testing.F) {
	f.Add(header{kindMessages, 1, 2, 3, 4}.packet())
	f.Add(append(header{kindMessages, 1, 2, 3, 4}.packet(), pack([][]byte{[]byte("a"), {}, []byte("bcd")}, time.Unix(9, 0))[0].bytes...))
	f.Add(append(header{kindAcks, 1, 2, 0, 4}.packet(), make([]byte, 16)...))
	f.Add(append(header{kindStatus, 1, 2, 9, 4}.packet(), make([]byte, timesSize+5)...))
	f.Add([]byte{packetVersion, 9})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, body, err := parsePacket(b)
		if err != nil {
			return
		}
		if again := append(h.packet(), body...); !bytes.Equal(again, b) {
			t.Errorf("%x is read as %x", b, again)
		}
		switch h.kind {
		case kindMessages:
			var all [][]byte
			for m := range messages(body) {
				all = append(all, m)
			}
			if len(body) <= maxBody && len(all) > 0 && !bytes.Equal(pack(all, time.Unix(9, 0))[0].bytes, body) {
				t.Errorf("messages of %x are %x", body, all)
			}
		case kindAcks:
			new(link).acknowledged(body)
		case kindStatus:
			new(clock).take(body, time.Unix(1e9, 0))
		}
	})
}

func TestPack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 0, MaxMessage)).Draw(t, "messages")
		var out [][]byte
		for _, body := range pack(in, time.Unix(9, 0)) {
			if len(body.bytes) > maxBody || body.at != 9e6 {
				t.Fatalf("a body has %d bytes, of %d; want at most %d, of 9 s", len(body.bytes), body.at, maxBody)
			}
			for m := range messages(body.bytes) {
				out = append(out, m)
			}
		}
		if !slices.EqualFunc(in, out, bytes.Equal) {
			t.Fatalf("packed %x, unpacked %x", in, out)
		}
	})
}

// The peer's clock is an hour ahead, and two of its packets were delayed.
func TestClock(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	const ahead = time.Hour
	var mine, theirs clock
	if _, ok := mine.offset(); ok {
		t.Error("an offset is known before any packet")
	}
	now := start
	for _, delays := range [][2]time.Duration{
		{400 * time.Millisecond, time.Millisecond}, // one direction is slower: wrong by half of the difference
		{time.Millisecond, time.Millisecond},
		{time.Millisecond, 300 * time.Millisecond},
	} {
		packet := mine.appendTimes(nil, now)
		now = now.Add(delays[0])
		theirs.take(packet, now.Add(ahead))
		now = now.Add(100 * time.Millisecond)
		packet = theirs.appendTimes(nil, now.Add(ahead))
		now = now.Add(delays[1])
		mine.take(packet, now)
		now = now.Add(100 * time.Millisecond)
	}
	got, ok := mine.offset()
	if !ok || (got-ahead).Abs() > time.Millisecond {
		t.Errorf("offset %v, %v; want %v", got, ok, ahead)
	}
	if got := median([]time.Duration{5, 1, 100}); got != 5 {
		t.Errorf("median = %d, want 5", got)
	}
	if got := median([]time.Duration{6, 1, 100, 4}); got != 5 {
		t.Errorf("median = %d, want 5", got)
	}
}

// A node's offset from the clock that is furthest behind, and from the median. Nodes whose clock is unknown do not
// count.
func TestClockAhead(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name   string
		others []time.Duration // offsets of the others
		want   time.Duration
		median time.Duration
	}{
		{"nobody", nil, 0, 0},
		{"the others are ahead", []time.Duration{200 * ms, 4 * ms}, 0, -102 * ms},
		{"one is behind", []time.Duration{200 * ms, -150 * ms, 3 * ms}, 150 * ms, -3 * ms},
		{"all are", []time.Duration{-20 * ms, -150 * ms}, 150 * ms, 85 * ms},
	} {
		g := &Gossip{reached: map[uint64]*link{9: {}}}
		for i, offset := range test.others {
			l := new(link)
			l.clock.samples[0], l.clock.n = sample{offset: offset}, 1
			g.reached[uint64(i)] = l
		}
		if got := g.ClockAhead(); got != test.want {
			t.Errorf("%s: ahead by %v, want %v", test.name, got, test.want)
		}
		if got := g.ClockOffset(); got != test.median {
			t.Errorf("%s: ahead of the median by %v, want %v", test.name, got, test.median)
		}
	}
}

// Clocks that were set back and impossible times are not measurements.
func TestClockGarbage(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for name, times := range map[string][3]int64{
		"not heard":      {now.UnixMicro(), 0, 0},
		"from tomorrow":  {now.UnixMicro(), now.Add(24 * time.Hour).UnixMicro(), 0},
		"held for years": {now.UnixMicro(), now.UnixMicro(), 1 << 60},
		"held before":    {now.UnixMicro(), now.UnixMicro(), -5},
		"of last week":   {now.UnixMicro(), now.Add(-7 * 24 * time.Hour).UnixMicro(), 0},
	} {
		var b []byte
		for _, v := range times {
			b = binary.BigEndian.AppendUint64(b, uint64(v))
		}
		var c clock
		c.take(b, now)
		if offset, ok := c.offset(); ok {
			t.Errorf("%s: offset %v, want none", name, offset)
		}
	}
}

// Received packets are checked by their header: late messages and old statuses are rejected, and the age of
// messages is computed from the sender's clock.
func TestReceive(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const peer, ahead = 2, time.Hour
		var got []string
		g := newGossip(t, nil)
		g.record(func(from, kind string, content []byte, age time.Duration) {
			got = append(got, fmt.Sprintf("%s %s %s %v", from, kind, content, age))
		})
		l := g.meet(peer)
		messages := func(from, to, number uint64, at time.Time, text string) []byte {
			return append(header{kindMessages, from, to, number, at.UnixMicro()}.packet(), pack([][]byte{[]byte(text)}, at)[0].bytes...)
		}
		status := func(number uint64) []byte {
			c := clock{peerSent: time.Now().UnixMicro(), receivedAt: time.Now().Add(ahead)} // zero delay
			return append(c.appendTimes(header{kindStatus, peer, me, number, 0}.packet(), time.Now().Add(ahead)), "ok"...)
		}
		theirs := func() time.Time { return time.Now().Add(ahead) }
		for _, test := range []struct {
			name   string
			packet []byte
			want   string
			acks   int
		}{
			{"clock not known", messages(peer, me, 1, theirs().Add(-time.Hour), "a"), "n2 message a 0s", 1},
			{"status", status(2), "n2 status ok 0s", 1},
			{"status again", status(2), "", 1},
			{"an older status", status(1), "", 1},
			{"immediately", messages(peer, me, 3, theirs(), "b"), "n2 message b 0s", 2},
			{"after two seconds", messages(peer, me, 4, theirs().Add(-2*time.Second), "c"), "n2 message c 2s", 3},
			{"from the future", messages(peer, me, 5, theirs().Add(time.Minute), "d"), "n2 message d 0s", 4},
			{"too late", messages(peer, me, 6, theirs().Add(-maxAge-time.Millisecond), "e"), "", 4},
			{"again, acknowledged again", messages(peer, me, 4, theirs(), "c"), "", 5},
			{"for another run", messages(peer, 9, 7, theirs(), "f"), "", 5},
			{"from another run", messages(9, me, 7, theirs(), "g"), "", 5},
			{"garbage", []byte("garbage that is longer than a header has to be"), "", 5},
		} {
			got = nil
			g.receive(test.packet)
			if text := strings.Join(got, "; "); text != test.want || len(l.acks) != test.acks {
				t.Errorf("%s: received %q with %d acknowledgements, want %q with %d", test.name, text, len(l.acks), test.want, test.acks)
			}
		}
		l.leave()
		got = nil
		if g.receive(messages(peer, me, 8, theirs(), "h")); got != nil {
			t.Errorf("received %q from a node that is not a peer", got)
		}
	})
}

// A removed key is no longer accepted, and the first key encrypts.
func TestSetKeysRemovesOldKeys(t *testing.T) {
	one, two, three := bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{2}, 32), bytes.Repeat([]byte{3}, 24)
	g := newGossip(t, func(o *Options) { o.Keys = [][]byte{one} })
	if _, err := g.config(); err != nil {
		t.Fatal(err)
	}
	for _, keys := range [][][]byte{{one, two}, {two, one}, {two}, {three}, {one, two, three}} {
		if err := g.SetKeys(keys); err != nil {
			t.Fatal(err)
		}
		got := g.keyring.GetKeys()
		if !bytes.Equal(got[0], keys[0]) {
			t.Errorf("%x encrypts, want %x", got[0], keys[0])
		}
		slices.SortFunc(got, bytes.Compare)
		want := slices.SortedFunc(slices.Values(keys), bytes.Compare)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("keys (-want +got):\n%s", d)
		}
	}
}

// Two nodes with the same name are noticed, unless one may be the previous process of the other.
func TestTwins(t *testing.T) {
	g := newGossip(t, nil)
	g.addr = "10.0.0.1:7946"
	start := time.Now()
	for _, step := range []struct {
		what  string
		do    func()
		after time.Duration
		want  string
	}{
		{"nodes with names of their own", func() { g.joined(nodeAt(2)); g.joined(peerAt("n@3", 3)) }, 2 * conflictAfter, ""},
		{"a node that was killed and came back", func() { g.joined(peerAt("n@3", 4)) }, conflictAfter / 2, ""},
		{"twins", func() {}, 2 * conflictAfter, `two nodes have the name "n@3", those at 10.0.0.3:7946 and 10.0.0.4:7946: give each its own`},
		{"this node's twin", func() { delete(g.reached, 4); g.joined(peerAt("n1", 5)) }, 2 * conflictAfter, `two nodes have the name "n1", those at 10.0.0.1:7946 and 10.0.0.5:7946: give each its own`},
		{"nodes that have names of their own again", func() { delete(g.reached, 5) }, 2 * conflictAfter, ""},
	} {
		step.do()
		if text := g.NameConflict(start.Add(step.after)); text != step.want {
			t.Errorf("%s: the conflict is %q, want %q", step.what, text, step.want)
		}
	}
}
