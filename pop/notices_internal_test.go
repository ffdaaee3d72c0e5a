package pop

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/rule"
)

// A node that cannot join its PoP reports it after a while, and again when it has joined. Then it reports that it shares
// no shard with its peer.
func TestNotJoined(t *testing.T) {
	gossiping := func(name string, now func() time.Time, join ...string) *Node {
		n, err := New(Options{
			Name: name, Embedded: true, Rules: new(rule.Set), Logger: slog.New(slog.DiscardHandler), Now: now,
			Secret: "a secret of the nodes", Gossip: GossipOptions{Listen: "127.0.0.1:0", Join: join},
		})
		if err == nil {
			err = n.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Stop(context.Background()) })
		return n
	}
	start, seed := time.Now(), harness.ReservePort(t)
	var passed atomic.Int64 // in nanoseconds, of the node's clock
	n := gossiping("n1", func() time.Time { return start.Add(time.Duration(passed.Load())) }, seed)
	want := "cannot join the PoP at " + seed
	said := func(text string) bool { return strings.Contains(strings.Join(n.notices.details(), "\n"), text) }
	reports := func() bool { return said(want) }
	harness.Until(t, "the node fails to join", 30*time.Second, time.Millisecond, func() bool { return strings.Contains(n.gossip.JoinProblem(), want) })
	if n.inspectPeers(new(clockCheck)); reports() {
		t.Errorf("immediately reported: %q", n.notices.details())
	}
	passed.Store(int64(joinPatience))
	if n.inspectPeers(new(clockCheck)); !reports() {
		t.Errorf("details %q, want one with %q", n.notices.details(), want)
	}
	gossiping("n2", time.Now, n.Addr("gossip").String())
	harness.Until(t, "it has joined", 30*time.Second, time.Millisecond, func() bool { return !reports() })
	harness.Until(t, "it has a peer", 30*time.Second, time.Millisecond, func() bool {
		n.inspectPeers(new(clockCheck))
		return said("shares no shard") && !reports()
	})
}

// docs/problems.md has a section, with cause and action, for each problem that a node reports.
func TestProblemsPage(t *testing.T) {
	page, err := os.ReadFile("../docs/problems.md")
	if err != nil {
		t.Fatal(err)
	}
	n := newNotices(slog.New(slog.DiscardHandler), time.Now, prometheus.NewRegistry())
	want := append(slices.Sorted(maps.Keys(n.all)), problemBehind, problemDiffer, problemReload)
	var got []string
	for section := range strings.SplitSeq(string(page), "\n## ") {
		name, text, _ := strings.Cut(section, "\n")
		if strings.HasPrefix(name, "# ") {
			continue
		}
		got = append(got, name)
		if paragraphs := strings.Split(strings.TrimSpace(text), "\n\n"); len(paragraphs) != 2 {
			t.Errorf("%s has %d paragraphs, want a cause and an action", name, len(paragraphs))
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sections of docs/problems.md (-want +got):\n%s", diff)
	}
	n.note(problemClock, "the clock is wrong")
	if got, want := n.details(), "the clock is wrong; see docs/problems.md#clock"; len(got) != 1 || got[0] != want {
		t.Errorf("details %q, want %q", got, want)
	}
}

// Clients that repeatedly cause and end a problem do not fill the log. A problem that returns immediately and then
// persists is logged.
func TestNoticesComeAndGo(t *testing.T) {
	var log bytes.Buffer
	now := time.Now()
	n := newNotices(slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return now }, prometheus.NewRegistry())
	for range 200 { // two a second
		n.note(problemJoin, "wrong")
		if got := n.details(); len(got) != 1 {
			t.Fatalf("details %q", got)
		}
		n.note(problemJoin, "")
		now = now.Add(time.Second / 2)
	}
	for _, line := range []string{"level=WARN", "level=INFO"} {
		if got := strings.Count(log.String(), line); got != 2 {
			t.Errorf("%d lines with %s in 100 s, want 2", got, line)
		}
	}
	for range 200 {
		n.note(problemJoin, "wrong again")
		now = now.Add(time.Second)
	}
	if got := strings.Count(log.String(), "wrong again"); got != 1 {
		t.Errorf("logged %d times, want once:\n%s", got, &log)
	}
}
