// Package deploy_test tests the files that operators start from.
package deploy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/edgelimit/edge/internal/harness"
)

// buildEdge builds the binary with the command of the Dockerfile, once for all tests, and returns its path.
var buildEdge = sync.OnceValues(func() (binary string, err error) {
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		return "", err
	}
	m := regexp.MustCompile(`(?m)^RUN (.*go build .*-o )(\S+)( .*)$`).FindStringSubmatch(string(text))
	if m == nil {
		return "", errors.New("the Dockerfile has no go build command")
	}
	binary = filepath.Join(buildDir, "edge")
	if out, err := exec.Command("sh", "-c", "cd .. && "+m[1]+binary+m[3]).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building edge: %w\n%s", err, out)
	}
	return binary, nil
})

// buildDir is the directory for the binary of buildEdge.
var buildDir string

func TestMain(m *testing.M) {
	var err error
	if buildDir, err = os.MkdirTemp("", "edge-deploy"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(buildDir)
	os.Exit(code)
}

// statAllFiles stats all files of the module. go test caches the result of a test until a file that the test
// has opened changes, and it does not see which files the Docker engine and other commands read.
func statAllFiles(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("..", func(file string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == ".git" || d.Name() == "bench") {
			return filepath.SkipDir
		}
		if err == nil {
			_, err = os.Stat(file)
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil // a test of another package has removed it
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A query is the query of a panel of the dashboard.
type query struct{ Expr, LegendFormat string }

// dashboard returns the queries of the dashboard.
func dashboard(t *testing.T) (all []query) {
	t.Helper()
	text, err := os.ReadFile("grafana/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct{ Panels []struct{ Targets []query } }
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		all = append(all, p.Targets...)
	}
	return all
}

// alerts returns the expressions of the alerts.
func alerts(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^ +expr: (.*)$`).FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1])
	}
	return all
}

// A node has every metric that the dashboard and the alerts use.
func TestMetrics(t *testing.T) {
	t.Parallel()
	statAllFiles(t)
	page := nodeMetrics(t)
	exprs := alerts(t)
	for _, q := range dashboard(t) {
		exprs = append(exprs, q.Expr)
	}
	if len(exprs) < 20 {
		t.Fatalf("got %d expressions, want at least 20", len(exprs))
	}
	used := map[string]bool{}
	for _, expr := range exprs {
		expr = regexp.MustCompile(`\w+:edge_\w+:\w+`).ReplaceAllString(expr, "") // recorded from metrics
		for _, name := range regexp.MustCompile(`\bedge_\w+`).FindAllString(expr, -1) {
			if used[name] = true; name == "edge_tls_certificate_not_after_seconds" {
				continue // only with TLS
			}
			if !regexp.MustCompile(`(?m)^` + name + `[ {]`).MatchString(page) {
				t.Errorf("%s in %s is not a metric of a node", name, expr)
			}
		}
	}
	for _, name := range []string{
		"edge_requests_total", "edge_mitigations_started_total", "edge_mitigations_learned_total", "edge_mitigation_records",
		"edge_increments_total", "edge_increments_dropped_total", "edge_shard_breaker_open", "edge_counting_alone", "edge_nodes_differing",
		"edge_gossip_nodes", "edge_connections", "edge_connections_closed_total", "edge_check_undecided_total", "edge_decision_duration_seconds_bucket", "edge_shard_request_duration_seconds_bucket",
	} {
		if !used[name] {
			t.Errorf("neither the dashboard nor an alert uses %s", name)
		}
	}
}

// promtool accepts the configuration of Prometheus and the alerts. Each alert has unit tests: in one
// it fires, in another it does not.
func TestAlerts(t *testing.T) {
	t.Parallel()
	statAllFiles(t)
	text, err := os.ReadFile("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile("alerts_test.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)- alert: (\w+)$`).FindAllStringSubmatch(string(text), -1) {
		if n := len(regexp.MustCompile(`alertname: `+m[1]+`\n`).FindAllString(string(tests), -1)); n < 2 {
			t.Errorf("alert %s has %d unit tests, want one in which it fires and one in which it does not", m[1], n)
		}
	}
	harness.Installed(t, "promtool")
	for _, args := range []string{"check rules --lint=all --lint-fatal alerts.yml", "check config --syntax-only prometheus.yml", "test rules alerts_test.yml"} {
		if out, err := exec.Command("promtool", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", args, err, out)
		}
	}
}

// nodeMetrics returns /metrics of a node with shards and gossip.
func nodeMetrics(t *testing.T) string {
	t.Helper()
	edge, err := buildEdge()
	if err != nil {
		t.Fatal(err)
	}
	node := harness.Start(t, exec.Command(edge, "node", "--rules=rules", "--origin=http://127.0.0.1:1", "--secret=0123456789abcdef", "--shard=127.0.0.1:1",
		"--gossip-listen=127.0.0.1:0", "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", "--admin-listen="))
	_, page := get(t, http.DefaultClient, "http://"+node.Wait(node.Stderr, `node started.* metrics=(\S+)`)[1]+"/metrics")
	return page
}

// get returns the response of a URL.
func get(t *testing.T, c *http.Client, url string) (status int, body string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}
