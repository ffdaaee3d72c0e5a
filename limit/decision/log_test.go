package decision_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit/decision"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

const size = 256 << 20 // of the log

func secretOf(tb testing.TB) counter.Secret {
	tb.Helper()
	secret, err := counter.NewSecret("a secret of the decision log")
	if err != nil {
		tb.Fatal(err)
	}
	return secret
}

func ruleOf(tb testing.TB) *rule.Rule {
	tb.Helper()
	set, err := rulefile.Parse("rules.yaml", []byte("rules: [{id: all, characteristics: [ip], limits: [{threshold: 5, period: 1m, sub_windows: 3}], mitigation_timeout: 90s}]"))
	if err != nil {
		tb.Fatal(err)
	}
	return set.Rules()[0]
}

// key returns the ith key, whose sampled bits are those of i.
func key(i uint64) (k counter.Key) {
	binary.BigEndian.PutUint64(k[:], i)
	return k
}

// A running is a Log that runs in a bubble.
type running struct {
	*decision.Log
	file     string
	registry *prometheus.Registry
	stop     func()
}

func start(tb testing.TB, o decision.Options) *running {
	tb.Helper()
	r := &running{file: o.File, registry: prometheus.NewRegistry()}
	o.Node, o.Secret, o.Now, o.Registerer = "n1", secretOf(tb), time.Now, r.registry
	o.Size = cmp.Or(o.Size, size)
	if o.Problem == nil {
		o.Problem = func(text string) { tb.Errorf("a problem: %s", text) }
	}
	r.Log = decision.New(o)
	if err := r.Open(); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { r.Run(ctx); close(ended) }()
	r.stop = func() { cancel(); <-ended }
	return r
}

// decide logs a request under a key.
func (r *running) decide(of *rule.Rule, k counter.Key, verdict string) {
	b := r.Add(nil, decision.Key{Rule: of, Key: k, Cost: 1, Counted: true})
	b.Time, b.Verdict, b.Client = time.Now().UnixMicro(), verdict, netip.MustParseAddr("192.0.2.1")
	r.Offer(b)
}

// linesOf returns the lines of a file, which must be valid.
func linesOf(tb testing.TB, file string) (lines []decision.Line) {
	tb.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		var l decision.Line
		if err := d.Decode(&l); err != nil || !strings.HasSuffix(line, "}\n") {
			tb.Fatalf("%s: %q: %v", file, line, err)
		}
		lines = append(lines, l)
	}
	return lines
}

func events(lines []decision.Line) (list []string) {
	for _, l := range lines {
		list = append(list, l.Event)
	}
	return list
}

// Nodes with the same file would mix their lines: the second one fails before it writes any.
func TestFileOfAnotherNode(t *testing.T) {
	file := filepath.Join(t.TempDir(), "decisions")
	first := start(t, decision.Options{File: file})
	second := decision.New(decision.Options{File: file, Size: size, Node: "n2", Secret: secretOf(t), Now: time.Now})
	if err := second.Open(); err == nil || !strings.Contains(err.Error(), "another process is writing to this file") {
		t.Errorf("opened twice: %v", err)
	}
	first.stop()
	if err := second.Open(); err != nil {
		t.Errorf("after the first one was closed: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	second.Run(ctx) // closes the file
	var names []string
	for _, line := range linesOf(t, file) {
		names = append(names, line.Node)
	}
	if got := strings.Join(names, " "); got != "n1 n2" {
		t.Errorf("the file has lines of %q, want n1 n2", got)
	}
}

// The sample has the configured share of the keys, and a larger share contains all keys of a smaller one.
func TestSample(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var logs []*decision.Log
	shares := []float64{0.01, 0.25, 1}
	for _, share := range shares {
		logs = append(logs, decision.New(decision.Options{Share: share}))
	}
	const keys = 100_000
	sampled := make([]float64, len(shares))
	for range keys {
		k := secretOf(t).Tag(binary.BigEndian.AppendUint64(nil, random.Uint64()))
		for i, l := range logs {
			if l.Samples(k) {
				sampled[i]++
			} else if i > 0 && logs[i-1].Samples(k) {
				t.Fatal("a key is in the smaller sample but not in the larger one")
			}
		}
	}
	for i, share := range shares {
		if got := sampled[i] / keys; got < 0.9*share || got > 1.1*share {
			t.Errorf("with a share of %v, %v of the keys are sampled", share, got)
		}
	}
	if (*decision.Log)(nil).Samples(key(0)) {
		t.Error("a log that is off samples something")
	}
}

// A file is self-contained: node, rule, decisions and counts. Keys are pseudonyms, and it contains no client,
// unless the operator enables it.
func TestLines(t *testing.T) {
	for _, clients := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			r := start(t, decision.Options{File: filepath.Join(t.TempDir(), "log"), Share: 0.5, Clients: clients, Ahead: func() time.Duration { return 250 * time.Millisecond }})
			of, k := ruleOf(t), key(7)
			now := time.Now().UnixMicro()
			r.decide(of, k, "passed")
			b := r.Add(nil, decision.Key{Rule: of, Key: k, Generation: 3, Mitigated: true, ByHand: true, Cost: 9})
			b = r.Add(b, decision.Key{Rule: of, Key: key(8), Other: true})
			b.Time, b.Verdict, b.Decider = now+1, "blocked", of
			r.Offer(b)
			b = r.Add(nil, decision.Key{Rule: of, Key: k, Generation: 3, Cost: 4})
			b.Time, b.Counting, b.Decided, b.Client = now+3, true, now+1, netip.MustParseAddr("2001:db8::1")
			r.Offer(b)
			r.stop()
			lines := linesOf(t, r.file)
			pseudonym, address := secretOf(t).Tag(append(k[:], "decision log"...)).String(), ""
			if clients {
				pseudonym, address = k.String(), "192.0.2.1"
			}
			text := fmt.Sprintf("%+v", lines)
			for _, secret := range []string{k.String(), "192.0.2.1", "2001:db8"} {
				if strings.Contains(text, secret) != clients {
					t.Errorf("clients %t: the log says %s: %s", clients, secret, text)
				}
			}
			want := decision.Line{Event: "node", Time: now, Version: 1, Node: "n1", Reason: "start", Secret: fmt.Sprintf("%016x", secretOf(t).Fingerprint()), Share: 0.5, Clients: clients, AheadMicros: 250_000}
			if len(lines) != 6 || lines[0] != want {
				t.Fatalf("%d lines, the first %+v, want 6, %+v", len(lines), lines[0], want)
			}
			if d := lines[1].Definition; lines[1].Event != "rule" || lines[1].Rule != "all" || d == nil || d.MitigationTimeoutS != 90 || d.Limits[0] != (decision.Limit{Threshold: 5, PeriodS: 60, SubWindows: 3, Estimate: "weighted"}) {
				t.Errorf("the rule is %+v, %+v", lines[1], d)
			}
			for i, want := range []decision.Line{
				{Event: "decision", Time: now, Ref: 1, Rule: "all", Key: pseudonym, Cost: 1, Client: address, Verdict: "passed", Counted: true},
				{Event: "decision", Time: now + 1, Ref: 1, Rule: "all", Key: pseudonym, Generation: 3, Cost: 9, Verdict: "blocked", By: "all", Mitigated: true, ByHand: true},
			} {
				if lines[2+i] != want {
					t.Errorf("line %d is %+v, want %+v", 3+i, lines[2+i], want)
				}
			}
			if l := lines[5]; l.Event != "count" || l.Decided != now+1 || l.Cost != 4 || l.Generation != 3 {
				t.Errorf("the count is %+v", l)
			}
			recent := r.Recent()
			if len(recent) != 4 || recent[0] != lines[5] || recent[3] != lines[2] {
				t.Errorf("recent lines are %+v", recent)
			}
			if got := testutil.ToFloat64(gauge(t, r.registry, "edge_decision_log_lines_total")); got != 4 {
				t.Errorf("%v lines are counted, want 4", got)
			}
			if problems, err := testutil.GatherAndLint(r.registry); err != nil || len(problems) > 0 {
				t.Error(problems, err)
			}
		})
	}
}

// gauge returns a gauge with the sum of a counter's series.
func gauge(tb testing.TB, reg *prometheus.Registry, name string, labels ...string) prometheus.Collector {
	tb.Helper()
	all, err := reg.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	sum := prometheus.NewGauge(prometheus.GaugeOpts{Name: "sum"})
	for _, family := range all {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.Metric {
			if len(labels) == 0 || m.Label[0].GetValue() == labels[0] {
				sum.Add(m.Counter.GetValue())
			}
		}
	}
	return sum
}

// The log is bounded: when a file is full the next one begins, with the lines that it needs to be
// self-contained, and the fifth file replaces the first.
func TestRotation(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, decision.Options{File: filepath.Join(t.TempDir(), "log"), Share: 1, Size: 40_000})
		of := ruleOf(t)
		for i := range uint64(1000) {
			r.decide(of, key(i), "passed")
			time.Sleep(50 * time.Millisecond)
		}
		r.stop()
		total := int64(0)
		for i, name := range []string{r.file, r.file + ".1", r.file + ".2", r.file + ".3"} {
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			total += info.Size()
			lines := linesOf(t, name)
			if lines[0].Event != "node" || lines[0].Reason != "rotation" || len(lines) > 1 && (lines[1].Event != "rule" || lines[1].Ref != 1) {
				t.Errorf("file %d begins with %+v", i, lines[:2])
			}
		}
		if total > 42_000 || total < 30_000 {
			t.Errorf("the files have %d bytes, want at most about 40,000", total)
		}
		if all, _ := filepath.Glob(r.file + "*"); len(all) != 4 {
			t.Errorf("there are %v", all)
		}
	})
}

// Another program may move the file away, and a killed node may leave half a line.
func TestFileOfOthers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(file, []byte(`{"event":"decision","t":17`), 0o600); err != nil {
			t.Fatal(err)
		}
		r := start(t, decision.Options{File: file, Share: 1})
		of := ruleOf(t)
		r.decide(of, key(1), "passed")
		time.Sleep(time.Second)
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "17\n{\"event\":\"node\"") {
			t.Errorf("what follows half a line is not a line of its own: %s, %v", text, err)
		}
		for _, create := range []bool{false, true} { // the other program may also create the new file
			if err := os.Rename(file, file+".moved"); err != nil {
				t.Fatal(err)
			}
			if create {
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(2 * time.Second)
			r.decide(of, key(2), "blocked")
			time.Sleep(time.Second)
			if got := fmt.Sprint(events(linesOf(t, file))); got != "[node rule decision]" {
				t.Errorf("the new file has %s", got)
			}
		}
		r.stop()
	})
}

// Lines that cannot be written are counted, and the log contains their number once it can be written again.
func TestMissingLines(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "dir")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		var problems []string
		r := start(t, decision.Options{File: filepath.Join(dir, "log"), Share: 1, Problem: func(text string) { problems = append(problems, text) }})
		of := ruleOf(t)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		for range 3 {
			r.decide(of, key(1), "passed")
			time.Sleep(2 * time.Second)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		r.decide(of, key(1), "passed")
		r.stop()
		lines := linesOf(t, r.file)
		missing := int64(0)
		for _, l := range lines {
			missing += l.Lines
		}
		if got := testutil.ToFloat64(gauge(t, r.registry, "edge_decision_log_dropped_total", "write_failed")); missing != 3 || got != 3 {
			t.Errorf("the log says that %d lines are missing, the metric %v, want 3; %+v", missing, got, lines)
		}
		want := []string{"the decision log cannot be written, so its lines are dropped: open " + r.file + ": no such file or directory", ""}
		if !slices.Equal(problems, want) {
			t.Errorf("problems %q, want %q", problems, want)
		}
	})
}

// Requests never wait for the log: lines without room are dropped and counted.
func TestQueueIsBounded(t *testing.T) {
	reg, file := prometheus.NewRegistry(), filepath.Join(t.TempDir(), "log")
	l := decision.New(decision.Options{File: file, Size: size, Now: time.Now, Registerer: reg})
	of := ruleOf(t)
	for range 5000 { // Run was not called
		l.Offer(l.Add(nil, decision.Key{Rule: of}))
	}
	defer func() {
		if err := l.Open(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		l.Run(ctx)
		missing := int64(0)
		for _, line := range linesOf(t, file) {
			missing += line.Lines
		}
		if missing != 5000-4096 {
			t.Errorf("the log says that %d lines are missing, want 904", missing)
		}
	}()
	if got := testutil.ToFloat64(gauge(t, reg, "edge_decision_log_dropped_total", "queue_full")); got != 5000-4096 {
		t.Errorf("%v lines are dropped, want 904", got)
	}
}

// The log remembers few of the rules that it has described, and describes others again.
func TestManyRules(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, decision.Options{File: filepath.Join(t.TempDir(), "log"), Share: 1})
		first := ruleOf(t)
		r.decide(first, key(1), "passed")
		for i := range 10_000 {
			other := *first // as after a reload
			r.decide(&other, key(1), "passed")
			if i%1000 == 0 {
				time.Sleep(time.Second)
			}
		}
		r.decide(first, key(1), "passed")
		r.stop()
		described := 0
		for _, event := range events(linesOf(t, r.file)) {
			if event == decision.EventRule {
				described++
			}
		}
		if described != 10_002 {
			t.Errorf("rules are described %d times, want 10002: the first one twice", described)
		}
	})
}

// A step of the node's clock is logged once.
func TestClock(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		r := start(t, decision.Options{File: filepath.Join(t.TempDir(), "log"), Share: 1, Ahead: func() time.Duration { return time.Duration(ahead.Load()) }})
		time.Sleep(3 * time.Second)
		ahead.Store(int64(time.Second))
		time.Sleep(5 * time.Second)
		r.stop()
		lines := linesOf(t, r.file)
		if got := fmt.Sprint(events(lines)); got != "[node clock]" || lines[1].AheadMicros != 1e6 {
			t.Errorf("the file has %s", got)
		}
	})
}

// A batch that is used again has nothing of its last use.
func TestReusedBatches(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := start(t, decision.Options{File: filepath.Join(t.TempDir(), "log"), Share: 1})
		of := ruleOf(t)
		b := r.Add(nil, decision.Key{Rule: of, Key: key(1)})
		b.Time, b.Counting, b.Decided = time.Now().UnixMicro(), true, 7
		r.Offer(b)
		time.Sleep(time.Second)
		r.decide(of, key(1), "passed")
		r.stop()
		if got := fmt.Sprint(events(linesOf(t, r.file))); got != "[node rule count decision]" {
			t.Errorf("the file has %s", got)
		}
	})
}

// A batch that waits to be used again keeps no rule in memory.
func TestReleasedBatchesKeepNoRules(t *testing.T) {
	l := decision.New(decision.Options{})
	for range 4096 { // the queue is full
		l.Offer(l.Add(nil, decision.Key{}))
	}
	of := new(rule.Rule)
	kept := weak.Make(of)
	l.Offer(l.Add(nil, decision.Key{Rule: of}))
	runtime.GC()
	if kept.Value() != nil {
		t.Error("a rule of a dropped batch is still in memory")
	}
	runtime.KeepAlive(l)
}

// An unusable file is rejected before the node runs.
func TestOpen(t *testing.T) {
	foreign := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(foreign, []byte("rules: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none", "log"), "/dev/null", foreign} {
		l := decision.New(decision.Options{File: file, Now: time.Now})
		if err := l.Open(); err == nil {
			t.Errorf("%s is opened", file)
		}
	}
	if text, err := os.ReadFile(foreign); err != nil || string(text) != "rules: []\n" {
		t.Errorf("the file of another program is now %q, %v", text, err)
	}
}
