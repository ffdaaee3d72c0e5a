package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/edgelimit/edge/internal/harness"
)

func TestHealthcheck(t *testing.T) {
	n := startNode(t, generous, "--origin=http://127.0.0.1:1")
	serve := func(f http.HandlerFunc) (addr string) {
		site := httptest.NewServer(f)
		t.Cleanup(site.Close)
		return strings.TrimPrefix(site.URL, "http://")
	}
	stopping := serve(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "node stopping\nmore of it", http.StatusServiceUnavailable)
	})
	elsewhere := serve(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "http://"+n.metrics+"/readyz")
		http.Error(w, "elsewhere", http.StatusFound)
	})
	silent := serve(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	_, port, _ := net.SplitHostPort(n.metrics)
	for _, tt := range []struct {
		name, listen string // listen is EDGE_METRICS_LISTEN
		args         []string
		code         int
		want         string // on stdout if the exit code is 0, else on stderr
	}{
		{"variable", ":" + port, nil, 0, "ok\n"},
		{"argument overrides variable", stopping, []string{n.metrics}, 0, "ok\n"},
		{"not ready", stopping, nil, 1, "edge: http://" + stopping + "/readyz answers 503 Service Unavailable: node stopping\n"},
		{"redirect", "", []string{elsewhere}, 1, "answers 302 Found: elsewhere\n"},
		{"nothing listens", "", []string{harness.ReservePort(t)}, 1, "connection refused"},
		{"timeout", "", []string{"--timeout=100ms", silent}, 1, "deadline exceeded"},
	} {
		t.Setenv("EDGE_METRICS_LISTEN", tt.listen)
		code, stdout, stderr := edge(append([]string{"healthcheck", "--timeout=1m"}, tt.args...)...)
		got := map[bool]string{true: stdout, false: stderr}[code == 0]
		if code != tt.code || !strings.Contains(got, tt.want) || stdout != "" && stderr != "" {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q, want %d and %q", tt.name, code, stdout, stderr, tt.code, tt.want)
		}
		if err := styled(stderr); err != nil {
			t.Error(err)
		}
	}
}

func TestReadiness(t *testing.T) {
	for given, want := range map[string]string{
		"127.0.0.1:9180": "http://127.0.0.1:9180/readyz",
		":9180":          "http://127.0.0.1:9180/readyz",
		"0.0.0.0:9180":   "http://127.0.0.1:9180/readyz",
		"[::]:9180":      "http://[::1]:9180/readyz",
	} {
		if got, err := readiness(given); got != want || err != nil {
			t.Errorf("readiness(%q) = %q, %v, want %q", given, got, err, want)
		}
	}
}
