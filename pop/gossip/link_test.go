package gossip

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/edgelimit/edge/internal/bubble"
)

// In a simulated network with one link, packets are lost at random, but all messages arrive within a short
// time.
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
			back.queueAck(h.number, now)
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
			to.acknowledged(body)
		}
		now = now.Add(time.Millisecond)
	}
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	t.Logf("99th percentile %v, longest %v, %d arrived twice", p99, took[len(took)-1], twice)
	if len(sent) > 0 || p99 > 250*time.Millisecond {
		t.Errorf("%d are missing, 99th percentile %v; want 0, at most 250ms", len(sent), p99)
	}
	if twice == 0 {
		t.Error("nothing arrived twice: acknowledgements were not lost")
	}
}

// A peer is sent new packets only when earlier ones have left: otherwise repairs would add to an overload.
func TestSendToWaits(t *testing.T) {
	g := newGossip(t, nil)
	g.meet(2)
	now := time.Now()
	for _, test := range []struct {
		name    string
		packets int
		want    bool
	}{
		{"first", inFlight, true},
		{"nothing is in transit yet", 1, false},
	} {
		if got := g.SendTo("n2", slices.Repeat([][]byte{make([]byte, MaxMessage)}, test.packets)...); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
	if out, _ := g.due(now, nil); len(out) != inFlight {
		t.Errorf("%d packets are sent, want %d", len(out), inFlight)
	}
	if !g.SendTo("n2", []byte("more")) {
		t.Error("nothing waits, but no more is accepted")
	}
	if g.SendTo("n2", []byte("more")) {
		t.Error("a message is accepted although another waits for those in transit")
	}
}

// A packet is sent again when its acknowledgement is overdue: earlier if the round trip is short, and never
// much later.
func TestAgain(t *testing.T) {
	for _, test := range []struct {
		name   string
		delays []time.Duration // round trips of statuses
		want   []time.Duration // pauses after the packet was sent once, twice, …
	}{
		{"not known", nil, []time.Duration{30000, 45000, 67500, 101250, 150000, 150000}},
		{"one machine", []time.Duration{300, 200, 400}, []time.Duration{30000, 45000}},
		{"one continent", []time.Duration{30000, 30200, 29000}, []time.Duration{60000, 90000, 135000, 150000}},
		{"one was held up", []time.Duration{400, 900000, 400}, []time.Duration{30000}},
		{"between continents", []time.Duration{100000, 110000, 90000}, []time.Duration{200000, 200000}},
		{"overloaded nodes", []time.Duration{900000, 700000, 400}, []time.Duration{500000, 500000}},
	} {
		var c clock
		for _, delay := range test.delays {
			c.samples[c.n] = sample{delay: delay * time.Microsecond}
			c.n++
		}
		for i, want := range test.want {
			if got := ackTimeout(i+1, c.delay()); got != want*time.Microsecond {
				t.Errorf("%s: pause %v after a packet was sent %d times, want %v", test.name, got, i+1, want*time.Microsecond)
			}
		}
	}
}

// Messages that are never acknowledged are given up, and messages without room are dropped. Both are counted.
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
		t.Errorf("%d packets are sent, the first with message %d; want %d, urgent ones first", len(out), out[0].packet[headerSize], inFlight)
	}
	if want := now.Add(ackTimeout(1, 0)); !next.Equal(want) {
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
		t.Errorf("%d packets are dropped when the peer leaves, %d are left", got, len(l.flights))
	}
	l.node = new(memberlist.Node)
	enqueue(&l.bulk, []body{{now.Add(-maxWait - time.Second).UnixMicro(), []byte{1}}})
	if out, _ := l.due(1, now, nil, m); len(out) > 0 {
		t.Error("what has waited for too long is sent")
	}
}

// Acknowledged messages are not sent again, and make room for those that wait.
func TestAcknowledged(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const peer = 2
		g := newGossip(t, nil)
		g.meet(peer)
		for i := range inFlight + 1 {
			if !g.SendTo("n2", bytes.Repeat([]byte{byte(i)}, MaxMessage)) {
				t.Fatalf("message %d is not accepted", i)
			}
			g.due(time.Now(), nil)
		}
		var acks []byte
		for number := range uint64(inFlight) {
			if number != 6 { // the 7th packet is not acknowledged
				acks = binary.BigEndian.AppendUint64(acks, number+1)
			}
		}
		woken := func() bool { // reports whether the sender was woken
			select {
			case <-g.wake:
				return true
			default:
				return false
			}
		}
		woken()
		g.receive(append(header{kindAcks, peer, me, 0, 0}.packet(), acks...))
		if !woken() {
			t.Error("acknowledgements make room, but the sender is not woken")
		}
		sent := func() (numbers []uint64) {
			out, _ := g.due(time.Now(), nil)
			for _, o := range out {
				h, _, err := parsePacket(o.packet)
				if err != nil {
					t.Fatal(err)
				}
				numbers = append(numbers, h.number)
			}
			return numbers
		}
		if got, want := sent(), []uint64{inFlight + 1}; !slices.Equal(got, want) {
			t.Errorf("packets %d are sent immediately, want %d", got, want)
		}
		time.Sleep(minAckTimeout)
		if got, want := sent(), []uint64{7, inFlight + 1}; !slices.Equal(got, want) {
			t.Errorf("packets %d are sent again, want %d", got, want)
		}
		g.receive(append(header{kindMessages, peer, me, 1, 0}.packet(), pack([][]byte{[]byte("a")}, time.Now())[0].bytes...))
		if !woken() {
			t.Error("a packet is received, but the sender is not woken")
		}
		time.Sleep(giveUp)
		g.due(time.Now(), nil)
		if got := testutil.ToFloat64(g.metrics.givenUp); got != 2 {
			t.Errorf("%v packets are given up, want 2", got)
		}
	})
}
