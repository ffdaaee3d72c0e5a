package deploy_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edgelimit/edge/internal/harness"
)

// healthy are the metrics of a healthy node, and their values in the notation of promtool.
const healthy = `
up{} 1
edge_build_info{pop="POP",version="1"} 1
edge_gossip_nodes{} NODES
edge_counting_alone{} 0
edge_counting_oldest_request_age_seconds{} 0
edge_shard_breaker_open{shard="POP-s:11211"} 0
edge_nodes_differing{in="rules"} 0
edge_environment_problem{problem="clock"} 0
edge_environment_problem{problem="missing_reports"} 0
edge_rules_last_reload_successful{} 1
edge_tls_certificate_not_after_seconds{name="a.example"} 9000000
edge_requests_total{rule="login",verdict="blocked"} 0+BLOCKED
edge_requests_total{rule="",verdict="passed"} 0+150
edge_requests_total{rule="pay",verdict="unavailable"} 0+0
edge_increments_total{result="ok"} 0+150
edge_increments_total{result="unknown"} 0+0
edge_increments_dropped_total{cause="queue_full"} 0+0
edge_origin_failures_total{reason="timeout"} 0+0
edge_connections_closed_total{reason="full"} 0+0
edge_check_undecided_total{reason="peer"} 0+0
edge_mitigation_records_evicted_total{} 0+0`

// A fault changes the values of a metric on some nodes after an hour.
type fault struct {
	nodes, metric, values string // space-separated nodes
	alert, labels         string // that fires
}

var faults = map[string]fault{
	"a node dies": {"fra-1", "up{}", "1x240 0x60",
		"EdgeNodeDown", `severity="critical",job="edge",instance="fra-1"`},
	"a shard of one PoP fails": {"ams-1 ams-2", "edge_shard_breaker_open{", "0x240 1x60",
		"EdgeShardDown", `severity="warning",pop="ams",shard="ams-s:11211"`},
	"a node reaches no shard": {"fra-3", "edge_counting_alone{", "0x240 1x60",
		"EdgeCountingAlone", `severity="critical",job="edge",instance="fra-3"`},
	"a node hears one of two": {"fra-1", "edge_gossip_nodes{", "3x240 2x60",
		"EdgeNodesMissing", `severity="warning",job="edge",instance="fra-1",pop="fra"`},
	"a node has other rules": {"ams-2", "edge_nodes_differing{", "0x240 1x60",
		"EdgeNodesDiffer", `severity="critical",job="edge",instance="ams-2",in="rules"`},
	"a rules file has an error": {"ams-2", "edge_rules_last_reload_successful{", "1x240 0x60",
		"EdgeRulesRefused", `severity="warning",job="edge",instance="ams-2"`},
	"an origin fails": {"fra-1", "edge_origin_failures_total{", "0+0x240 75+75x60",
		"EdgeOriginFails", `severity="critical",instance="fra-1"`},
	"the quieter PoP refuses": {"fra-1 fra-3", `edge_requests_total{rule="login"`, "0+1x240 340+100x60",
		"EdgeRefusalsRise", `severity="warning",pop="fra"`},
	"counts are dropped": {"ams-2", "edge_increments_dropped_total{", "0+0x240 5+5x60",
		"EdgeCountsLost", `severity="warning",instance="ams-2",cause="queue_full"`},
	"increments get no reply": {"fra-3", `edge_increments_total{result="unknown"`, "0+0x240 50+50x60",
		"EdgeIncrementsUnknown", `severity="warning",instance="fra-3"`},
}

// input returns the series of two PoPs with a fault, for promtool. ams has two nodes, and ams-1 restarts after 15
// minutes; fra has three, and fra-2 restarts after 30. ams refuses more than a quarter of its requests all the time.
func input(f fault) string {
	var b strings.Builder
	for _, node := range []struct{ name, pop, nodes, blocked string }{
		{"ams-1", "ams", "2", "60"}, {"ams-2", "ams", "2", "60"}, {"fra-1", "fra", "3", "1"},
		{"fra-2", "fra", "3", "1"}, {"fra-3", "fra", "3", "1"},
	} {
		metrics := strings.NewReplacer("POP", node.pop, "NODES", node.nodes, "BLOCKED", node.blocked).Replace(healthy)
		for line := range strings.Lines(metrics[1:]) {
			metric, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			away := "_x2"
			if metric == "up{}" {
				away = "0x1"
			}
			values := value + "x300"
			switch {
			case f.metric != "" && strings.HasPrefix(metric, f.metric) && strings.Contains(f.nodes, node.name):
				values = f.values
			case node.name == "ams-1":
				values = fmt.Sprintf("%sx60 %s %[1]sx238", value, away)
			case node.name == "fra-2":
				values = fmt.Sprintf("%sx120 %s %[1]sx178", value, away)
			}
			series := strings.Replace(metric, "{", fmt.Sprintf(`{job="edge",instance=%q,`, node.name), 1)
			fmt.Fprintf(&b, "      - {series: '%s', values: '%s'}\n", strings.Replace(series, ",}", "}", 1), values)
		}
	}
	return b.String()
}

// Two PoPs are in one Prometheus. No alert fires while nodes restart. For each fault one alert fires, which names the
// affected PoP.
func TestAlertsOfPoPs(t *testing.T) {
	t.Parallel()
	statAllFiles(t)
	harness.Installed(t, "promtool")
	rules, err := filepath.Abs("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "rule_files: [%s]\nevaluation_interval: 15s\ntests:\n", rules)
	test := func(name string, f fault, check string) {
		fmt.Fprintf(&b, "  - name: %s\n    interval: 15s\n    input_series:\n%s    promql_expr_test:\n      - {%s}\n",
			name, input(f), check)
	}
	test("an hour with restarts", fault{}, `expr: 'count_over_time(ALERTS{alertstate="firing"}[1h])', eval_time: 1h`)
	for name, f := range faults {
		alert := fmt.Sprintf(`ALERTS{alertname=%q,alertstate="firing",%s}`, f.alert, f.labels)
		test(name, f, `expr: 'ALERTS{alertstate="firing"}', eval_time: 68m, exp_samples: [{value: 1, labels: '`+alert+`'}]`)
	}
	file := filepath.Join(t.TempDir(), "pops.yml")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("promtool", "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}
