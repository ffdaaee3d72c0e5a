package analysis_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// entry returns a request of an address.
func entry(at float64, addr string) accesslog.Entry {
	return accesslog.Entry{Time: int64(at * 1e6), Client: addr, Addr: netip.MustParseAddr(addr), Method: "GET", Host: "example.com", Path: "/"}
}

// A fataler is a *testing.T or a *rapid.T.
type fataler interface{ Fatal(...any) }

// sweep returns the results of a Sweep for a log.
func sweep(t fataler, log []accesslog.Entry, o analysis.SweepOptions) *analysis.SweepReport {
	s, err := analysis.NewSweep(o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range log {
		if err := s.Add(&log[i]); err != nil {
			t.Fatal(err)
		}
	}
	report, err := s.Report()
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// A key with too many requests in a window is an error, even if the log ends before Add can return it.
func TestSweepOverflow(t *testing.T) {
	s, err := analysis.NewSweep(analysis.SweepOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.Fill(netip.MustParseAddr("192.0.2.1"))
	for _, client := range []string{"192.0.2.2", "192.0.2.1"} {
		e := entry(1e9, client)
		if err := s.Add(&e); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Report(); err == nil || !strings.Contains(err.Error(), "more than 4294967295 requests in one window of 10s have the same ip") {
		t.Errorf("Report returns the error %v", err)
	}
}

// A throttle implements one rule by its definition. It keeps every request.
type throttle struct {
	threshold, period, timeout int64
	passed                     map[string][]int64 // times, by client
	until                      map[string]int64   // by client: start of the mitigation + timeout
	refused                    map[string]uint64
}

// over reports whether the estimate at t exceeds the threshold.
func (h *throttle) over(client string, t int64) bool {
	var prev, cur int64
	for _, at := range h.passed[client] {
		switch t/h.period - at/h.period {
		case 0:
			cur++
		case 1:
			prev++
		}
	}
	return prev*(h.period-t%h.period)+cur*h.period > h.threshold*h.period
}

// request handles a request of several clients at once, and reports whether it passes. While no request passes,
// the estimate only falls, so a mitigation lasts exactly as long as the estimate exceeds the threshold, or its
// timeout runs.
func (h *throttle) request(clients []string, t int64) (passed bool) {
	passed = true
	for _, client := range clients {
		if t < h.until[client] || h.over(client, t) {
			h.refused[client]++
			passed = false
		}
	}
	for _, client := range clients {
		if !passed {
			break
		}
		h.passed[client] = append(h.passed[client], t)
		if h.over(client, t) {
			h.until[client] = t + h.timeout
		}
	}
	return passed
}

// Every cell of the grid has the results of its rule alone.
func TestSweepCellsAreRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		timeout := rapid.SampledFrom([]time.Duration{0, 3 * time.Second, time.Minute}).Draw(t, "timeout")
		thresholds := rapid.SliceOfNDistinct(rapid.Uint64Range(1, 12), 1, 5, rapid.ID[uint64]).Draw(t, "thresholds")
		periods := rapid.SliceOfNDistinct(rapid.SampledFrom([]time.Duration{1e9, 5e9, 7e9, 60e9}), 1, 3, rapid.ID[time.Duration]).Draw(t, "periods")
		fine := rapid.Bool().Draw(t, "fine")
		clients := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 1, rapid.IntRange(1, 3).Draw(t, "clients of a request"), rapid.ID[string])
		steps := rapid.SampledFrom([]int64{0, 1, 40_000, 300_000, 1_000_000, 4_000_000, 13_000_000})
		now := int64(1_700_000_000_000_000)
		var log []accesslog.Entry
		for range rapid.IntRange(0, 120).Draw(t, "requests") {
			now += steps.Draw(t, "step")
			at := now
			if !fine {
				at = now / 1e6 * 1e6
			}
			e := entry(0, "192.0.2.1")
			e.Time = at
			for _, client := range clients.Draw(t, "clients") {
				e.Header = append(e.Header, accesslog.Field{Name: "Client", Value: client})
			}
			log = append(log, e)
		}
		byClient, err := analysis.ParseCharacteristics("header:client")
		if err != nil {
			t.Fatal(err)
		}
		report := sweep(t, log, analysis.SweepOptions{
			Characteristics: [][]rule.Characteristic{byClient}, Thresholds: thresholds, Periods: periods, MitigationTimeout: timeout,
		})
		slices.Sort(thresholds)
		slices.Sort(periods)
		for i, period := range periods {
			for j, threshold := range thresholds {
				h := throttle{int64(threshold), period.Microseconds(), timeout.Microseconds(), map[string][]int64{}, map[string]int64{}, map[string]uint64{}}
				seen := map[string]bool{}
				var total uint64
				for _, e := range log {
					var clients []string
					for _, f := range e.Header {
						seen[f.Value] = true
						clients = append(clients, f.Value)
					}
					if !h.request(clients, e.Time) {
						total++
					}
				}
				var want []analysis.Source
				for client, refused := range h.refused {
					want = append(want, analysis.Source{Name: client, Refused: refused})
				}
				byName := func(a, b analysis.Source) int { return cmp.Compare(a.Name, b.Name) }
				slices.SortFunc(want, byName)
				cell := report.Curves[i].Cells[j]
				got := slices.SortedFunc(slices.Values(cell.Top), byName)
				if diff := gocmp.Diff(want, got); diff != "" || cell.Refused != total || cell.Clients != len(want) || cell.Threshold != threshold {
					t.Fatalf("%d in %v: refused %d of %d clients, want %d of %d (-want +got):\n%s", threshold, period, cell.Refused, cell.Clients, total, len(want), diff)
				}
				if report.Curves[i].Clients != len(seen) {
					t.Fatalf("there are %d clients, want %d", report.Curves[i].Clients, len(seen))
				}
			}
		}
	})
}

// The name of a key consists of the values of its characteristics.
func TestSweepSources(t *testing.T) {
	three := func(change func(*accesslog.Entry)) (log []accesslog.Entry) {
		for range 3 {
			e := entry(1e9, "2001:db8:1:2:3::4")
			change(&e)
			log = append(log, e)
		}
		return log
	}
	header := func(fields ...string) func(*accesslog.Entry) {
		return func(e *accesslog.Entry) {
			for i := 0; i < len(fields); i += 2 {
				e.Header = append(e.Header, accesslog.Field{Name: fields[i], Value: fields[i+1]})
			}
		}
	}
	for _, test := range []struct {
		name, characteristics string
		change                func(*accesslog.Entry)
		want                  []string
	}{
		{"an IPv6 network", "ip", header(), []string{"<2001:db8:1:2::/64>"}},
		{"an IPv4 address", "ip", func(e *accesslog.Entry) { e.Client, e.Addr = "192.0.2.7", netip.MustParseAddr("192.0.2.7") }, []string{"<192.0.2.7>"}},
		{"a client without an address", "ip", func(e *accesslog.Entry) { e.Client, e.Addr = "host.example", netip.Addr{} }, []string{"<host.example>"}},
		{"host, path and method are shown as they are", "host+path+method", func(e *accesslog.Entry) { e.Host, e.Path = "A.example:80", "/%61" }, []string{"a.example /a GET"}},
		{"a header", "ip+header:x-api-key", header("X-Api-Key", "k1"), []string{"<2001:db8:1:2::/64> <k1>"}},
		{"two values", "header:x-api-key", header("X-Api-Key", "k1", "X-Api-Key", "k2"), []string{"<k1>", "<k2>"}},
		{"five values", "header:x-api-key", header("X-Api-Key", "1", "X-Api-Key", "2", "X-Api-Key", "3", "X-Api-Key", "4", "X-Api-Key", "5"), []string{"(several header:x-api-key)"}},
		{"no value", "header:x-api-key", header("X-Other", "k1"), []string{"(no header:x-api-key)"}},
		{"an empty value", "header:x-api-key", header("X-Api-Key", ""), []string{"<>"}},
		{"an IPv6 network that is counted together", "network:24/48", header(), []string{"<2001:db8:1::/48>"}},
		{"an IPv4 network that is counted together", "network:24/48", func(e *accesslog.Entry) { e.Addr = netip.MustParseAddr("192.0.2.7") }, []string{"<192.0.2.0/24>"}},
		{"a cookie", "cookie:sid", header("Cookie", "a=b; sid=7"), []string{"<7>"}},
		{"a parameter", "query:q", func(e *accesslog.Entry) { e.Query = "q=a+b" }, []string{"<a b>"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			list, err := analysis.ParseCharacteristics(test.characteristics)
			if err != nil {
				t.Fatal(err)
			}
			report := sweep(t, three(test.change), analysis.SweepOptions{
				Characteristics: [][]rule.Characteristic{list}, Thresholds: []uint64{1}, ReportOptions: analysis.ReportOptions{Name: func(name string) string { return "<" + name + ">" }},
			})
			var want []analysis.Source
			for _, name := range test.want {
				want = append(want, analysis.Source{Name: name, Refused: 1})
			}
			if diff := gocmp.Diff(want, report.Curves[0].Cells[0].Top); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Requests to which a characteristic does not apply are not counted, and their senders are not treated as clients.
func TestSweepSkips(t *testing.T) {
	set, err := rulefile.Parse("skip", []byte(`rules: [{id: a, characteristics: [{header: x-api-key, missing: skip}], limits: [{threshold: 1, period: 1s}]}]`))
	if err != nil {
		t.Fatal(err)
	}
	report := sweep(t, office(), analysis.SweepOptions{Characteristics: [][]rule.Characteristic{set.Rules()[0].Characteristics}, Thresholds: []uint64{1}})
	if c := report.Curves[0]; c.Clients != 0 || c.Cells[0].Refused != 0 || c.Recommended != 0 {
		t.Errorf("requests without the header: %d clients, %d refused, %d recommended", c.Clients, c.Cells[0].Refused, c.Recommended)
	}
}

func TestSweepOptions(t *testing.T) {
	ip, path := rule.Characteristic{Kind: rule.IP}, rule.Characteristic{Kind: rule.Path}
	for _, test := range []struct {
		name string
		o    analysis.SweepOptions
		want string
	}{
		{"a threshold of 0", analysis.SweepOptions{Thresholds: []uint64{0}}, "invalid threshold 0"},
		{"a threshold above 2^53", analysis.SweepOptions{Thresholds: []uint64{1<<53 + 1}}, "must be 1 to 2^53"},
		{"a short period", analysis.SweepOptions{Periods: []time.Duration{time.Millisecond}}, "must be whole seconds"},
		{"characteristics twice", analysis.SweepOptions{Characteristics: [][]rule.Characteristic{{ip, path}, {ip}, {ip, path}}}, "ip+path is given twice"},
		{"a characteristic twice", analysis.SweepOptions{Characteristics: [][]rule.Characteristic{{ip, ip}}}, "ip is given twice"},
		{"no characteristic", analysis.SweepOptions{Characteristics: [][]rule.Characteristic{{}}}, "empty list of characteristics"},
		{"a share above 100%", analysis.SweepOptions{MaxClientsPct: 101}, "invalid percentage"},
		{"a timeout of half a second", analysis.SweepOptions{MitigationTimeout: time.Second / 2}, "mitigation timeout"},
		{"a negative Top", analysis.SweepOptions{ReportOptions: analysis.ReportOptions{Top: -1}}, "Top"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := analysis.NewSweep(test.o); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
	for _, text := range []string{"", "ip+", "ip+ip", "agent", "header:"} {
		if list, err := analysis.ParseCharacteristics(text); err == nil {
			t.Errorf("ParseCharacteristics(%q) = %v without an error", text, list)
		}
	}
	s, err := analysis.NewSweep(analysis.SweepOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		at   float64
		want string
	}{{1e9, ""}, {1e9 - 1, "comes after"}, {1e9, ""}} {
		e := entry(test.at, "192.0.2.1")
		if err := s.Add(&e); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("a request at %.0f: %v, want %q", test.at, err, test.want)
		}
	}
}

// A request whose date is wrong by centuries does not end a sweep, and does not change what comes before it.
func TestSweepOfCenturies(t *testing.T) {
	o := analysis.SweepOptions{Thresholds: []uint64{2}, Periods: []time.Duration{time.Second, time.Hour}}
	var entries []accesslog.Entry
	for _, at := range []float64{1e9, 1e9, 1e9, 1e9, 3e10} {
		entries = append(entries, entry(at, "192.0.2.1"))
	}
	for _, c := range sweep(t, entries, o).Curves {
		if cell := c.Cells[0]; cell.Refused != 1 || cell.Clients != 1 {
			t.Errorf("%d s: %+v, want 1 refused request", c.PeriodS, cell)
		}
	}
}

// An empty log is not an error.
func TestSweepOfEmptyLog(t *testing.T) {
	report := sweep(t, nil, analysis.SweepOptions{Periods: []time.Duration{time.Hour, time.Second, time.Hour, time.Minute, 2 * time.Hour}})
	var b bytes.Buffer
	if err := report.Document().WriteText(&b); err != nil || len(report.Curves) != 4 || !strings.Contains(b.String(), "no request was counted") {
		t.Errorf("%v, %+v\n%s", err, report, &b)
	}
	if _, err := json.Marshal(report); err != nil {
		t.Error(err)
	}
}
