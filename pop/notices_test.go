package pop_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edge/pop"
)

// A node whose proxy sends an unexpected PROXY header reports it once in its log, on /readyz and in a metric.
// It does the same if an expected header is missing, and if the proxy is not trusted.
func TestEnvironment(t *testing.T) {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	elsewhere := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	const header = "PROXY TCP4 203.0.113.1 127.0.0.1 1000 80\r\n"
	for _, tt := range []struct {
		name          string
		trusted       []netip.Prefix
		expected      bool   // the PROXY protocol
		first, fields string // of a request
		problem, want string
	}{
		{"a PROXY header that is not expected", nil, false, header, "", "unexpected_proxy_header", "begin with a PROXY header"},
		{"one of a proxy that is not trusted", elsewhere, true, header, "", "unexpected_proxy_header", "add it to trusted_proxy"},
		{"none where it is expected", loopback, true, "", "X-Forwarded-For: 203.0.113.1\r\n", "missing_proxy_header", "send no PROXY header"},
		{"a trusted proxy that names no client", loopback, false, "", "", "proxy_without_forwarded", "127.0.0.1 sends no X-Forwarded-For"},
		{"a proxy that is not trusted", nil, false, "", "X-Forwarded-For: 203.0.113.1\r\n", "untrusted_proxy", "nearly all requests come from 127.0.0.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var log bytes.Buffer
			w := startWired(t, "rules: []", nil, func(o *pop.Options) {
				o.Origin, o.Embedded = "", true
				o.TrustedProxies, o.ProxyProtocol, o.MetricsListen = tt.trusted, tt.expected, "127.0.0.1:0"
				o.Logger = slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil))
			})
			for i, until := 0, time.Now().Add(patience); !strings.Contains(page(t, w.Node, "metrics", "/readyz"), tt.want); i++ {
				if time.Now().After(until) {
					t.Fatalf("/readyz says %q after %d requests, want %q", page(t, w.Node, "metrics", "/readyz"), i, tt.want)
				}
				conn, r := w.dial(fmt.Sprintf("%sGET /%d HTTP/1.1\r\nHost: a\r\n%sConnection: close\r\n\r\n", tt.first, i, tt.fields))
				_, _ = io.Copy(io.Discard, r)
				_ = conn.Close()
			}
			if want := fmt.Sprintf(`edge_environment_problem{problem="%s"} 1`, tt.problem); !strings.Contains(page(t, w.Node, "metrics", "/metrics"), want+"\n") {
				t.Errorf("/metrics lacks %s", want)
			}
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Count(log.String(), "level=WARN"); got != 1 || !strings.Contains(log.String(), tt.want) {
				t.Errorf("%d warnings, want one with %q:\n%s", got, tt.want, &log)
			}
		})
	}
}

// A node warns of a proxy that asks but does not report the origin's responses, until reports come or no rule needs
// them.
func TestMissingReports(t *testing.T) {
	const (
		logins  = "rules: [{id: login, count: {statuses: [401]}, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}]"
		problem = "so these rules count nothing"
		warning = `level=WARN msg="rules count the origin's responses`
	)
	var mu sync.Mutex
	var log bytes.Buffer
	var passed atomic.Int64 // in nanoseconds, of the node's clock
	start := time.Now()
	n := startNode(t, logins, func(o *pop.Options) {
		o.Origin, o.CheckListen, o.MetricsListen = "", "127.0.0.1:0", "127.0.0.1:0"
		o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		o.Now = func() time.Time { return start.Add(time.Duration(passed.Load())) }
		o.Logger = slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil))
	})
	ask := func(method, path string) {
		t.Helper()
		r, err := http.NewRequest(method, "http://"+n.Addr("check").String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Method": "POST", "X-Forwarded-Uri": "/login", "X-Origin-Status": "200"} {
			r.Header.Set(name, value)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	expect := func(name string, want bool) {
		t.Helper()
		if ready := page(t, n, "metrics", "/readyz"); strings.Contains(ready, problem) != want {
			t.Errorf("%s: /readyz says %q", name, ready)
		}
		if metric := fmt.Sprintf(`edge_environment_problem{problem="missing_reports"} %d`, map[bool]int{true: 1}[want]); !strings.Contains(page(t, n, "metrics", "/metrics"), metric+"\n") {
			t.Errorf("%s: /metrics lacks %s", name, metric)
		}
	}
	askFor := func(d time.Duration) {
		t.Helper()
		for range 30 {
			ask("GET", "/check")
			passed.Add(int64(d / 30))
		}
	}
	expect("at first", false)
	askFor(50 * time.Second)
	expect("after 50 s", false)
	askFor(time.Minute)
	expect("after a minute", true)
	ask("POST", "/report")
	expect("after a report", false)
	askFor(5 * time.Minute)
	expect("five minutes later", false)
	askFor(10 * time.Minute)
	expect("ten minutes later", true)
	if err := n.SetRules(parse(t, "rules: []")); err != nil {
		t.Fatal(err)
	}
	expect("without the rule", false)
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Count(log.String(), warning); got != 2 {
		t.Errorf("%d warnings, want one for each time:\n%s", got, &log)
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	to io.Writer
}

func (w lockedWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(b)
}
