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
			http.Error(w, "node stops\nmore of it", http.StatusServiceUnavailable)
		case "/elsewhere":
			http.Redirect(w, r, "http://"+n.metrics+"/readyz", http.StatusFound)
		case "/silent":
			<-r.Context().Done()
		}
	}))
	t.Cleanup(site.Close)
	_, number, _ := net.SplitHostPort(n.metrics)
	stands := strings.TrimPrefix(site.URL, "http://")

	for _, tt := range []struct {
		name, listen string // listen is EDGE_METRICS_LISTEN
		args         []string
		code         int
		says         string // to stdout if the exit code is 0, else to stderr
	}{
		{"as the node's setting says", n.metrics, nil, 0, "ok\n"},
		{"a node that listens on all addresses", ":" + number, nil, 0, "ok\n"},
		{"on all of IPv4", "0.0.0.0:" + number, nil, 0, "ok\n"},
		{"an address", "", []string{n.metrics}, 0, "ok\n"},
		{"an argument wins over the variable", stands, []string{n.metrics}, 0, "ok\n"},
		{"a URL", "", []string{"http://" + n.metrics + "/readyz"}, 0, "ok\n"},
		{"a URL without a path", "", []string{"http://" + n.metrics + "/"}, 0, "ok\n"},
		{"another page", "", []string{"http://" + n.metrics + "/livez"}, 0, "ok\n"},
		{"not ready", stands, nil, 1, "edge: http://" + stands + "/readyz answers 503 Service Unavailable: node stops\n"},
		{"no such page", "", []string{"http://" + n.metrics + "/no"}, 1, "edge: http://" + n.metrics + "/no answers 404 Not Found\n"},
		{"sent elsewhere", "", []string{site.URL + "/elsewhere"}, 1, "answers 302 Found\n"},
		{"nobody there", "", []string{harness.ReservePort(t)}, 1, "connection refused"},
		{"no answer in time", "", []string{"--timeout=1s", site.URL + "/silent"}, 1, "deadline exceeded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			// A proxy in the environment is ignored.
			env := []string{"http_proxy=" + site.URL, "HTTP_PROXY=" + site.URL, "EDGE_METRICS_LISTEN=" + tt.listen}
			p := startCommand(t, t.TempDir(), env, "edge", append([]string{"healthcheck", "--timeout=1m"}, tt.args...)...)
			code, stdout, stderr := p.End(), p.Stdout.String(), p.Stderr.String()
			said := stdout
			if tt.code != 0 {
				said = stderr
			}
			if code != tt.code || !strings.Contains(said, tt.says) || (stdout != "") != (tt.code == 0) || (stderr != "") != (tt.code != 0) {
				t.Errorf("exit code %d, stdout %q, stderr %q, want %d and %q", code, stdout, stderr, tt.code, tt.says)
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
