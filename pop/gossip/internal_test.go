package gossip

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/edgelimit/edge/internal/bubble"
)

// A packet that cannot be decrypted does not show who has sent it, so only connections show that a node has another key.
func TestPacketsNameNoNode(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g, err := New(Options{Name: "n1", Keys: [][]byte{make([]byte, 16)}})
		if err != nil {
			t.Fatal(err)
		}
		reads := logReader{g, log.New(io.Discard, "", 0)}
		for _, tt := range []struct{ cause, want string }{
			{"Decrypt packet failed: No installed keys could decrypt the message", ""},
			{"failed to receive: No installed keys could decrypt the message", "cannot decrypt what the node at 192.0.2.1 sends, " +
				"so counts are split: give all nodes the same gossip key"},
		} {
			for range 10 {
				fmt.Fprintf(reads, "[ERR] memberlist: %s from=192.0.2.1:7946\n", tt.cause)
				time.Sleep(time.Second)
			}
			if got := g.JoinProblem(); got != tt.want {
				t.Errorf("after 10 s of %q: %q, want %q", tt.cause, got, tt.want)
			}
		}
		if n := testutil.ToFloat64(g.metrics.refused.WithLabelValues(otherKey)); n != 20 {
			t.Errorf("%v were refused, want 20", n)
		}
	})
}

// In any order, no number is taken twice, and each that is not too old is taken once. 0 is invalid.
func TestWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w window
		seen := map[uint64]bool{}
		var highest uint64
		near := rapid.Int64Range(-9, 9) // of 0, the highest, and one and two windows from it
		for _, step := range rapid.SliceOfN(rapid.Int64Range(-1, 2), 100, 300).Draw(t, "windows") {
			n := uint64(max(0, int64(highest)+step*windowSize+near.Draw(t, "number")))
			want := n != 0 && n+windowSize > highest && !seen[n]
			if got := w.take(n); got != want {
				t.Fatalf("take(%d) = %v, want %v; the highest was %d", n, got, want, highest)
			}
			seen[n], highest = true, max(highest, n)
		}
		var other window
		want := false
		for range 70 {
			n := uint64(max(1, int64(highest)+rapid.Int64Range(-2*windowSize, 1).Draw(t, "of another")))
			other.take(n)
		}
		for n := other.highest; n > 0 && n+windowSize > other.highest; n-- {
			want = want || other.has(n) && !w.has(n)
		}
		if got := w.lacks(other); got != want {
			t.Fatalf("%+v lacks numbers of %+v: %v, want %v", w, other, got, want)
		}
	})
}

// A window does not lack numbers that are too old for it, which it would refuse.
func TestWindowLacksNoOldNumber(t *testing.T) {
	w, other := window{100, math.MaxUint64}, window{60, 1<<40 | 1} // 60 and 20
	if w.lacks(other) {
		t.Errorf("%+v lacks numbers of %+v", w, other)
	}
}

func FuzzPacket(f *testing.F) {
	f.Add(packetOf(header{kindNews, 1, 2, 3, 4, 5}))
	f.Add(packetOf(header{kindAsk, 2, me, 3, 4, 5}, entry{bytes: packed([]byte("a"))}, entry{}))
	f.Add(packetOf(header{kindNews, 2, me, 3, 4, 5}, entry{me, 9, 1 << 63, nil}, entry{2, 1, 5, packed([]byte("a"), nil, []byte("bcd"))}))
	f.Add(packetOf(header{kindStatus, 2, me, 9, 4, 5}, entry{3, 1, 1, []byte("status")}))
	f.Add([]byte{9})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, entries, err := parsePacket(b)
		if err != nil {
			return
		}
		if again := packetOf(h, entries...); !bytes.Equal(again, b) {
			t.Errorf("%x is read as %x", b, again)
		}
		for _, e := range entries {
			if all, err := messages(e.bytes); err == nil && !bytes.Equal(packed(all...), e.bytes) {
				t.Errorf("messages of %x are %x", e.bytes, all)
			}
		}
		g := newGossip(t, nil)
		g.meet(2)
		g.meet(3)
		g.kept = []batch{{run: me, number: 9}}
		g.receive(b, time.Now())
		g.due(time.Now())
	})
}

func TestPack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 0, MaxMessage)).Draw(t, "messages")
		g := newGossip(t, nil)
		g.meet(2)
		for _, m := range in {
			g.Send(m)
		}
		sent, _ := g.due(time.Now())
		var out [][]byte
		for _, o := range sent {
			if len(o.packet) > headerSize+maxBody {
				t.Fatalf("a packet has %d bytes, want at most %d", len(o.packet), headerSize+maxBody)
			}
			h, entries, err := parsePacket(o.packet)
			for _, e := range entries {
				if h.Kind == kindNews && err == nil {
					all, wrong := messages(e.bytes)
					out, err = append(out, all...), wrong
				}
			}
			if err != nil {
				t.Fatal(err)
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
		sent, echo := now, mine.echo(now)
		now = now.Add(delays[0])
		theirs.take(sent.UnixMicro(), echo, now.Add(ahead))
		now = now.Add(100 * time.Millisecond)
		sent = now.Add(ahead)
		echo = theirs.echo(sent)
		now = now.Add(delays[1])
		mine.take(sent.UnixMicro(), echo, now)
		now = now.Add(100 * time.Millisecond)
	}
	got, ok := mine.offset()
	if !ok || (got-ahead).Abs() > time.Millisecond {
		t.Errorf("offset %v, %v; want %v", got, ok, ahead)
	}
	if echo := mine.echo(now.Add(outdatedAfter)); echo != 0 {
		t.Errorf("echo %d of a peer that is silent, want none", echo)
	}
	now = now.Add(outdatedAfter) // since the last status, more has passed: its clock may have been set
	mine.take(now.UnixMicro(), now.Add(-time.Second).UnixMicro(), now)
	if got, _ := mine.offset(); got != 500*time.Millisecond {
		t.Errorf("offset %v by earlier measurements, want that of the last, 500ms", got)
	}
	if got := median([]time.Duration{5, 1, 100}); got != 5 {
		t.Errorf("median = %d, want 5", got)
	}
	if got := median([]time.Duration{6, 1, 100, 4}); got != 5 {
		t.Errorf("median = %d, want 5", got)
	}
	if got := median(append(make([]time.Duration, mostClocks), slices.Repeat([]time.Duration{5}, 2*mostClocks)...)); got != 0 {
		t.Errorf("the median of the clocks measured last is %d, want 0", got)
	}
}

// A node knows its offset from the clock that is furthest behind, and from the median. Nodes whose clock is unknown do
// not count.
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
		g := &Gossip{links: map[uint64]*link{9: {}}}
		for i, offset := range test.others {
			l := new(link)
			l.clock.samples[0], l.clock.n = sample{offset: offset}, 1
			g.links[uint64(i)] = l
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
	var held clock
	held.take(now.UnixMicro(), 0, now)
	for name, echo := range map[string]int64{
		"not heard":      0,
		"from tomorrow":  now.Add(24 * time.Hour).UnixMicro(),
		"held for years": held.echo(now.AddDate(1, 0, 0)),
		"before time":    math.MinInt64,
		"of last week":   now.Add(-7 * 24 * time.Hour).UnixMicro(),
	} {
		var c clock
		c.take(now.UnixMicro(), echo, now)
		if offset, ok := c.offset(); ok {
			t.Errorf("%s: offset %v, want none", name, offset)
		}
	}
}

// Received packets are checked by their header: late messages and old statuses are rejected, and the age of
// messages is computed from the sender's clock.
func TestReceive(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const peer, other, ahead = 2, 3, time.Hour
		var got []string
		g := newGossip(t, nil)
		g.record(func(from, kind string, content []byte, age time.Duration) {
			got = append(got, fmt.Sprintf("%s %s %s %v", from, kind, content, age))
		})
		l := g.meet(peer)
		g.meet(other)
		theirs := func() time.Time { return time.Now().Add(ahead) }
		var numbers uint64
		packet := func(kind byte, from, to uint64, at time.Time, entries ...entry) []byte {
			numbers++
			delayless := time.Now().UnixMicro()
			return packetOf(header{kind, from, to, numbers, at.UnixMicro(), delayless}, entries...)
		}
		news := func(run, number uint64, age time.Duration, text string) entry {
			return entry{run, number, uint64(age.Microseconds()), packed([]byte(text))}
		}
		status := func(run, version uint64) []byte {
			return packet(kindStatus, peer, me, theirs(), entry{run, version, 1, []byte("ok")})
		}
		first := status(peer, 2)
		for _, test := range []struct {
			name   string
			packet []byte
			want   string
		}{
			{"clock not known", packet(kindNews, peer, me, theirs().Add(-time.Hour), news(peer, 1, 0, "a")), "n2 message a 0s"},
			{"status", first, "n2 status ok 0s"},
			{"status again", first, ""},
			{"another node's status", status(other, 5), "n3 status ok 0s"},
			{"an older one", status(other, 4), ""},
			{"this node's own", status(me, 9), ""},
			{"a stranger's", status(9, 9), ""},
			{"immediately", packet(kindNews, peer, me, theirs(), news(peer, 2, 0, "b")), "n2 message b 0s"},
			{"after two seconds", packet(kindNews, peer, me, theirs().Add(-2*time.Second), news(peer, 3, 0, "c")), "n2 message c 2s"},
			{"passed on", packet(kindNews, peer, me, theirs().Add(-time.Second), news(other, 3, time.Second, "d")), "n3 message d 2s"},
			{"passed on twice", packet(kindNews, peer, me, theirs(), news(other, 3, 3*time.Second, "d")), ""},
			{"a batch again", packet(kindNews, peer, me, theirs(), news(peer, 3, 0, "c")), ""},
			{"from the future", packet(kindNews, peer, me, theirs().Add(time.Minute), news(peer, 4, 0, "f")), "n2 message f 0s"},
			{"too late", packet(kindNews, peer, me, theirs().Add(-maxAge-time.Millisecond), news(peer, 5, 0, "g")), ""},
			{"passed on after an age", packet(kindNews, peer, me, theirs(), entry{other, 5, 1 << 63, packed([]byte("g"))}), "n3 message g 1h0m0s"},
			{"for this node alone", packet(kindNews, peer, me, theirs(), entry{run: peer, bytes: packed([]byte("h"))}), "n2 message h 0s"},
			{"after it has waited", packet(kindNews, peer, me, theirs(), entry{run: peer, word: 1e6, bytes: packed([]byte("h"))}), "n2 message h 1s"},
			{"for another run", packet(kindNews, peer, 9, theirs(), news(peer, 6, 0, "i")), ""},
			{"from another run", packet(kindNews, 9, me, theirs(), news(9, 6, 0, "j")), ""},
			{"garbage", []byte("garbage that is longer than a header has to be"), ""},
			{"garbage in a packet", append(packet(kindNews, peer, me, theirs()), "garbage that is longer than the head of an entry"...), ""},
			{"garbage in news", packet(kindNews, peer, me, theirs(), entry{other, 6, 0, []byte("garbage")}), ""},
			{"news that cannot be passed on", packet(kindNews, peer, me, theirs(), entry{other, 6, 0, make([]byte, maxBody)}), ""},
			{"a status that cannot be passed on", packet(kindStatus, peer, me, theirs(), entry{other, 6, 1, make([]byte, MaxStatus+1)}), ""},
			{"far ahead, from another node, as a node hears that joins late", packet(kindNews, peer, me, theirs(), news(other, 1<<20, 0, "l")), "n3 message l 0s"},
		} {
			got = nil
			g.receive(test.packet, time.Now())
			if text := strings.Join(got, "; "); text != test.want {
				t.Errorf("%s: received %q, want %q", test.name, text, test.want)
			}
		}
		for _, b := range g.kept { // passed on, it is as old as it was, and no younger
			if word := b.entry(time.Now()).word; b.run == other && b.number == 3 && word != 2e6 {
				t.Errorf("a batch that was 2 s old is passed on with an age of %d µs", word)
			}
		}
		l.gone = time.Now().Add(-linger)
		got = nil
		if g.receive(packet(kindNews, peer, me, theirs(), news(peer, 8, 0, "k")), time.Now()); got != nil {
			t.Errorf("received %q from a node that is not a peer", got)
		}
	})
}

// A removed key is no longer accepted, and the first key encrypts.
func TestSetKeysRemovesOldKeys(t *testing.T) {
	one, two, three := bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{2}, 32), bytes.Repeat([]byte{3}, 24)
	four := bytes.Repeat([]byte{4}, 16)
	g := newGossip(t, func(o *Options) { o.Keys = [][]byte{one} })
	for _, keys := range [][][]byte{{one, two}, {two, one}, {two}, {three}, {one, two, three, four}, {four}} {
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

// A node notices within ten seconds that another live node has its name. A restarted node does not conflict with its
// killed process, however long memberlist takes to declare that dead.
func TestTwins(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGossip(t, nil)
		g.addr = "10.0.0.1:7946"
		g.joined(nodeAt(2))
		version := uint64(0)
		pass := func(d time.Duration, live ...uint64) {
			for range d / statusInterval {
				version++
				for _, run := range live {
					g.takeStatuses(g.links[2], []entry{{run: run, number: version}}, time.Now())
				}
				time.Sleep(statusInterval)
			}
		}
		for _, step := range []struct {
			what string
			do   func()
			want string
		}{
			{"a node with a name of its own", func() { pass(10*time.Second, 2) }, ""},
			{"a killed process of this node, while its last statuses are passed on", func() {
				g.joined(peerAt("n1", 3))
				pass(5*time.Second, 2, 3)
				pass(time.Minute, 2)
			}, ""},
			{"a twin", func() { g.joined(peerAt("n1", 4)); pass(conflictAfter+time.Second, 2, 4) },
				`two nodes have the name "n1", those at 10.0.0.1:7946 and 10.0.0.4:7946: give each its own`},
			{"a twin that has gone", func() { n := peerAt("n1", 4); n.State = memberlist.StateLeft; g.left(n) }, ""},
		} {
			step.do()
			if text := g.NameConflict(); text != step.want {
				t.Errorf("%s: the conflict is %q, want %q", step.what, text, step.want)
			}
		}
	})
}
