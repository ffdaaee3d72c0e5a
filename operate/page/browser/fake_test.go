package browser

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/operate"
	"github.com/edgelimit/edge/operate/page"
	"github.com/edgelimit/edge/rule"
)

const token = "a-token-of-a-test"

// A fake is a node with made-up figures, behind the real API.
type fake struct {
	operate.Operations // nil: for methods that no test calls
	mu                 sync.Mutex
	all                []operate.Mitigation // in the order of their ends, the last first
	rules              []operate.Rule
	nodes              []string
	lifted             []operate.LiftOne
	text               string // used wherever a client or a file may provide text
	remote             bool   // true if the listener is not on the loopback interface
	looks              atomic.Uint64
	began              time.Time
}

// newFake returns a node with n mitigations.
func newFake(n int, text string) *fake {
	f := &fake{text: text, began: time.Now(), nodes: []string{"edge-1", "edge-2", "edge-3" + text}}
	names := []string{"everything", "login", "api-key", "search", "checkout", "scraping"}
	for i, name := range names {
		f.rules = append(f.rules, operate.Rule{Rule: name + text, Text: "what it means" + text, Action: []string{"block", "block", "block", "log", "shadow_ban", "log"}[i],
			Limits: []operate.Limit{{Threshold: 50, Period: 60}, {Threshold: 600, Period: 3600}}[:1+i%2], Characteristics: []string{"ip"}})
	}
	start := time.Now().Add(-3 * time.Minute)
	for i := range n {
		r := f.rules[i%5]
		m := operate.Mitigation{Key: fmt.Sprintf("%08x%024x", uint32(i)*2654435761, i), Start: start.Add(-time.Duration(i) * time.Second), Left: float64(9*60 + 48 + 3*(n-i)),
			Why: fmt.Sprintf("%d in 1m (12 in the minute before, 51 in this one); the limit is 50", 51+i%40), Period: 60,
			State: "active", Node: f.nodes[i%3], Rule: r.Rule, Action: r.Action, Client: netip.AddrFrom4([4]byte{203, 0, byte(113 + i/256), byte(7 + i)}).String() + text}
		if i%7 == 3 {
			m.Client = "2001:db8:113:7::" + text
		}
		m.About = m.Client
		f.all = append(f.all, m)
	}
	return f
}

func (f *fake) Mitigations(q operate.Query) (m operate.Mitigations, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := 0
	if q.Cursor != "" {
		if _, err := fmt.Sscan(q.Cursor, &first); err != nil {
			return m, operate.Invalid("invalid cursor")
		}
	}
	for _, each := range f.all {
		client, _ := netip.ParseAddr(strings.TrimSuffix(each.Client, f.text))
		switch {
		case q.Rule != "" && each.Rule != q.Rule, q.Node != "" && each.Node != q.Node, !strings.HasPrefix(each.Key, q.Key),
			q.Client.IsValid() && !q.Client.Contains(client), q.State == "active" == each.Lifted && q.State != "", q.State == "ineffective":
			continue
		}
		if m.Total++; m.Total > first && len(m.Mitigations) < q.Limit {
			each.Left -= time.Since(f.began).Seconds()
			m.Mitigations = append(m.Mitigations, each)
		}
	}
	if first+len(m.Mitigations) < m.Total {
		m.Next = fmt.Sprint(first + len(m.Mitigations))
	}
	return m, nil
}

func (f *fake) lift(l operate.LiftOne) {
	key := l.Values["key"]
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lifted = append(f.lifted, l)
	f.all = slices.DeleteFunc(f.all, func(m operate.Mitigation) bool { return m.Key == key })
}

// start adds a mitigation that ends after all others.
func (f *fake) start(key, client string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = slices.Insert(f.all, 0, operate.Mitigation{Key: key, Start: time.Now(), Left: 1 << 20, Why: "51 in 1m", Rule: f.rules[0].Rule, Action: "block", Node: "edge-2", State: "active", About: client, Client: client})
}

func (f *fake) Explain(values map[string]string) (e operate.Explanation, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ip := values["ip"]; ip != "" || values["key"] != "" {
		for i := range f.all {
			m := &f.all[i]
			if m.Client == ip+f.text || m.Key == values["key"] {
				m := *m
				m.Method, m.Host, m.Path = "POST"+f.text, "example.com"+f.text, "/login"+f.text
				e.Keys = append(e.Keys, operate.KeyState{Key: m.Key, Rule: m.Rule, Action: m.Action, Mitigation: &m,
					Limits:  []operate.LimitState{{Threshold: 50, Period: 60, Prev: 12, Cur: 51, Estimate: 55, Text: m.Why}},
					Problem: "shard 10.0.0.3:11211 is not available: these are the counts of this node alone" + f.text})
			}
		}
		e.Keys = append(e.Keys, operate.KeyState{Key: strings.Repeat("4ec8", 8), Rule: "scraping" + f.text, Action: "log",
			Limits: []operate.LimitState{{Threshold: 600, Period: 60, Prev: 12, Cur: 51, Estimate: 58, Remaining: 542, Text: "58 in 1m (12 in the minute before, 51 in this one); the limit is 600"}}})
		e.Needs = []operate.Need{{Rule: "api-key" + f.text, Characteristics: []string{"ip", "header:x-api-key" + f.text}}}
		return e, nil
	}
	return e, operate.Unknown("operate: there is no rule " + values["rule"])
}

func (f *fake) Status() operate.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := operate.Status{Node: "edge-1" + f.text, Version: "v1.4.0" + f.text, Ready: true, Mitigations: map[string]int{"all": len(f.all)}, BacklogKeys: 3, Lag: .004}
	if f.text != "" {
		s.Problems = []string{"rules differ from those of edge-3" + f.text}
	}
	return s
}

func (f *fake) Files() *operate.Files { return nil }

func (f *fake) Rules() operate.Rules {
	all := slices.Clone(f.rules)
	for i := range all {
		all[i].Mitigations = 12 * (5 - i)
	}
	return operate.Rules{Rules: all}
}

func (f *fake) Lift(l operate.LiftOne) (operate.Lifted, error) {
	f.lift(l)
	return operate.Lifted{Key: l.Values["key"]}, nil
}

func (f *fake) LiftAll(s operate.Selection) (operate.LiftedAll, error) {
	all, err := f.Mitigations(operate.Query{Rule: s.Rule, Client: s.Client, Limit: 1 << 20})
	if !s.DryRun {
		for _, m := range all.Mitigations {
			f.lift(operate.LiftOne{Reason: s.Reason, Values: map[string]string{"key": m.Key}})
		}
	}
	return operate.LiftedAll{Mitigations: all.Total, DryRun: s.DryRun}, err
}

func (f *fake) Shards() operate.Shards {
	return operate.Shards{Shards: []operate.Shard{{Addr: "10.0.0.2:11211" + f.text, InRing: true, Share: .342}, {Addr: "10.0.0.3:11211", Down: true, Share: 0}, {Addr: "10.0.0.4:11211", InRing: true, Share: .658}}}
}

func (f *fake) Nodes() (all operate.Nodes) {
	for i, name := range f.nodes {
		n := operate.Node{Name: name, Self: i == 0, State: "ready", Requests: 4200, Refused: 300, Version: "v1.4.0" + f.text}
		if ahead := .0042 * float64(i); i > 0 {
			n.ClockAhead = &ahead
		}
		if f.text != "" {
			n.Differs = []string{"rules"}
		}
		all.Nodes = append(all.Nodes, n)
	}
	return all
}

func (f *fake) Near(int) []async.Near {
	near := func(key byte, of, client string, threshold, left uint64) (n async.Near) {
		n.Key, n.Rule, n.Client, n.Remaining = counter.Key{key}, &rule.Rule{ID: of + f.text}, netip.MustParseAddr(client), left
		if f.text != "" {
			n.Client = netip.IPv6LinkLocalAllNodes().WithZone(f.text)
		}
		n.Limit.Threshold, n.Limit.Period = threshold, time.Minute.Microseconds()
		return n
	}
	return []async.Near{near(0xab, "login", "198.51.100.23", 50, 2), near(0xcd, "everything", "2001:db8:7:9::", 600, 31)}
}

func (f *fake) Changes() operate.Changes {
	return operate.Changes{Changes: []operate.Change{{Time: f.began, By: "alice", From: "192.0.2.1:5" + f.text, Do: "reload", What: "rules=6" + f.text, Reason: "new plans" + f.text}}}
}

func (f *fake) Note(operate.Change, error, ...any) {}

func (f *fake) Changed() uint64 { return f.looks.Add(1) }

// A node serves a fake.
type node struct {
	*fake
	*httptest.Server
}

// serve serves a fake, which has been running for a while, until the end of the test.
func serve(t testing.TB, f *fake) *node {
	t.Helper()
	return serveAt(t, f, "127.0.0.1:0")
}

func serveAt(t testing.TB, f *fake, addr string) *node {
	t.Helper()
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	requests := promauto.With(reg).NewCounterVec(prometheus.CounterOpts{Name: "edge_requests_total", Help: "Requests."}, []string{"rule", "verdict"})
	counted := promauto.With(reg).NewCounterVec(prometheus.CounterOpts{Name: "edge_requests_counted_total", Help: "Counted."}, []string{"rule"})
	lag := promauto.With(reg).NewHistogram(prometheus.HistogramOpts{Name: "edge_counting_lag_seconds", Help: "Lag.", Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}})
	history := operate.NewHistory(reg, time.Now)
	p := page.New(f, history, time.Now)
	now := time.Now()
	for i := range 400 {
		n := float64(4000 + 900*((i*7)%13)/13 + 1500*((i/60)%3))
		requests.WithLabelValues("", "passed").Add(n)
		for k, r := range f.rules {
			counted.WithLabelValues(r.Rule).Add(n / float64(k+1))
			if i%90 > 20+10*k && k < 4 {
				requests.WithLabelValues(r.Rule, "blocked").Add(n / float64(3*k+4))
			}
		}
		for range 50 {
			lag.Observe(.002)
		}
		lag.Observe(.02)
		history.Sample(now.Add(time.Duration(i-400) * 5 * time.Second))
	}
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("alice "+token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var tokens operate.Tokens
	if err := tokens.Read(file); err != nil {
		t.Fatal(err)
	}
	api := operate.NewAPI(operate.Options{Operations: f, Tokens: &tokens, Open: !f.remote, Page: p, Events: http.HandlerFunc(p.Events)})
	n := &node{f, httptest.NewUnstartedServer(api)}
	_ = n.Listener.Close()
	n.Server.Config, n.Listener = api.Server(), listener
	n.Start()
	t.Cleanup(n.stop)
	return n
}

// stop ends the node as the end of its process would.
func (n *node) stop() {
	n.CloseClientConnections()
	n.Close()
}
