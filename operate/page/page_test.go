package page_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/operate"
	"github.com/edgelimit/edge/operate/page"
	"github.com/edgelimit/edge/pop/peers"
	"github.com/edgelimit/edge/pop/shards"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// A node is the node that a page shows, and its metrics. Only its counting loop runs.
type node struct {
	*page.Page
	*operate.History
	operator *operate.Operator
	requests *prometheus.CounterVec
	counted  *prometheus.CounterVec
	lag      prometheus.Histogram
	dropped  prometheus.Counter
	looks    int // number of status queries
	now      time.Time
}

const login = "rules: [{id: login, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}]"

func rules(t *testing.T, text string) *rule.Set {
	t.Helper()
	set, err := rulefile.Parse("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func newNode(t *testing.T) *node {
	t.Helper()
	reg := prometheus.NewRegistry()
	f := promauto.With(reg)
	n := &node{
		requests: f.NewCounterVec(prometheus.CounterOpts{Name: "edge_requests_total", Help: "-"}, []string{"rule", "verdict"}),
		counted:  f.NewCounterVec(prometheus.CounterOpts{Name: "edge_requests_counted_total", Help: "-"}, []string{"rule"}),
		lag:      f.NewHistogram(prometheus.HistogramOpts{Name: "edge_counting_lag_seconds", Help: "-", Buckets: []float64{.01, .1, 1}}),
		dropped:  f.NewCounter(prometheus.CounterOpts{Name: "edge_increments_dropped_total", Help: "-"}),
		now:      time.Unix(1_800_000_000, 0),
	}
	now, logger := func() time.Time { return n.now }, slog.New(slog.DiscardHandler)
	secret, err := counter.NewSecret("sixteen bytes or more")
	if err != nil {
		t.Fatal(err)
	}
	o := limit.Options{
		Secret: secret, Rules: rules(t, login), Table: mitigation.New(mitigation.Options{Size: 100}), Logger: logger,
		Publish: func(mitigation.Record) {},
	}
	l, err := limit.New(o, nil)
	if err != nil {
		t.Fatal(err)
	}
	ring := shards.New(shards.Options{
		Addrs: []shards.Address{shards.Memcached("a:1"), shards.Memcached("b:1")}, Set: l.SetShards, Problem: func(string) {}, Unfit: func(string) {}, Now: now, Logger: logger,
		Client: wire.Options{Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no shard") }},
	})
	if err := ring.Drain("b:1", true); err != nil {
		t.Fatal(err)
	}
	n.operator = &operate.Operator{
		Name: "edge-1", Logger: logger, History: operate.NewHistory(reg, now), Version: "v1.2.3 go1.26", Limiter: l, Table: o.Table, Secret: secret, Ring: ring, Peers: peers.New("edge-1", false, now, logger, nil), Now: now,
		ReadRules: func() (*rule.Set, error) {
			t.Error("the page reads the rules files")
			return nil, nil
		},
		Ready: func() ([]string, error) {
			n.looks++
			return nil, nil
		},
		Certificates: func() []operate.Certificate {
			return []operate.Certificate{{Name: "*.a.example", Serial: "0A1B", NotAfter: time.Date(2027, 2, 3, 4, 5, 6, 0, time.UTC)}}
		},
		OwnStatus: func() (s peers.Status) {
			s.State = peers.Ready
			s.Requests, s.Refused = n.Rates()
			return s
		},
	}
	n.mitigate(t, "203.0.113.7", 125*time.Second)
	n.History = n.operator.History
	n.Page = page.New(n.operator, n.History, now)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		l.Run(ctx)
		close(ended)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return n
}

// mitigate starts a mitigation of a client by hand.
func (n *node) mitigate(t *testing.T, client string, length time.Duration) {
	t.Helper()
	if _, err := n.operator.Add(operate.Order{Duration: length, Values: map[string]string{"rule": "login", "ip": client}}); err != nil {
		t.Fatal(err)
	}
}

// parts returns the initial parts of a stream.
func (n *node) parts(t *testing.T, query string) map[string]string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &firstEvent{ResponseRecorder: httptest.NewRecorder(), cancel: cancel}
	n.Events(w, httptest.NewRequest("GET", "/api/v1/events?"+query, nil).WithContext(ctx))
	var event struct {
		Now   int64
		Parts []struct{ ID, HTML string }
	}
	first, _, _ := strings.Cut(w.Body.String(), "\n\n") // a slow machine may have sent another one
	text, ok := strings.CutPrefix(first, "data: ")
	if err := json.Unmarshal([]byte(text), &event); !ok || err != nil || event.Now != n.now.UnixMilli() {
		t.Fatalf("the first event is %q, %v", w.Body, err)
	}
	parts := map[string]string{}
	for _, p := range event.Parts {
		parts[p.ID] = p.HTML
	}
	return parts
}

// A firstEvent receives one event.
type firstEvent struct {
	*httptest.ResponseRecorder
	cancel context.CancelFunc
}

func (f *firstEvent) Flush() { f.cancel() }

func expect(t *testing.T, what, html string, want ...string) {
	t.Helper()
	for _, text := range want {
		if !strings.Contains(html, text) {
			t.Errorf("%s has no %q: %s", what, text, html)
		}
	}
}

// Figures are those of the metrics in the last step; the table has those of the whole span.
func TestFigures(t *testing.T) {
	n := newNode(t)
	step := func(passed, refused, counted float64) {
		n.requests.WithLabelValues("", "passed").Add(passed)
		n.requests.WithLabelValues("login", "blocked").Add(refused)
		n.counted.WithLabelValues("login").Add(counted)
		n.now = n.now.Add(5 * time.Second)
		n.Sample(n.now)
	}
	step(0, 0, 0)
	expect(t, "the facts before any request", n.parts(t, "")["facts"], "<dd>0/s</dd>", "<dd>–</dd>", "0 of 2")
	n.lag.Observe(.05)
	for range 200 {
		n.lag.Observe(.005)
	}
	n.dropped.Add(12)
	step(100, 20, 30)
	step(6000, 1500, 10)
	parts := n.parts(t, "")
	expect(t, "the facts", parts["facts"], "<dd>1,500/s</dd>", "<dd>300/s</dd>", "20% of the requests", "<dd>1</dd>", "<dd>10 ms</dd>")
	expect(t, "the table of rules", parts["rules"], `class="n" data-label="Counted">40<`, `class="n" data-label="Refused">1,520<`, "5 in 1m")
	expect(t, "the PoP", parts["pop"], "<dd>12</dd>", ">drained<", ">unknown<", "this node", "*.a.example", "until 3 Feb 2027 04:05 UTC, serial 0A1B")
	expect(t, "the drawing", parts["traffic"], "7,500 requests", "1,500 refused")
	for range 179 {
		step(0, 0, 0)
	}
	expect(t, "the table a quarter of an hour later", n.parts(t, "")["rules"], `data-label="Counted">10<`)
	step(0, 0, 0)
	expect(t, "the table when everything has left the span", n.parts(t, "")["rules"], `data-label="Counted">0<`)
	refused := n.RefusedInHour("login")
	n.now = n.now.Add(time.Hour)
	step(0, 0, 0)
	if later := n.RefusedInHour("login"); refused != 1520 || later != 0 {
		t.Errorf("refused in the last hour: %d, and an hour later %d; want 1520 and 0", refused, later)
	}
	expect(t, "the table of a day", n.parts(t, "span=24h")["rules"], `data-label="Counted">40<`)

	// The figures of a removed rule are removed.
	n.operator.Limiter.SetRules(new(rule.Set))
	n.requests.DeletePartialMatch(prometheus.Labels{"rule": "login"})
	n.counted.DeleteLabelValues("login")
	n.now = n.now.Add(5 * time.Second)
	n.Sample(n.now)
	n.operator.Limiter.SetRules(rules(t, login))
	step(0, 0, 0)
	expect(t, "the table with the rule added again", n.parts(t, "span=24h")["rules"], `data-label="Counted">0<`)
}

// A valid search finds mitigations, and an invalid one gets an error.
func TestList(t *testing.T) {
	n := newNode(t)
	expect(t, "the list for an invalid network", n.parts(t, "search=203.0.113.7/99")["list"], "not a network such as")
	expect(t, "the list of an unknown rule", n.parts(t, "rule=unknown")["list"], "There is no rule unknown.")
	list := n.parts(t, "")["list"]
	expect(t, "the list", list, "2m 05s", `data-lift="`, `data-end="1800000`)
	_, key, _ := strings.Cut(list, `data-lift="`)
	expect(t, "the list by key", n.parts(t, "search="+strings.ToUpper(key[:4]))["list"], `data-lift="`+key[:32])
}

// A story accepts the same queries as edge explain.
func TestStory(t *testing.T) {
	n := newNode(t)
	for target, want := range map[string]string{
		"203.0.113.7":               "login",
		"rule=login,ip=203.0.113.7": "login",
		"rule=none,ip=203.0.113.7":  "There is no rule none.",
		strings.Repeat("aB", 16):    strings.Repeat("ab", 16) + " is not mitigated",
		" 7kq2-m9xd ":               "No active mitigation has the ID 7kq2-m9xd",
	} {
		expect(t, "the story of "+target, strings.ToLower(n.parts(t, "ask="+url.QueryEscape(target))["story"]), strings.ToLower(want))
	}
}

// All viewers in the same second share one query of the node.
func TestShared(t *testing.T) {
	n := newNode(t)
	for range 5 {
		n.parts(t, "")
	}
	if n.looks != 1 {
		t.Errorf("five pages queried the node %d times in a second, want once", n.looks)
	}
	for i, want := range []int{1, 1, 1, 1, 2, 2} { // once in 5 s, if nothing changes
		n.now = n.now.Add(time.Second)
		if n.parts(t, ""); n.looks != want {
			t.Errorf("after %d s: %d looks, want %d", i+1, n.looks, want)
		}
	}
	n.now = n.now.Add(time.Second)
	n.mitigate(t, "203.0.113.8", time.Hour)
	if n.parts(t, ""); n.looks != 3 {
		t.Errorf("a second after a change: %d looks, want 3", n.looks)
	}
}

// Files are served with a policy that forbids any other code, and contain nothing about the node.
func TestFiles(t *testing.T) {
	n := newNode(t)
	get := func(method, path, tag string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, nil)
		r.Header.Set("If-None-Match", tag)
		w := httptest.NewRecorder()
		n.ServeHTTP(w, r)
		return w
	}
	for path, kind := range map[string]string{"/": "text/html", "/page/page.js": "text/javascript", "/page/page.css": "text/css", "/page/report.css": "text/css", "/page/icon.svg": "image/svg+xml"} {
		w := get("GET", path, "")
		policy := w.Header().Get("Content-Security-Policy")
		if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), kind) || !strings.Contains(policy, "default-src 'none'; script-src 'self'; style-src 'self'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
		for _, part := range []string{"<style", " style=", "<script>", " onclick", "javascript:", "edge-1"} {
			if path == "/" && strings.Contains(w.Body.String(), part) {
				t.Errorf("%s has %q", path, part)
			}
		}
		if again := get("GET", path, w.Header().Get("ETag")); again.Code != 304 || again.Body.Len() > 0 {
			t.Errorf("%s again: %d", path, again.Code)
		}
	}
	if w := get("GET", "/page/none", ""); w.Code != 404 {
		t.Errorf("a file that does not exist: %d", w.Code)
	}
	if w := get("POST", "/", ""); w.Code != 405 {
		t.Errorf("POST: %d", w.Code)
	}
	if n.looks != 0 {
		t.Error("serving a file queried the node")
	}
}

// A stream sends a part again only when it has changed, and ends with the server's context.
func TestStream(t *testing.T) {
	n := newNode(t)
	n.now = time.Now()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	server := httptest.NewUnstartedServer(http.HandlerFunc(n.Events))
	server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	server.Start()
	defer server.Close()
	answer, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	events := 0
	for lines.Scan() {
		if lines.Text() == "" {
			continue
		}
		if events++; events > 1 && strings.Contains(lines.Text(), `"id":"list"`) {
			t.Errorf("event %d has the list again, unchanged", events)
		}
		if events == 3 {
			stop()
		}
	}
	if events < 3 {
		t.Errorf("the stream ended after %d events, want at least 3", events)
	}
}
