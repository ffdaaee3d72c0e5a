package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const oneAWeek = `rules:
  - {id: once, match: {paths: [/once]}, characteristics: [ip], limits: [{threshold: 1, period: 7d}], response: {status: 418, body: "no"}}
  - {id: all, characteristics: [ip], limits: [{threshold: 100000, period: 1m}]}
`

// exceed requests /once until it is refused.
func exceed(t *testing.T, n *node) {
	t.Helper()
	eventually(t, "a refusal", func() bool { return get(t, http.DefaultClient, "http://"+n.http+"/once").StatusCode == 418 })
}

func TestNodeLogsText(t *testing.T) {
	t.Parallel()
	n := startNode(t, oneAWeek, "--origin="+newOrigin(t).URL, "--access-log", "--log-clients")
	get(t, http.DefaultClient, "http://"+n.http+"/a?b=c")
	n.Wait(n.Stderr, `level=INFO msg=request client=127\.0\.0\.1 method=GET host=\S+ uri="?/a\?b=c"? proto=HTTP/1\.1 status=200 bytes=\d+ duration=\S+ verdict=passed\n`)
	for range 2 { // the next request comes once these are counted
		get(t, http.DefaultClient, "http://"+n.http+"/once")
	}
	n.Wait(n.Stderr, `level=INFO msg="mitigation started" rule=once key=[0-9a-f]{32} action=block for=\S+ why="2 in 7d \(0 in the week before, 2 in this one\); the limit is 1" period=168h0m0s client=127\.0\.0\.1 method=GET host=127\.0\.0\.1 path=/once\n`)
	exceed(t, n)
	n.Wait(n.Stderr, `msg=request .*uri=/once .*status=418 bytes=2 .*verdict=blocked rule=once refusal_id=\S+\n`)
	n.Terminate()
	n.Wait(n.Stderr, `msg="node stopping" name=n1\n`)
}

func TestNodeLogsJSON(t *testing.T) {
	t.Parallel()
	n := startNode(t, oneAWeek, "--origin="+newOrigin(t).URL, "--access-log", "--log-format=json", "--log-level=debug")
	get(t, http.DefaultClient, "http://"+n.http+"/a")
	exceed(t, n)
	n.Wait(n.Stderr, `"msg":"mitigation started".*\n`)
	n.Wait(n.Stderr, `"verdict":"blocked".*\n`)
	n.Terminate()
	seen := map[string]map[string]any{}
	for line := range strings.Lines(n.Stderr.String()) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		name := fmt.Sprint(entry["msg"], " ", entry["verdict"])
		seen[name] = entry
	}
	check := func(line, key string, want any) {
		t.Helper()
		if got := seen[line][key]; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %s is %v, want %v", line, key, got, want)
		}
	}
	check("request passed", "status", 200)
	check("request passed", "client", "127.0.0.1")
	check("request passed", "proto", "HTTP/1.1")
	check("request blocked", "status", 418)
	check("request blocked", "rule", "once")
	check("mitigation started <nil>", "rule", "once")
	check("mitigation started <nil>", "action", "block")
	check("mitigation started <nil>", "period", 7*24*3600)
	check("node started <nil>", "http", n.http)
	if key := fmt.Sprint(seen["mitigation started <nil>"]["key"]); !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(key) {
		t.Errorf("key %s, want it in hexadecimal", key)
	}
	if d, ok := seen["request passed"]["duration"].(float64); !ok || d <= 0 || d > patience.Seconds() {
		t.Errorf("duration %v, want seconds", seen["request passed"]["duration"])
	}
	if _, has := seen["mitigation started <nil>"]["client"]; has {
		t.Error("the client is named without --log-clients")
	}
}

// metrics reads a page of metrics.
func metrics(t *testing.T, addr string) map[string]*dto.MetricFamily {
	t.Helper()
	a := get(t, http.DefaultClient, "http://"+addr+"/metrics")
	if a.StatusCode != http.StatusOK {
		t.Fatalf("metrics: %s", a.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// value returns the value of a metric, which has these labels if any are given.
func value(t *testing.T, families map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	t.Helper()
	for _, m := range families[name].GetMetric() {
		all := true
		for i := 0; i < len(labels); i += 2 {
			has := false
			for _, l := range m.GetLabel() {
				has = has || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
			}
			all = all && has
		}
		if all {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
		}
	}
	t.Fatalf("missing metric %s %v", name, labels)
	return 0
}

func TestNodeMetrics(t *testing.T) {
	t.Parallel()
	n := startNode(t, oneAWeek, "--origin="+newOrigin(t).URL)
	for range 3 {
		get(t, http.DefaultClient, "http://"+n.http+"/")
	}
	exceed(t, n)
	m := metrics(t, n.metrics)
	if got := value(t, m, "edge_requests_total", "rule", "once", "verdict", "blocked"); got != 1 {
		t.Errorf("refused requests: %v, want 1", got)
	}
	if got := value(t, m, "edge_requests_total", "rule", "", "verdict", "passed"); got < 5 {
		t.Errorf("passed requests: %v, want at least 5", got)
	}
	if got := value(t, m, "edge_rules_last_reload_successful"); got != 1 {
		t.Errorf("edge_rules_last_reload_successful = %v, want 1", got)
	}
	for _, name := range []string{"go_goroutines", "process_open_fds", "edge_increments_total", "edge_queue_depth", "edge_mitigation_records", "edge_shard_request_duration_seconds"} {
		if m[name] == nil {
			t.Errorf("missing metric %s", name)
		}
	}
	for path, want := range map[string]int{"/livez": 200, "/readyz": 200, "/": 404, "/once": 404} {
		if a := get(t, http.DefaultClient, "http://"+n.metrics+path); a.StatusCode != want {
			t.Errorf("%s: %s, want %d", path, a.Status, want)
		}
	}
	// Clients do not see it.
	if a := get(t, http.DefaultClient, "http://"+n.http+"/metrics"); strings.Contains(a.body, "edge_") {
		t.Error("clients can read the metrics")
	}
	n.Terminate()
}
