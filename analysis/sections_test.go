package analysis_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/accuracy"
	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// html returns the page of a document, which must be well-formed, and its text.
func html(t *testing.T, d chart.Document) (raw, text string) {
	t.Helper()
	var b bytes.Buffer
	if err := d.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	raw = b.String()
	var all strings.Builder
	for d := xml.NewDecoder(&b); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return raw, all.String()
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
		if text, ok := token.(xml.CharData); ok {
			all.Write(text)
		}
	}
}

// hostile is office with paths that attack readers of the report.
func hostile() []accesslog.Entry {
	log := office()
	for i := range log {
		log[i].Path = `/</script><script>alert(1)</script>`
	}
	return log
}

func TestSweepPage(t *testing.T) {
	name := analysis.Pseudonyms([]byte("a key"))
	byPath, err := analysis.ParseCharacteristics("ip+path")
	if err != nil {
		t.Fatal(err)
	}
	report := sweep(t, hostile(), analysis.SweepOptions{
		Characteristics: [][]rule.Characteristic{{{Kind: rule.IP}}, byPath}, Periods: []time.Duration{time.Minute, time.Hour}, ReportOptions: analysis.ReportOptions{Name: name},
	})
	raw, text := html(t, report.Document())
	for _, want := range []string{
		"affects 2 of 2,000 clients (0.1%)", "50 in 1m\naffects 2 clients", "0.1% of 2,000 clients", "recommended", "knee",
		name("203.0.113.3") + ` /</script><script>alert(1)</script>`, "10,999", "88.7%", "ip+path in 1h",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(raw, "203.0.113.") || strings.Contains(raw, "<script") {
		t.Error("the page contains an address, or a path's script")
	}
	if raw, _ := html(t, sweep(t, nil, analysis.SweepOptions{}).Document()); strings.Contains(raw, "NaN") {
		t.Error("the page of an empty log has invalid figures")
	}
}

func TestAccuracyPage(t *testing.T) {
	var arrivals []accesslog.Arrival
	var traffic analysis.TimelineCollector
	for _, e := range office() {
		a := accesslog.Arrival{Time: e.Time}
		copy(a.Client[:], e.Client)
		arrivals = append(arrivals, a)
		traffic.Add(e.Time, false)
	}
	a, err := accuracy.New(accuracy.Options{Limits: []accuracy.Limit{{Threshold: 50, Period: 60e6}, {Threshold: 1000, Period: 3600e6}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Add(arrivals); err != nil {
		t.Fatal(err)
	}
	report, err := accuracy.Merge([]*accuracy.Part{a.Part()})
	if err != nil {
		t.Fatal(err)
	}
	_, text := html(t, report.Document(traffic.Timeline()))
	for _, want := range []string{"21,181", "50 requests in 1m", "1,000 requests in 1h", "Traffic", "Error against memory", "sub_windows_60_whole", "packed_auto", "not beaten"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if _, text := html(t, report.Document(figure.Timeline{})); strings.Contains(text, "Traffic") {
		t.Error("the page has a plot without traffic")
	}
}

func TestEnforcementPage(t *testing.T) {
	name := analysis.Pseudonyms([]byte("a key"))
	rules := func(threshold string) *rule.Set {
		set, err := rulefile.Parse("rules", []byte("rules: [{id: each, characteristics: [ip], limits: [{threshold: "+threshold+", period: 1m}]}]"))
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	e, err := analysis.NewEnforcer(analysis.EnforcementOptions{Rules: rules("50"), Detail: true, ReportOptions: analysis.ReportOptions{Name: name}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := analysis.NewComparer(analysis.ComparisonOptions{Rules: rules("50"), Base: rules("200"), ReportOptions: analysis.ReportOptions{Name: name}})
	if err != nil {
		t.Fatal(err)
	}
	log := hostile()
	for i := range log {
		e.Add(&log[i])
		c.Add(&log[i])
	}
	for title, test := range map[string]struct {
		document chart.Document
		want     []string
	}{
		"enforcement": {e.Report().Document(), []string{"12,398", "Rule each", name("203.0.113.3"), "10,999", "88.7%", "Requests and refusals", `alert(1)`, "the threshold: 2 over", "mitigated, no requests"}},
		"comparison":  {c.Report().Document(), []string{"12,398", "7,999", "Newly refused", "By rule", name("203.0.113.2"), `alert(1)`}},
	} {
		raw, text := html(t, test.document)
		for _, want := range test.want {
			if !strings.Contains(text, want) {
				t.Errorf("the page of the %s lacks %q", title, want)
			}
		}
		if strings.Contains(raw, "203.0.113.") || strings.Contains(raw, "<script") {
			t.Errorf("the page of the %s contains an address, or a path's script", title)
		}
	}
}
