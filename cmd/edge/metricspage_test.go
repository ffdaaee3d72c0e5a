package main

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/internal/golden"
	"github.com/edgelimit/edge/pop"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// A metric is what the registry of a node knows about one.
type metric struct {
	kind, help string
	labels     []string
	values     map[string]map[string]bool // of labels
}

// registered adds the metrics of a node with these options to all.
func registered(t *testing.T, o pop.Options, all map[string]*metric) {
	t.Helper()
	rules, err := rulefile.Parse("a.yaml", []byte(`rules: [{id: a, characteristics: [network:24/48], limits: [{threshold: 1, period: 1m}], min_clients: 2, action: shed}]`))
	if err != nil {
		t.Fatal(err)
	}
	o.Name, o.Origin, o.Listen, o.Secret, o.Rules = "a", "http://127.0.0.1:1", "127.0.0.1:0", "a secret of the nodes", rules
	o.MetricsListen, o.AdminListen, o.Gossip.Listen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	defer new(logging).start(io.Discard, &o)()
	n, err := pop.New(o)
	if err == nil {
		err = n.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer n.Stop(t.Context()) //nolint:errcheck // the test is about metrics

	described := regexp.MustCompile(`^Desc{fqName: "(edge_\w+)", help: "(.*?)", (?:unit: "", )?constLabels: {(.*)}, variableLabels: {(.*)}}$`)
	descs := make(chan *prometheus.Desc, 1000)
	n.Registerer().(prometheus.Collector).Describe(descs)
	close(descs)
	for desc := range descs {
		m := described.FindStringSubmatch(desc.String())
		if m == nil {
			continue // of the Go runtime
		}
		if all[m[1]] == nil {
			all[m[1]] = &metric{help: strings.ReplaceAll(m[2], `\"`, `"`), labels: strings.FieldsFunc(m[4], func(r rune) bool { return r == ',' }), values: map[string]map[string]bool{}}
		}
	}
	families, err := n.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "edge_") {
			continue
		}
		m := all[f.GetName()]
		if m == nil { // collected without a description
			m = &metric{values: map[string]map[string]bool{}}
			all[f.GetName()] = m
		}
		m.kind, m.help = strings.ToLower(f.GetType().String()), f.GetHelp()
		for _, series := range f.GetMetric() {
			for _, l := range series.GetLabel() {
				if m.values[l.GetName()] == nil {
					m.values[l.GetName()] = map[string]bool{}
				}
				m.values[l.GetName()][l.GetValue()] = true
				if !slices.Contains(m.labels, l.GetName()) {
					m.labels = append(m.labels, l.GetName())
				}
			}
		}
	}
}

// row returns the row of a table that describes m.
func (m *metric) row(name string) string {
	if m.kind == "" { // the node has no series of it yet
		switch {
		case strings.HasSuffix(name, "_total"):
			m.kind = "counter"
		case strings.HasSuffix(name, "_duration_seconds"):
			m.kind = "histogram"
		default:
			m.kind = "gauge"
		}
	}
	var labels []string
	for _, l := range m.labels {
		text := "`" + l + "`"
		if fixed := slices.Sorted(maps.Keys(m.values[l])); len(fixed) > 0 && !slices.Contains([]string{"rule", "shard", "node", "name", "version", "pop"}, l) {
			text += ": " + strings.Join(fixed, ", ")
		}
		labels = append(labels, text)
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, m.kind, strings.Join(labels, "; "), m.help)
}

// docs/metrics.md has every metric of a node, as its registry describes it.
func TestMetricsPage(t *testing.T) {
	all := map[string]*metric{}
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certify(t, 1, time.Now().Add(time.Hour), cert, key)
	registered(t, pop.Options{TLSListen: "127.0.0.1:0", TLSCert: cert, TLSKey: key, Shards: []string{"127.0.0.1:1"}, DecisionLog: filepath.Join(dir, "log")}, all)
	registered(t, pop.Options{ShardListen: "127.0.0.1:0", CheckListen: "unix:" + filepath.Join(dir, "check.sock")}, all)
	var b strings.Builder
	b.WriteString(`# Metrics

A node serves its metrics at ` + "`/metrics`" + ` on ` + "`metrics_listen`" + `, for Prometheus, with those of the Go runtime and the process. No label has an address or a key.
[alerts.md](alerts.md) has alerts that use them. This page is generated from the code.

The verdicts passed, allowed (by the allow list), own (a trusted proxy's own request) and logged (a rule with the action log would refuse) go to the origin. The
others are refusals: denied (by the deny list or an operator), malformed, unavailable (on_failure: closed), and, depending on the rule's action, blocked, closed, shadow_banned or shed.

| metric | type | labels | meaning |
|---|---|---|---|
`)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b.WriteString(all[name].row(name))
	}
	b.WriteString("\n`edge-envoy` also has `edge_envoy_requests_total` (`result`: ok, over_limit, invalid) and `edge_envoy_undecided_descriptors_total` (`cause`: [envoy.md](envoy.md#descriptors)).\n")
	golden.Check(t, "../../docs/metrics.md", []byte(b.String()))
}
