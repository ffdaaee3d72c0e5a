package gossip

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/memberlist"
	"pgregory.net/rapid"
)

func TestWindow(t *testing.T) {
	for _, test := range []struct {
		name    string
		numbers []uint64
		want    []arrival
	}{
		{"in order", []uint64{1, 2, 3}, []arrival{fresh, fresh, fresh}},
		{"twice", []uint64{1, 1, 2, 1}, []arrival{fresh, repeated, fresh, repeated}},
		{"in any order", []uint64{5, 2, 4, 2, 3}, []arrival{fresh, fresh, fresh, repeated, fresh}},
		{"zero is none", []uint64{0, 1, 0}, []arrival{outdated, fresh, outdated}},
		{"the oldest that counts", []uint64{windowSize, 1, 1}, []arrival{fresh, fresh, repeated}},
		{"too old", []uint64{windowSize + 1, 1, 2}, []arrival{fresh, outdated, fresh}},
		{"a long way ahead", []uint64{7, 10 * windowSize, 9*windowSize + 1, 9 * windowSize, 7}, []arrival{fresh, fresh, fresh, outdated, outdated}},
		{"bits are used again", []uint64{3, 3 + windowSize, 3 + windowSize, 4 + windowSize}, []arrival{fresh, fresh, repeated, fresh}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var w window
			for i, n := range test.numbers {
				if got := w.take(n); got != test.want[i] {
					t.Errorf("take(%d) = %v, want %v", n, got, test.want[i])
				}
			}
		})
	}
}

// Whatever the order, no number is taken as fresh twice, and each that is not too old is
// once.
func TestWindowProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w window
		seen := map[uint64]bool{}
		var highest uint64
		for _, n := range rapid.SliceOfN(rapid.Uint64Range(1, 3*windowSize), 1, 200).Draw(t, "numbers") {
			want := fresh
			switch {
			case n+windowSize <= highest:
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
	f.Add(header{kindMessages, 1, 2, 3, 4}.append(nil))
	f.Add(append(header{kindMessages, 1, 2, 3, 4}.append(nil), pack([][]byte{[]byte("a"), {}, []byte("bcd")}, time.Unix(9, 0))[0].bytes...))
	f.Add(append(header{kindAcks, 1, 2, 0, 4}.append(nil), make([]byte, 16)...))
	f.Add(append(header{kindStatus, 1, 2, 9, 4}.append(nil), make([]byte, timesSize+5)...))
	f.Add([]byte{packetVersion, 9})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, body, err := parsePacket(b)
		if err != nil {
			return
		}
		if again := append(h.append(nil), body...); !bytes.Equal(again, b) {
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
			new(link).arrived(body)
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
				t.Fatalf("a body has %d bytes, of %d; want %d at most, of 9 s", len(body.bytes), body.at, maxBody)
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

// A peer whose clock is an hour ahead, and two of whose packets were delayed.
func TestClock(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	const ahead = time.Hour
	var mine, theirs clock
	if _, ok := mine.offset(); ok {
		t.Error("an offset is known from nothing")
	}
	now := start
	for _, delays := range [][2]time.Duration{
		{400 * time.Millisecond, time.Millisecond}, // one way slower: wrong by half of it
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

// How far a node is ahead of the one that is most behind. Whose clock is not known says
// nothing.
func TestClockAhead(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name   string
		others []time.Duration // how far they are ahead
		want   time.Duration
	}{
		{"nobody", nil, 0},
		{"the others are ahead", []time.Duration{200 * ms, 5 * ms}, 0},
		{"one is behind", []time.Duration{200 * ms, -150 * ms, 3 * ms}, 150 * ms},
		{"all are", []time.Duration{-20 * ms, -150 * ms}, 150 * ms},
	} {
		g := &Gossip{members: map[uint64]*link{9: {}}}
		for i, offset := range test.others {
			l := new(link)
			l.clock.samples[0], l.clock.n = sample{offset: offset}, 1
			g.members[uint64(i)] = l
		}
		if got := g.ClockAhead(); got != test.want {
			t.Errorf("%s: ahead by %v, want %v", test.name, got, test.want)
		}
	}
}

// A clock that is set back, and times that make no sense, are no measurement.
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

// A network of one link, in pretended time: what is sent is lost at random, and yet all
// arrives, in a time that is short.
func TestLinkOverLoss(t *testing.T) {
	const loss, count = 0.3, 2000
	random := rand.New(rand.NewPCG(1, 2))
	m := newMetrics(nil, new(Gossip))
	to := &link{run: 2, node: new(memberlist.Node)}
	back := &link{run: 1, node: new(memberlist.Node)}
	now := time.Unix(1_800_000_000, 0)
	sent := map[string]time.Time{}
	var took []time.Duration
	twice := 0
	for i := 0; i < count || len(to.flights) > 0; i++ {
		if i < count {
			message := binary.BigEndian.AppendUint32(nil, uint32(i))
			sent[string(message)] = now
			enqueue(&to.urgent, pack([][]byte{message}, now))
		}
		var there, ack []outgoing
		there, _ = to.due(1, now, nil, m)
		for _, o := range there {
			if random.Float64() < loss {
				continue
			}
			h, body, err := parsePacket(o.packet)
			if err != nil {
				t.Fatal(err)
			}
			switch back.got.take(h.number) {
			case fresh:
				for message := range messages(body) {
					took = append(took, now.Sub(sent[string(message)]))
					delete(sent, string(message))
				}
			case repeated:
				twice++
			case outdated:
				t.Fatal("a packet came too late")
			}
			back.acknowledge(h.number, now)
		}
		ack, _ = back.due(2, now, nil, m)
		for _, o := range ack {
			if random.Float64() < loss {
				continue
			}
			_, body, err := parsePacket(o.packet)
			if err != nil {
				t.Fatal(err)
			}
			to.arrived(body)
		}
		now = now.Add(time.Millisecond)
	}
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	t.Logf("99th percentile %v, longest %v, %d arrived twice", p99, took[len(took)-1], twice)
	if len(sent) > 0 || p99 > 250*time.Millisecond {
		t.Errorf("%d are missing, 99th percentile %v; want none, 250ms at most", len(sent), p99)
	}
	if twice == 0 {
		t.Error("nothing arrived twice: acknowledgements were not lost")
	}
}

// One member is sent more only when what it was sent before is on its way: else what is to
// repair would add to what is too much.
func TestSendToWaits(t *testing.T) {
	g := &Gossip{wake: make(chan struct{}, 1), members: map[uint64]*link{2: {run: 2, name: "n2", node: new(memberlist.Node)}}}
	g.metrics = newMetrics(nil, g)
	now := time.Now()
	for _, test := range []struct {
		name    string
		packets int
		want    bool
	}{
		{"first", inFlight, true},
		{"none is on its way yet", 1, false},
	} {
		if got := g.SendTo("n2", slices.Repeat([][]byte{make([]byte, MaxMessage)}, test.packets)...); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
	if out, _ := g.due(now, nil); len(out) != inFlight {
		t.Errorf("%d packets are sent, want %d", len(out), inFlight)
	}
	if !g.SendTo("n2", []byte("more")) {
		t.Error("nothing waits, and no more is taken")
	}
	if g.SendTo("n2", []byte("more")) {
		t.Error("what waits for those on their way does not count")
	}
}

// A packet is sent again when its acknowledgement could have come: sooner where packets are
// under way for a short time, and never much later.
func TestAgain(t *testing.T) {
	for _, test := range []struct {
		name   string
		delays []time.Duration // of statuses, there and back
		want   []time.Duration // pauses after a packet was sent once, twice, …
	}{
		{"not known", nil, []time.Duration{30000, 45000, 67500, 101250, 150000, 150000}},
		{"one machine", []time.Duration{300, 200, 400}, []time.Duration{30000, 45000}},
		{"one continent", []time.Duration{30000, 30200, 29000}, []time.Duration{60000, 90000, 135000, 150000}},
		{"one was held up", []time.Duration{400, 900000, 400}, []time.Duration{30000}},
		{"between continents", []time.Duration{100000, 110000, 90000}, []time.Duration{200000, 200000}},
		{"more to do than they can", []time.Duration{900000, 700000, 400}, []time.Duration{500000, 500000}},
	} {
		var c clock
		for _, delay := range test.delays {
			c.samples[c.n] = sample{delay: delay * time.Microsecond}
			c.n++
		}
		for i, want := range test.want {
			if got := again(i+1, c.delay()); got != want*time.Microsecond {
				t.Errorf("%s: pause %v after a packet was sent %d times, want %v", test.name, got, i+1, want*time.Microsecond)
			}
		}
	}
}

// What is never acknowledged is given up, and what has no room is dropped; both are known.
func TestLinkBounds(t *testing.T) {
	m := newMetrics(nil, new(Gossip))
	l := &link{run: 2, node: new(memberlist.Node)}
	now := time.Unix(1_800_000_000, 0)
	dropped := enqueue(&l.bulk, slices.Repeat([]body{{now.UnixMicro(), []byte{1}}}, queueSize+5))
	if dropped != 5 || len(l.bulk) != queueSize {
		t.Errorf("dropped %d, %d wait; want 5, %d", dropped, len(l.bulk), queueSize)
	}
	enqueue(&l.urgent, []body{{now.UnixMicro(), []byte{2}}})
	out, next := l.due(1, now, nil, m)
	if len(out) != inFlight || out[0].packet[headerSize] != 2 {
		t.Errorf("%d packets are sent, the first of %d; want %d, of what is urgent", len(out), out[0].packet[headerSize], inFlight)
	}
	if want := now.Add(again(1, 0)); !next.Equal(want) {
		t.Errorf("next at %v, want %v", next, want)
	}
	sends := 0
	for ; len(l.bulk) > queueSize-inFlight; now = next {
		out, next = l.due(1, now, nil, m)
		sends += len(out)
	}
	if tries := sends / inFlight; tries < 12 || tries > 18 {
		t.Errorf("a packet was sent %d times, want about fifteen", tries)
	}
	if d := cmp.Diff(queueSize-2*inFlight+1, len(l.bulk)); d != "" {
		t.Errorf("what waits (-want +got):\n%s", d)
	}
	if got := l.leave(); got != queueSize-inFlight+1 || len(l.urgent)+len(l.bulk)+len(l.flights) > 0 {
		t.Errorf("%d packets are dropped when the member leaves, %d are left", got, len(l.flights))
	}
	l.node = new(memberlist.Node)
	enqueue(&l.bulk, []body{{now.Add(-maxWait - time.Second).UnixMicro(), []byte{1}}})
	if out, _ := l.due(1, now, nil, m); len(out) > 0 {
		t.Error("what has waited for too long is sent")
	}
}

// What is received, by its header: messages on the way for too long and old statuses are
// refused, and the age of messages is reckoned by the sender's clock.
func TestReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const me, peer, ahead = 1, 2, time.Hour
		var got []string
		g := &Gossip{run: me, wake: make(chan struct{}, 1), links: map[uint64]*link{}}
		g.o.Receive = func(from string, message []byte, age time.Duration) {
			got = append(got, fmt.Sprintf("%s %s %v", from, message, age))
		}
		g.o.ReceiveStatus = func(from string, status []byte) { got = append(got, fmt.Sprintf("%s status %s", from, status)) }
		g.metrics = newMetrics(nil, g)
		l := &link{run: peer, name: "n2", node: new(memberlist.Node)}
		g.links[peer] = l
		messages := func(from, to, number uint64, at time.Time, text string) []byte {
			return append(header{kindMessages, from, to, number, at.UnixMicro()}.append(nil), pack([][]byte{[]byte(text)}, at)[0].bytes...)
		}
		status := func(number uint64) []byte {
			c := clock{heard: time.Now().UnixMicro(), heardAt: time.Now().Add(ahead)} // no way takes any time
			return append(c.appendTimes(header{kindStatus, peer, me, number, 0}.append(nil), time.Now().Add(ahead)), "ok"...)
		}
		theirs := func() time.Time { return time.Now().Add(ahead) }
		for _, test := range []struct {
			name   string
			packet []byte
			want   string
			acks   int
		}{
			{"clock not known", messages(peer, me, 1, theirs().Add(-time.Hour), "a"), "n2 a 0s", 1},
			{"status", status(2), "n2 status ok", 1},
			{"status again", status(2), "", 1},
			{"status from before", status(1), "", 1},
			{"at once", messages(peer, me, 3, theirs(), "b"), "n2 b 0s", 2},
			{"after two seconds", messages(peer, me, 4, theirs().Add(-2*time.Second), "c"), "n2 c 2s", 3},
			{"from the future", messages(peer, me, 5, theirs().Add(time.Minute), "d"), "n2 d 0s", 4},
			{"too late", messages(peer, me, 6, theirs().Add(-tooOld-time.Millisecond), "e"), "", 4},
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
			t.Errorf("received %q from no member", got)
		}
	})
}

// Two nodes of one name are an error that is said once, but not while one of them may be
// what the other was before it was killed.
func TestTwins(t *testing.T) {
	var log bytes.Buffer
	g := &Gossip{wake: make(chan struct{}, 1), links: map[uint64]*link{}, members: map[uint64]*link{}, absent: map[uint64]*link{}, seen: map[string]time.Time{}}
	g.o.Changed = func() {}
	g.o.Name, g.o.Logger = "n1", slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
	start := time.Now()
	member := func(run uint64, name string) {
		meta := binary.BigEndian.AppendUint64([]byte{metaVersion}, run)
		g.joined(&memberlist.Node{Name: fmt.Sprintf("%s@%x", name, run), Addr: net.IPv4(127, 0, 0, byte(run)), Port: 7946, Meta: meta})
	}
	member(2, "n2")
	member(3, "n@3")
	g.sayTwins(start.Add(twins / 2))
	g.sayTwins(start.Add(2 * twins))
	if log.Len() > 0 {
		t.Errorf("of nodes with names of their own it is said: %s", &log)
	}
	member(4, "n@3")
	g.sayTwins(start.Add(twins / 2))
	if log.Len() > 0 {
		t.Errorf("of a node that was killed and came back it is said: %s", &log)
	}
	for range 2 {
		g.sayTwins(start.Add(2 * twins))
	}
	if got := strings.Count(log.String(), "two nodes have the same name"); got != 1 || !strings.Contains(log.String(), "name=n@3") {
		t.Errorf("of twins it is said %d times, want once: %s", got, &log)
	}
	log.Reset()
	member(5, "n1")
	g.sayTwins(start.Add(2 * twins))
	if !strings.Contains(log.String(), "name=n1") {
		t.Errorf("of this node's twin it is said: %s", &log)
	}
}
