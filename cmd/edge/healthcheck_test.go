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
	t.Parallel()
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
		{"variable", n.metrics, nil, 0, "ok\n"},
		{"a node that listens on all addresses", ":" + port, nil, 0, "ok\n"},
		{"on all of IPv4", "0.0.0.0:" + port, nil, 0, "ok\n"},
		{"an address", "", []string{n.metrics}, 0, "ok\n"},
		{"argument overrides variable", siteAddr, []string{n.metrics}, 0, "ok\n"},
		{"a URL", "", []string{"http://" + n.metrics + "/readyz"}, 0, "ok\n"},
		{"a URL without a path", "", []string{"http://" + n.metrics + "/"}, 0, "ok\n"},
		{"another page", "", []string{"http://" + n.metrics + "/livez"}, 0, "ok\n"},
		{"not ready", siteAddr, nil, 1, "edge: http://" + siteAddr + "/readyz answers 503 Service Unavailable: node stopping\n"},
		{"no such page", "", []string{"http://" + n.metrics + "/no"}, 1, "edge: http://" + n.metrics + "/no answers 404 Not Found\n"},
		{"redirect", "", []string{site.URL + "/elsewhere"}, 1, "answers 302 Found\n"},
		{"nothing listens", "", []string{harness.ReservePort(t)}, 1, "connection refused"},
		{"timeout", "", []string{"--timeout=1s", site.URL + "/silent"}, 1, "deadline exceeded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			// A proxy in the environment is ignored.
			env := []string{"http_proxy=" + site.URL, "HTTP_PROXY=" + site.URL, "EDGE_METRICS_LISTEN=" + tt.listen}
			p := startCommand(t, t.TempDir(), env, "edge", append([]string{"healthcheck", "--timeout=1m"}, tt.args...)...)
			code, stdout, stderr := p.End(), p.Stdout.String(), p.Stderr.String()
			got := stdout
			if tt.code != 0 {
				got = stderr
			}
			if code != tt.code || !strings.Contains(got, tt.want) || (stdout != "") != (tt.code == 0) || (stderr != "") != (tt.code != 0) {
				t.Errorf("exit code %d, stdout %q, stderr %q, want %d and %q", code, stdout, stderr, tt.code, tt.want)
			}
			if err := styled(stderr); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"127.0.0.1:9180":              "http://127.0.0.1:9180/readyz",
		"node:9180":                   "http://node:9180/readyz",
		":9180":                       "http://127.0.0.1:9180/readyz",
		"0.0.0.0:9180":                "http://127.0.0.1:9180/readyz",
		"[::]:9180":                   "http://[::1]:9180/readyz",
		"[::1]:9180":                  "http://[::1]:9180/readyz",
		"https://node":                "https://node/readyz",
		"http://node:9180/livez":      "http://node:9180/livez",
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
