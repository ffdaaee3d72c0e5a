package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/edgelimit/edge/internal/harness"
)

func TestHealthcheck(t *testing.T) {
	n := startNode(t, generous, "--origin=http://127.0.0.1:1")
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/readyz":
			http.Error(w, "node stopping\nmore of it", http.StatusServiceUnavailable)
		case "/elsewhere":
			http.Redirect(w, r, "http://"+n.metrics+"/readyz", http.StatusFound)
		case "/silent":
			<-r.Context().Done()
		}
	}))
	t.Cleanup(site.Close)
	_, port, _ := net.SplitHostPort(n.metrics)
	siteAddr := strings.TrimPrefix(site.URL, "http://")
	for _, tt := range []struct {
		name, listen string // listen is EDGE_METRICS_LISTEN
		args         []string
		code         int
		want         string // on stdout if the exit code is 0, else on stderr
	}{
		{"variable", ":" + port, nil, 0, "ok\n"},
		{"argument overrides variable", siteAddr, []string{n.metrics}, 0, "ok\n"},
		{"another page", "", []string{"http://" + n.metrics + "/livez"}, 0, "ok\n"},
		{"not ready", siteAddr, nil, 1, "edge: http://" + siteAddr + "/readyz answers 503 Service Unavailable: node stopping\n"},
		{"no such page", "", []string{"http://" + n.metrics + "/no"}, 1, "edge: http://" + n.metrics + "/no answers 404 Not Found\n"},
		{"redirect", "", []string{site.URL + "/elsewhere"}, 1, "answers 302 Found\n"},
		{"nothing listens", "", []string{harness.ReservePort(t)}, 1, "connection refused"},
		{"timeout", "", []string{"--timeout=100ms", site.URL + "/silent"}, 1, "deadline exceeded"},
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
		"127.0.0.1:9180":              "http://127.0.0.1:9180/readyz",
		":9180":                       "http://127.0.0.1:9180/readyz",
		"0.0.0.0:9180":                "http://127.0.0.1:9180/readyz",
		"[::]:9180":                   "http://[::1]:9180/readyz",
		"https://node":                "https://node/readyz",
		"http://node:9180/readyz?a=b": "http://node:9180/readyz?a=b",
		"node":                        "",
		"node:metrics":                "",
		"ftp://node:9180":             "",
		"http://":                     "",
		"http://[::1":                 "",
	} {
		got, err := readiness(given)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("readiness(%q) = %q, %v, want %q", given, got, fmt.Sprint(err), want)
		}
	}
}
