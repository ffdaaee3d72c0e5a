package page_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/operate"
	"github.com/edgelimit/edge/operate/page"
)

// A node is a fake that a page shows.
type node struct {
	*page.Page
	requests *prometheus.CounterVec
	counted  *prometheus.CounterVec
	lag      prometheus.Histogram
	dropped  prometheus.Counter
	rules    []string
	query    operate.Query // the last one
	asked    map[string]string
	looks    int // number of status queries
	changed  uint64
	now      time.Time
}

func newNode() *node {
	reg := prometheus.NewRegistry()
	f := promauto.With(reg)
	n := &node{
		requests: f.NewCounterVec(prometheus.CounterOpts{Name: "edge_requests_total", Help: "-"}, []string{"rule", "verdict"}),
		counted:  f.NewCounterVec(prometheus.CounterOpts{Name: "edge_requests_counted_total", Help: "-"}, []string{"rule"}),
		lag:      f.NewHistogram(prometheus.HistogramOpts{Name: "edge_counting_lag_seconds", Help: "-", Buckets: []float64{.01, .1, 1}}),
		dropped:  f.NewCounter(prometheus.CounterOpts{Name: "edge_increments_dropped_total", Help: "-"}),
		rules:    []string{"login"}, now: time.Unix(1_800_000_000, 0),
	}
	n.Page = page.New(page.Options{
		Metrics: reg, Operations: operations{node: n}, Now: func() time.Time { return n.now },
		Changed: func() uint64 { return n.changed }, Near: func(int) []async.Near { return nil },
	})
	return n
}

// operations are those of a node that the page uses.
type operations struct {
	operate.Operations
	*node
}

func (o operations) Status() operate.Status {
	o.looks++
	return operate.Status{Node: "edge-1", Version: "v1.2.3 go1.26", Ready: true, Mitigations: map[string]int{"login": 7}}
}

func (o operations) Rules() (all operate.Rules) {
	for _, id := range o.rules {
		all.Rules = append(all.Rules, operate.Rule{Rule: id, Action: "block", Limits: []operate.Limit{{Threshold: 5, Period: 60}}})
	}
	return all
}

func (o operations) Mitigations(q operate.Query) (operate.Mitigations, error) {
	o.query = q
	if q.Rule == "unknown" {
		return operate.Mitigations{}, operate.Unknown("pop: there is no rule unknown")
	}
	return operate.Mitigations{Total: 7, Mitigations: []operate.Mitigation{{Key: "ab12", Left: 125, Rule: "login", Node: "edge-2"}}}, nil
}

func (o operations) Explain(values map[string]string) (e operate.Explanation, err error) {
	o.asked = values
	return e, nil
}

func (o operations) Shards() operate.Shards {
	return operate.Shards{Shards: []operate.Shard{{Addr: "a:1", InRing: true, Share: 1}, {Addr: "b:1", Down: true}}}
}

func (o operations) Nodes() operate.Nodes {
	return operate.Nodes{Nodes: []operate.Node{{Name: "edge-1", Self: true}}}
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
	n := newNode()
	step := func(passed, refused, counted float64) {
		n.requests.WithLabelValues("", "passed").Add(passed)
		n.requests.WithLabelValues("login", "blocked").Add(refused)
		n.counted.WithLabelValues("login").Add(counted)
		n.now = n.now.Add(5 * time.Second)
		n.Sample(n.now)
	}
	step(0, 0, 0)
	expect(t, "the facts before any request", n.parts(t, "")["facts"], "<dd>0/s</dd>", "<dd>–</dd>", "1 of 2")
	n.lag.Observe(.05)
	for range 200 {
		n.lag.Observe(.005)
	}
	n.dropped.Add(12)
	step(100, 20, 30)
	step(6000, 1500, 10)
	parts := n.parts(t, "")
	expect(t, "the facts", parts["facts"], "<dd>1,500/s</dd>", "<dd>300/s</dd>", "20% of the requests", "<dd>7</dd>", "<dd>10 ms</dd>")
	expect(t, "the table of rules", parts["rules"], `class="n" data-label="Counted">40<`, `class="n" data-label="Refused">1,520<`, "5 in 1m")
	expect(t, "the PoP", parts["pop"], "<dd>12</dd>", "out of the ring", "this node")
	expect(t, "the drawing", parts["traffic"], "7,500 requests", "1,500 refused")
	for range 179 {
		step(0, 0, 0)
	}
	expect(t, "the table a quarter of an hour later", n.parts(t, "")["rules"], `data-label="Counted">10<`)
	step(0, 0, 0)
	expect(t, "the table when everything has left the span", n.parts(t, "")["rules"], `data-label="Counted">0<`)
	expect(t, "the table of a day", n.parts(t, "span=24h")["rules"], `data-label="Counted">40<`)

	// The figures of a removed rule are removed.
	n.rules = nil
	n.requests.DeletePartialMatch(prometheus.Labels{"rule": "login"})
	n.counted.DeleteLabelValues("login")
	n.now = n.now.Add(5 * time.Second)
	n.Sample(n.now)
	n.rules = []string{"login"}
	step(0, 0, 0)
	expect(t, "the table with the rule added again", n.parts(t, "span=24h")["rules"], `data-label="Counted">0<`)
}

// A search is for an address, a network, a prefix of a key, or a node.
func TestSearch(t *testing.T) {
	n := newNode()
	for search, want := range map[string]string{
		"":                    "/invalid Prefix//active",
		"203.0.113.7":         "/203.0.113.7/32//active",
		"::ffff:203.0.113.7":  "/203.0.113.7/32//active",
		"2001:db8::1":         "/2001:db8::1/128//active",
		"203.0.113.0/24":      "/203.0.113.0/24//active",
		" AB12 ":              "ab12/invalid Prefix//active",
		"edge-2":              "/invalid Prefix/edge-2/active",
		"<script>":            "/invalid Prefix/<script>/active",
		"edge-2&all=1":        "/invalid Prefix/edge-2/",
		"edge-2&state=lifted": "/invalid Prefix/edge-2/lifted",
	} {
		search, more, _ := strings.Cut(search, "&")
		n.now = n.now.Add(5 * time.Second)
		n.query = operate.Query{}
		n.parts(t, "search="+url.QueryEscape(search)+"&"+more)
		if got := strings.Join([]string{n.query.Key, n.query.Client.String(), n.query.Node, n.query.State}, "/"); got != want {
			t.Errorf("%q is searched for as %s, want %s", search, got, want)
		}
	}
	expect(t, "the list for an invalid network", n.parts(t, "search=203.0.113.7/99")["list"], "not a network such as")
	expect(t, "the list of an unknown rule", n.parts(t, "rule=unknown")["list"], "There is no rule unknown.")
	expect(t, "the list", n.parts(t, "")["list"], "2m 05s", `data-lift="ab12"`, `data-end="1800000`)
}

// A story accepts the same queries as edge explain.
func TestStory(t *testing.T) {
	n := newNode()
	for target, want := range map[string]string{
		"203.0.113.7": "ip=203.0.113.7",
		"rule=login,ip=203.0.113.7,header:x-a=b,c=d": "header:x-a=b,c=d ip=203.0.113.7 rule=login",
		strings.Repeat("aB", 16):                     "key=" + strings.Repeat("ab", 16),
		" 7kq2-m9xd ":                                "id=7kq2-m9xd",
	} {
		n.asked = nil
		n.parts(t, "ask="+url.QueryEscape(target))
		var got []string
		for _, name := range []string{"header:x-a", "id", "ip", "key", "rule"} {
			if v, ok := n.asked[name]; ok {
				got = append(got, name+"="+v)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q asks for %q, want %q", target, got, want)
		}
	}
}

// All viewers in the same second share one query of the node.
func TestShared(t *testing.T) {
	n := newNode()
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
	n.now, n.changed = n.now.Add(time.Second), 1
	if n.parts(t, ""); n.looks != 3 {
		t.Errorf("a second after a change: %d looks, want 3", n.looks)
	}
}

// Files are served with a policy that forbids any other code, and contain nothing about the node.
func TestFiles(t *testing.T) {
	n := newNode()
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

// A stream sends a part again only when it has changed, and ends when Run does.
func TestStream(t *testing.T) {
	n := newNode()
	n.now = time.Now()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan struct{})
	go func() {
		n.Run(ctx)
		close(ended)
	}()
	server := httptest.NewServer(http.HandlerFunc(n.Events))
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
	<-ended
	if events < 3 {
		t.Errorf("the stream ended after %d events, want at least 3", events)
	}
}
