package peers

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/pop/gossip"
	"github.com/edgelimit/edge/pop/shards"
)

// newTable returns the table of n1, which logs to log.
func newTable(log io.Writer) *Table {
	return New("n1", false, time.Now, slog.New(slog.NewTextHandler(log, nil)), nil)
}

// receives passes p the status of a peer that has the same mitigations or others, and considers shards down. full
// is true if this node has no room for more. It reports whether to ask the peer for its records.
func (p *Table) receives(from string, same bool, down []uint64, full bool, now time.Time) (ask bool) {
	s := Status{Digest: 1, Down: down}
	if same {
		s.Digest = 0
	}
	p.Received(from, &s, Fingerprints{}, now)
	return p.Ask(from, same, full, now)
}

// A peer may be forgotten between Received and Ask.
func TestAskForgotten(t *testing.T) {
	p, now := newTable(io.Discard), time.Unix(1_800_000_000, 0)
	p.Received("n2", new(Status), Fingerprints{}, now)
	later := now.Add(2 * silence)
	p.Votes(later)
	if p.Ask("n2", false, false, later) {
		t.Error("Ask is true for a peer that is silent")
	}
}

// A joining node is ready once it has the records of its peers, or has waited long enough.
func TestReady(t *testing.T) {
	type status struct {
		at   time.Duration
		same bool // the same mitigations as this node
	}
	for _, tt := range []struct {
		name     string
		seeks    bool
		statuses []status // of n2
		ready    []time.Duration
		not      []time.Duration
	}{
		{"it looks for nobody", false, nil, []time.Duration{0}, nil},
		{"nobody is there", true, nil, []time.Duration{seekFor}, []time.Duration{0, seekFor - 1}},
		{"it has what the other has", true, []status{{time.Second, true}}, []time.Duration{time.Second}, nil},
		{"it never gets all", true, []status{{time.Second, false}, {1500 * time.Millisecond, false}}, []time.Duration{time.Second + learnFor}, []time.Duration{1500 * time.Millisecond, time.Second + learnFor - 1}},
		{"another joins later", true, []status{{0, false}, {900 * time.Millisecond, false}}, []time.Duration{learnFor}, []time.Duration{learnFor - 1}},
		{"it gets all", true, []status{{time.Second, false}, {1500 * time.Millisecond, true}}, []time.Duration{1500 * time.Millisecond}, nil},
		{"it got all once", true, []status{{0, true}, {time.Second, false}}, []time.Duration{time.Second}, nil},
	} {
		p := newTable(io.Discard)
		p.seeks = tt.seeks
		start := time.Unix(1_800_000_000, 0)
		var times []time.Duration
		want := map[time.Duration]bool{}
		for _, at := range tt.ready {
			times, want[at] = append(times, at), true
		}
		times = append(times, tt.not...)
		slices.Sort(times)
		for _, at := range times {
			for len(tt.statuses) > 0 && tt.statuses[0].at <= at {
				from := "n2"
				if tt.name == "another joins later" && tt.statuses[0].at > 0 {
					from = "n3"
				}
				p.receives(from, tt.statuses[0].same, nil, false, start.Add(tt.statuses[0].at))
				tt.statuses = tt.statuses[1:]
			}
			if _, err := p.Ready(start, start.Add(at)); (err == nil) != want[at] {
				t.Errorf("%s: after %v: %v, want ready %t", tt.name, at, err, want[at])
			}
		}
	}
}

// A silent node has no votes, and is not counted together with the nodes that joined later.
func TestSilentPeers(t *testing.T) {
	p := newTable(io.Discard)
	now := time.Unix(1_800_000_000, 0)
	p.receives("n2", true, []uint64{7}, false, now)
	if diff := cmp.Diff([][]uint64{{7}}, p.Votes(now.Add(silence))); diff != "" {
		t.Errorf("votes (-want +got):\n%s", diff)
	}
	if got := p.Votes(now.Add(silence + 1)); len(got) > 0 {
		t.Errorf("votes of a silent node: %v", got)
	}
	p.receives("n2", true, nil, false, now)
	p.receives("n3", true, nil, false, now.Add(silence+1))
	if got := p.MaxSeen(); got != 2 {
		t.Errorf("counted %d nodes at the same time, want 2", got)
	}
	p.receives("n4", true, nil, false, now.Add(silence+1))
	now = now.Add(2 * (silence + 1))
	p.Alive(nil, now.Add(-1))
	if got := len(p.Nodes(new(Status), now.Add(-1))); got != 3 {
		t.Errorf("%d nodes before the last two are silent, want 3", got)
	}
	if got := len(p.Nodes(new(Status), now)); got != 1 {
		t.Errorf("%d nodes after that, want this one", got)
	}
	p.receives("n2", true, nil, false, now)
	if got := p.MaxSeen(); got != 3 {
		t.Errorf("counted %d nodes at the same time, want 3", got)
	}
}

// In a large PoP, a peer may be silent for longer while gossip considers it alive.
func TestSilenceInLargePoPs(t *testing.T) {
	p := newTable(io.Discard)
	now := time.Unix(1_800_000_000, 0)
	var alive []gossip.Peer
	for i := range silentNodes + 1 {
		alive = append(alive, gossip.Peer{Name: fmt.Sprint("n", i+2)})
		p.receives(alive[i].Name, true, nil, false, now)
	}
	for _, after := range []time.Duration{silence + 1, 2 * silence} {
		p.Alive(alive[1:], now.Add(after))
		if got := len(p.Votes(now.Add(after))); got != silentNodes {
			t.Errorf("after %v %d peers are left, want all but the one that is not alive", after, got)
		}
	}
}

// The metric of differing nodes does not include a peer that is silent.
func TestDifferingPeersFallSilent(t *testing.T) {
	now, reg := time.Unix(1_800_000_000, 0), prometheus.NewRegistry()
	p := New("n1", false, func() time.Time { return now }, slog.New(slog.DiscardHandler), reg)
	for range disagreeFor/time.Second + 2 {
		p.Received("n2", &Status{Fingerprints: Fingerprints{1}}, Fingerprints{}, now)
		now = now.Add(time.Second)
	}
	for _, want := range []float64{1, 0} {
		all, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for _, m := range all[0].Metric {
			sum += m.Gauge.GetValue()
		}
		if sum != want {
			t.Errorf("%v nodes differ, want %v", sum, want)
		}
		now = now.Add(2 * silence)
	}
}

// However many nodes come and go, the table remembers a bounded number of names.
func TestNamesAreBounded(t *testing.T) {
	p := newTable(io.Discard)
	now := time.Unix(1_800_000_000, 0)
	for i := range maxNames + 10 {
		now = now.Add(silence + 1)
		p.receives(fmt.Sprint("n", i+2), true, nil, false, now)
	}
	if got := len(p.names); got != maxNames {
		t.Errorf("%d names are remembered, want %d", got, maxNames)
	}
	if got := p.NameOf(ID("n1")); got != "n1" {
		t.Errorf("this node is called %s", got)
	}
}

// A node asks a peer that has different mitigations for them, less and less often if the answers bring nothing new, and
// rarely if it has no room.
func TestAskPauses(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name     string
		peers    []string // peers that send a status every 50 ms
		full     bool
		repaired time.Duration // time after which asking n2 brings new records
		agrees   time.Duration // when n2 has the same mitigations
		want     []time.Duration
	}{
		{"nothing comes of it", []string{"n2"}, false, 0, 0, []time.Duration{0, 250 * ms, 750 * ms, 1750 * ms, 3750 * ms, 7750 * ms, 15750 * ms, 23750 * ms}},
		{"it brings news", []string{"n2"}, false, 2 * time.Second, 0, []time.Duration{0, 250 * ms, 750 * ms, 1750 * ms, 2000 * ms, 2500 * ms, 3500 * ms, 5500 * ms, 9500 * ms, 17500 * ms, 25500 * ms}},
		{"they agree for a moment", []string{"n2"}, false, 0, 2 * time.Second, []time.Duration{0, 250 * ms, 750 * ms, 1750 * ms, 2050 * ms, 2550 * ms, 3550 * ms, 5550 * ms, 9550 * ms, 17550 * ms, 25550 * ms}},
		{"no room", []string{"n2"}, true, 0, 0, []time.Duration{0, 8 * time.Second, 16 * time.Second, 24 * time.Second}},
		{"no room, two peers", []string{"n2", "n3"}, true, 0, 0, []time.Duration{0, 8 * time.Second, 16 * time.Second, 24 * time.Second}},
		{"two peers, one at a time", []string{"n2", "n3"}, false, 0, 0, []time.Duration{0, 250 * ms, 500 * ms, 750 * ms, 1000 * ms, 1500 * ms, 1750 * ms, 2500 * ms, 3750 * ms, 4500 * ms, 7750 * ms, 8500 * ms, 15750 * ms, 16500 * ms, 23750 * ms, 24500 * ms}},
	} {
		p := newTable(io.Discard)
		start := time.Unix(1_800_000_000, 0)
		var got []time.Duration
		for at := time.Duration(0); at < 30*time.Second; at += 50 * ms {
			if tt.repaired > 0 && at == tt.repaired {
				p.Repaired("n2")
			}
			for _, from := range tt.peers {
				same := tt.agrees > 0 && at == tt.agrees
				if p.receives(from, same, nil, tt.full, start.Add(at)) {
					got = append(got, at)
				}
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: asked at (-want +got):\n%s", tt.name, diff)
		}
	}
}

// A peer that differs is shown at once, and logged once it has differed for a while without a break.
func TestDifferences(t *testing.T) {
	var log bytes.Buffer
	p := newTable(&log)
	start := time.Unix(1_800_000_000, 0)
	var logged []time.Duration
	for at := time.Duration(0); at < 2*time.Minute; at += time.Second {
		log.Reset()
		s, now := new(Status), start.Add(at)
		differs := at < disagreeFor-time.Second || disagreeFor <= at && at < 3*disagreeFor
		if differs {
			s.Fingerprints[0] = 1
		}
		p.Received("n2", s, Fingerprints{}, now)
		if got := p.Nodes(new(Status), now)[1].Differs; len(got) > 0 != differs {
			t.Errorf("after %v: differs in %q, want some: %t", at, got, differs)
		}
		if log.Len() > 0 {
			logged = append(logged, at)
		}
	}
	if want := []time.Duration{2 * disagreeFor, 3 * disagreeFor}; !slices.Equal(logged, want) {
		t.Errorf("logged at %v, want %v", logged, want)
	}
}

// A status arrives as it was sent, and fits into a packet whatever it says.
func TestStatus(t *testing.T) {
	s := Status{Digest: 1, Fingerprints: Fingerprints{2, 3, 4, 5}, Down: make([]uint64, shards.MaxVotes), Version: "v1.2.3"}
	s.Down[len(s.Down)-1] = 6
	s.Drains = bytes.Repeat([]byte("drains.."), s.Room()/8)
	b := s.Append(nil)
	if len(b) > gossip.MaxStatus {
		t.Errorf("the status has %d bytes, want at most %d", len(b), gossip.MaxStatus)
	}
	got, err := ParseStatus(b)
	if diff := cmp.Diff(s, got); diff != "" || err != nil {
		t.Errorf("%v, the status (-want +got):\n%s", err, diff)
	}
	if _, err := ParseStatus(b[:statusSize+8*shards.MaxVotes-1]); err == nil {
		t.Error("a status that is cut short is accepted")
	}
	if got := State(255).String(); got != "stopping" {
		t.Errorf("an unknown state is called %s", got)
	}
	for _, rate := range []float64{math.NaN(), math.Inf(1), -1} {
		s.Refused = float32(rate)
		if _, err := ParseStatus(s.Append(nil)); err == nil {
			t.Errorf("a status with a rate of %v is accepted", rate)
		}
	}
}
