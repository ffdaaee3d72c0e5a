package deploy_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/edgelimit/edge/internal/golden"
)

// A monitoring is the content of monitoring.yaml.
type monitoring struct {
	Records []struct{ Record, Expr string }
	Alerts  []struct{ Name, Severity, Expr, For, Summary, Cause, Action string }
	Rows    []struct {
		Title  string
		Panels []struct {
			Title, Description string
			Options            struct {
				Unit, Good      string
				Limit           int
				Signed, Stacked bool
			}
			Queries []struct{ Legend, Expr string }
		}
	}
}

// alerts.yml, the dashboard, their copies in the chart and the page of alerts are generated from monitoring.yaml.
func TestGenerated(t *testing.T) {
	text, err := os.ReadFile("monitoring.yaml")
	var m monitoring
	if err == nil {
		err = yaml.Unmarshal(text, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"alerts.yml", "chart/files/alerts.yml"} {
		golden.Check(t, file, []byte(m.alerts()))
	}
	golden.Check(t, "../docs/alerts.md", []byte(m.page()))
	board, err := json.MarshalIndent(m.dashboard(t), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"grafana/dashboard.json", "chart/files/dashboard.json"} {
		golden.Check(t, file, append(board, '\n'))
	}
}

func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// alerts returns the rules of Prometheus.
func (m *monitoring) alerts() string {
	var b strings.Builder
	b.WriteString("# Alerts for operators of PoPs, generated from monitoring.yaml. Cause and remedy of each: docs/alerts.md\ngroups:\n  - name: edge\n    rules:\n")
	for _, r := range m.Records {
		fmt.Fprintf(&b, "      - record: %s\n        expr: %s\n", r.Record, quoted(r.Expr))
	}
	for _, a := range m.Alerts {
		fmt.Fprintf(&b, "      - alert: %s\n        expr: %s\n", a.Name, quoted(a.Expr))
		if a.For != "" {
			fmt.Fprintf(&b, "        for: %s\n", a.For)
		}
		fmt.Fprintf(&b, "        labels: {severity: %s}\n        annotations:\n          summary: %s\n          runbook_url: %s\n", a.Severity, quoted(a.Summary), runbook(a.Name))
	}
	return b.String()
}

func runbook(alert string) string {
	return "https://github.com/edgelimit/edge/blob/main/docs/alerts.md#" + strings.ToLower(alert)
}

// page returns the page that describes the alerts.
func (m *monitoring) page() string {
	var b strings.Builder
	b.WriteString(`# Alerts

[deploy/alerts.yml](../deploy/alerts.yml) has these alerts for Prometheus, and [deploy/grafana/dashboard.json](../deploy/grafana/dashboard.json) a dashboard
for Grafana. Both are in the packages. They work for several PoPs in one Prometheus: give each a name with the setting ` + "`pop`" + `, the same on all of its
nodes. The nodes are those of the job ` + "`edge`" + `. This page is generated from deploy/monitoring.yaml.

A critical alert means that clients are or may soon be refused wrongly, get no response, or are not limited. A warning can wait for the next working day.
`)
	for _, a := range m.Alerts {
		fmt.Fprintf(&b, "\n## %s\n\n*%s.* %s\n\n%s\n", a.Name, a.Severity, a.Cause, a.Action)
	}
	return b.String()
}

// dashboard returns the dashboard of Grafana.
func (m *monitoring) dashboard(t *testing.T) object {
	source := object{"type": "prometheus", "uid": "${datasource}"}
	variable := func(name, label, of, query string) object {
		return object{
			"name": name, "label": label, "type": "query", "datasource": source, "refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*",
			"current": object{"text": "All", "value": "$__all"}, "definition": query, "query": object{"query": query, "refId": of},
		}
	}
	seen := map[string]bool{}
	var panels []object
	id, y := 0, 0
	for _, row := range m.Rows {
		id++
		panels = append(panels, object{"id": id, "type": "row", "title": row.Title, "collapsed": false, "panels": []object{}, "gridPos": object{"h": 1, "w": 24, "x": 0, "y": y}})
		y++
		x, height := 0, 0
		for _, p := range row.Panels {
			if seen[p.Title] || p.Title == row.Title {
				t.Errorf("two panels are called %s", p.Title)
			}
			seen[p.Title] = true
			o := p.Options
			kind, w, h := "timeseries", 8, 8
			defaults := object{"unit": o.Unit}
			options := object{"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi"}}
			custom := object{"lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}
			if o.Stacked {
				custom["stacking"] = object{"mode": "normal"}
			}
			if !o.Signed {
				defaults["min"] = 0
			}
			if o.Good == "" {
				defaults["custom"] = custom
			} else {
				kind, w, h = "stat", 4, 4
				colors := []string{"green", "red"}
				if o.Good == "high" {
					colors = []string{"red", "green"}
				}
				defaults["thresholds"] = object{"mode": "absolute", "steps": []object{{"color": colors[0], "value": nil}, {"color": colors[1], "value": o.Limit}}}
				options = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "colorMode": "background", "graphMode": "none"}
			}
			if x+w > 24 || h != height && x > 0 {
				x, y = 0, y+height
			}
			var targets []object
			for i, q := range p.Queries {
				targets = append(targets, object{"refId": string(rune('A' + i)), "datasource": source, "expr": q.Expr, "legendFormat": q.Legend})
			}
			id++
			panels = append(panels, object{
				"id": id, "type": kind, "title": p.Title, "description": p.Description, "datasource": source, "gridPos": object{"h": h, "w": w, "x": x, "y": y},
				"fieldConfig": object{"defaults": defaults, "overrides": []object{}}, "options": options, "targets": targets,
			})
			x, height = x+w, h
		}
		y += height
	}
	return object{
		"uid": "edge-pop", "title": "Edge PoP", "tags": []string{"edge"}, "schemaVersion": 39, "version": 2, "editable": false, "timezone": "browser", "refresh": "5s",
		"time": object{"from": "now-15m", "to": "now"}, "annotations": object{"list": []object{}}, "links": []object{},
		"templating": object{"list": []object{
			{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
			variable("pop", "PoP", "pops", "label_values(edge_build_info, pop)"),
			variable("node", "Node", "nodes", `label_values(edge_build_info{pop=~"$pop"}, instance)`),
		}},
		"panels": panels,
	}
}

// object is an object in JSON.
type object = map[string]any
