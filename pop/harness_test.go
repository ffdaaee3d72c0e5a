package pop_test

// newNode makes a node, startNode runs one, and startWired and startPiped run one between clients and an
// origin, over TCP or in a bubble.

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/proxy"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// patience is how long a test waits before it fails. No test depends on its length.
const patience = 2 * time.Minute

// await waits until done returns true.
func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	harness.Until(t, what, patience, 2*time.Millisecond, done)
}

// parse returns the rules of a file.
func parse(t testing.TB, rules string) *rule.Set {
	t.Helper()
	set, err := rulefile.Parse("rules.yaml", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// newNode returns a node with these rules that is not started. Its name is n1, its log is discarded, it has a
// secret, and nobody listens at its origin. set changes these options and may be nil.
func newNode(t testing.TB, rules string, set func(*pop.Options)) *pop.Node {
	t.Helper()
	o := pop.Options{
		Name: "n1", Secret: scenarioSecret, Rules: parse(t, rules), Origin: "http://127.0.0.1:1",
		DrainTimeout: patience, QueueSize: 1024, Logger: slog.New(slog.DiscardHandler),
	}
	if set != nil {
		set(&o)
	}
	n, err := pop.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// startNode starts the node of newNode. It is stopped at the end of the test, without waiting for its clients.
func startNode(t testing.TB, rules string, set func(*pop.Options)) *pop.Node {
	t.Helper()
	n := newNode(t, rules, set)
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = n.Stop(now)
	})
	return n
}

// page returns a page of a listener of n, "metrics" or "admin".
func page(t testing.TB, n *pop.Node, listener, path string) string {
	t.Helper()
	resp, err := http.Get("http://" + n.Addr(listener).String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// A wired is a node that clients reach over TCP.
type wired struct {
	*pop.Node
	t    testing.TB
	addr string
}

// startWired starts a node with these rules in front of origin. If origin is nil, set must set one.
func startWired(t testing.TB, rules string, origin http.HandlerFunc, set func(*pop.Options)) *wired {
	t.Helper()
	n := startNode(t, rules, func(o *pop.Options) {
		o.Listen, o.Origin = "127.0.0.1:0", ""
		if origin != nil {
			s := httptest.NewServer(origin)
			t.Cleanup(s.Close)
			o.Origin = s.URL
		}
		if set != nil {
			set(o)
		}
	})
	return &wired{n, t, n.Addr("http").String()}
}

// dial connects a client that sends text first.
func (w *wired) dial(text string) (net.Conn, *bufio.Reader) {
	w.t.Helper()
	conn, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, text); err != nil {
		w.t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

// ask sends text over a new connection, closes the connection, and returns the answer and its body.
func (w *wired) ask(text string) (*http.Response, string) {
	w.t.Helper()
	conn, r := w.dial(text)
	defer conn.Close()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		w.t.Fatalf("%.60q: %v", text, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatalf("%.60q: reading the answer: %v", text, err)
	}
	return resp, string(body)
}

// refusedAfter sends text repeatedly until it is refused with 429, and returns the number of answers with want
// before that.
func (w *wired) refusedAfter(text string, want int) int {
	w.t.Helper()
	for n := range 1000 {
		resp, _ := w.ask(text)
		if resp.StatusCode == http.StatusTooManyRequests {
			return n
		}
		if resp.StatusCode != want {
			w.t.Fatalf("%.60q: %s, want %d", text, resp.Status, want)
		}
	}
	w.t.Fatalf("%.60q: none of 1000 requests was refused", text)
	return 0
}

// metric returns the sum of a metric over its labels.
func (w *wired) metric(name string) float64 {
	w.t.Helper()
	v, err := sum(w.Gatherer(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

// A piped is a node in a bubble. Pipes connect it to clients and an origin.
type piped struct {
	*pop.Node
	log   *eventLog
	front *shard.Pipe
}

// startPiped starts a node without rules in front of origin.
func startPiped(t *testing.T, origin http.HandlerFunc, set func(*pop.Options)) *piped {
	t.Helper()
	back, server := shard.NewPipe(), &http.Server{Handler: origin}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(back)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	p := &piped{log: new(eventLog), front: shard.NewPipe()}
	p.Node = startNode(t, "rules: []", func(o *pop.Options) {
		o.DrainTimeout, o.OriginOptions = 0, proxy.OriginOptions{Dial: back.Dial}
		o.Logger = slog.New(&eventHandler{log: p.log, start: time.Now(), node: "n1"})
		set(o)
		if len(o.RuleFiles) > 0 {
			o.Rules = nil
		}
	})
	if err := p.Serve(p.front); err != nil {
		t.Fatal(err)
	}
	return p
}

// connect connects a client that sends text first.
func (p *piped) connect(t *testing.T, text string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := p.front.Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	if text != "" { // the node would read nothing from a pipe, and no socket does that
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, bufio.NewReader(conn)
}
