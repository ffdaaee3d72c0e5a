package analysis_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/internal/trace"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// refusedByNode returns the number of refused requests of each client at a simulated node that counts each
// request before the next one.
func refusedByNode(t *testing.T, log []accesslog.Entry, threshold uint64, period, timeout time.Duration) map[string]uint64 {
	t.Helper()
	set, err := rulefile.Parse("rules", fmt.Appendf(nil, "rules: [{id: a, characteristics: [ip], limits: [{threshold: %d, period: %s}], mitigation_timeout: %s}]",
		threshold, rule.FormatDuration(period), rule.FormatDuration(timeout)))
	if err != nil {
		t.Fatal(err)
	}
	node, err := analysis.NewEnforcer(analysis.EnforcementOptions{Rules: set, ReportOptions: analysis.ReportOptions{Top: 1000}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range log {
		node.Add(&log[i])
	}
	refused := map[string]uint64{}
	for _, c := range node.Report().Rules[0].TopClients {
		refused[c.Client] = c.Requests
	}
	return refused
}

// A cell refuses exactly the requests that a node would refuse.
func TestSweepEqualsNodeOnTrace(t *testing.T) {
	var log []accesslog.Entry
	for _, a := range trace.Arrivals(t, "xzymo")[:8_000] {
		log = append(log, accesslog.Entry{Time: a.Time, Client: strings.TrimRight(string(a.Client[:]), "\x00")})
	}
	equalsNode(t, log, []uint64{5, 20}, []time.Duration{10 * time.Second, time.Minute}, 0)
	equalsNode(t, log, []uint64{20}, []time.Duration{time.Minute}, 20*time.Second)
}

func equalsNode(t *testing.T, log []accesslog.Entry, thresholds []uint64, periods []time.Duration, timeout time.Duration) {
	report := sweep(t, log, analysis.SweepOptions{Thresholds: thresholds, Periods: periods, MitigationTimeout: timeout, ReportOptions: analysis.ReportOptions{Top: 1000}})
	for i, period := range periods {
		for j, threshold := range thresholds {
			want := refusedByNode(t, log, threshold, period, timeout)
			cell := report.Curves[i].Cells[j]
			if len(want) == 0 || cell.Clients != len(want) {
				t.Errorf("%d in %v: %d clients with refusals, a node has %d", threshold, period, cell.Clients, len(want))
			}
			for _, s := range cell.Top {
				if n := want[s.Name]; n != s.Refused {
					t.Errorf("%d in %v: %d requests of %s refused, a node refuses %d", threshold, period, s.Refused, s.Name, n)
				}
			}
		}
	}
}

// The result does not depend on the number of goroutines, nor does the order of sources with equally many
// refusals.
func TestSweepOnSeveralCores(t *testing.T) {
	var by [][]rule.Characteristic
	for _, text := range []string{"ip", "ip+path", "host+ip", "network:16/32"} {
		list, err := analysis.ParseCharacteristics(text)
		if err != nil {
			t.Fatal(err)
		}
		by = append(by, list)
	}
	random := rand.New(rand.NewPCG(5, 6))
	var log []accesslog.Entry
	for i := range 4000 {
		e := entry(float64(1_700_000_000+i/20), fmt.Sprintf("192.0.2.%d", random.IntN(40)))
		e.Path = fmt.Sprint("/", random.IntN(3))
		log = append(log, e)
	}
	on := func(cores int) *analysis.SweepReport {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
		return sweep(t, log, analysis.SweepOptions{Characteristics: by, Thresholds: []uint64{2, 5, 20}, MitigationTimeout: 10 * time.Second, ReportOptions: analysis.ReportOptions{Top: 40}})
	}
	want := on(1)
	if want.Curves[0].Cells[0].Clients < 30 {
		t.Fatalf("%d clients with refusals, want at least 30", want.Curves[0].Cells[0].Clients)
	}
	if diff := cmp.Diff(want, on(3)); diff != "" {
		t.Errorf("(-one core +three):\n%s", diff)
	}
}
