package edge_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/edgelimit/edge"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/internal/harness"
)

// limiter returns a Limiter that is closed when the test ends.
func limiter(t *testing.T, o edge.Options) *edge.Limiter {
	t.Helper()
	l, err := edge.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// ask sends a request from an address through a handler and returns the answer.
func ask(h http.Handler, addr, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", target, nil)
	r.RemoteAddr = addr + ":1234"
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(finalWriter{w}, r)
	return w
}

func TestAllow(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := limiter(t, edge.Options{Rules: byUser})
		ctx := context.Background()
		allow := func(key string, n int) edge.Answer {
			t.Helper()
			a, err := l.Allow(ctx, "api", key, n)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			return a
		}
		if a := allow("alice", 4); !a.Allowed {
			t.Errorf("first: %+v", a)
		}
		if a := allow("alice", 0); !a.Allowed || !a.Known || a.Remaining != 6 {
			t.Errorf("after 4 of 10: %+v", a)
		}
		// HTTP requests with the same value share the count.
		h := l.Middleware(hello)
		for range 6 {
			ask(h, "192.0.2.1", "/", "X-User", "alice")
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
		}
		if a := allow("alice", 1); !a.Allowed || a.Remaining != 0 {
			t.Errorf("after 10 of 10: %+v", a)
		}
		if a := allow("alice", 1); a.Allowed || a.RetryAfter < time.Second || a.RetryAfter%time.Second != 0 {
			t.Errorf("after 11 of 10: %+v", a)
		}
		if w := ask(h, "192.0.2.1", "/", "X-User", "alice"); w.Code != 429 {
			t.Errorf("the same user over HTTP: %d", w.Code)
		}
		if a := allow("bob", 1); !a.Allowed {
			t.Errorf("another key: %+v", a)
		}
		if a := allow("carol", 11); !a.Allowed { // decided by what came before
			t.Errorf("eleven together: %+v", a)
		}
		if a := allow("carol", 0); a.Allowed {
			t.Errorf("after eleven together: %+v", a)
		}
		for i := range 3 {
			if a := allow("dave", math.MaxInt); a.Allowed != (i == 0) {
				t.Errorf("MaxInt, call %d: %+v", i, a)
			}
		}
	})
}

func TestErrors(t *testing.T) {
	for name, o := range map[string]edge.Options{
		"Rules or RuleFiles is required": {},
		"Rules:3:":                       {Rules: "rules:\n  - id: a\n    limit: 3\n"},
		"nope.yaml":                      {RuleFiles: []string{"nope.yaml"}},
		"secret":                         {Rules: edge.PerClient(1, time.Second), Shards: []string{"127.0.0.1:11211"}},
		"contradict":                     {Rules: edge.PerClient(1, time.Second), RuleFiles: []string{"a.yaml"}},
		"threshold cannot be 0":          {Rules: edge.PerClient(0, time.Second)},
	} {
		if _, err := edge.New(o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("want an error with %q, got %v", name, err)
		}
	}

	l := limiter(t, edge.Options{Rules: edge.PerClient(1, time.Second) + "  - id: two\n    characteristics: [ip, host]\n    limits: [{threshold: 1, period: 1s}]\n    action: block\n    mitigation_timeout: 0s\n"})
	ctx, cancel := context.WithCancel(context.Background())
	for _, c := range []struct {
		id, key string
		n       int
		want    string
	}{
		{"clients", "192.0.2.1", 1, `there is no rule "clients"`},
		{"client", "alice", 1, `rule client counts by ip, and "alice" is not an address`},
		{"client", "192.0.2.1", -1, "invalid n -1"},
		{"two", "192.0.2.1", 1, "rule two counts by ip, host, not by a single value"},
	} {
		if _, err := l.Allow(ctx, c.id, c.key, c.n); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want an error with %q, got %v", c.want, err)
		}
	}
	cancel()
	if _, err := l.Allow(ctx, "client", "192.0.2.1", 1); err != context.Canceled {
		t.Errorf("done context: %v", err)
	}
	if err := l.SetRules("rules: 3"); err == nil {
		t.Error("SetRules accepted invalid rules")
	}
	if err := l.SetRules(byUser); err != nil {
		t.Error(err)
	}
}

// Two programs with the same shard and secret count together.
func TestTogether(t *testing.T) {
	memcached := harness.StartMemcached(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	var both [2]*edge.Limiter
	for i := range both {
		l, err := edge.New(edge.Options{Name: "node-" + string('a'+rune(i)), Rules: edge.PerClient(20, time.Hour), Shards: []string{memcached.Addr}, Secret: "sixteen bytes at least"})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := l.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		both[i] = l
	}
	// Each node sees half of a client's requests, so neither would refuse alone. On a busy machine, requests are counted
	// late, and some not at all if the shard does not answer in time: then another client makes the same number.
	clients := 0
	harness.Until(t, "a client of both nodes is refused", harness.Patience, time.Second, func() bool {
		clients++
		refused := false
		for i := 0; i < 40 && !refused; i++ {
			refused = ask(both[i%2].Middleware(hello), fmt.Sprint("192.0.2.", clients), "/").Code == 429
			if refused && i < 20 {
				t.Fatalf("request %d was refused", i)
			}
		}
		for client := range clients {
			a, err := both[0].Allow(context.Background(), "client", fmt.Sprint("192.0.2.", client+1), 0)
			refused = refused || err == nil && !a.Allowed
		}
		return refused
	})
}
