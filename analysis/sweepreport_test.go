package analysis_test

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/internal/chart"
	"github.com/edgelimit/edge/internal/golden"
	"github.com/edgelimit/edge/rule"
)

// office returns a log of 2000 clients. Most send a few requests, 200 send seven once, and 20 send fifteen at a time
// once. Each of three machines sends more than the previous one.
func office() (log []accesslog.Entry) {
	random := rand.New(rand.NewPCG(1, 2))
	begin := float64(time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC).Unix())
	for i := range 1997 {
		name := fmt.Sprintf("10.0.%d.%d", i/250, i%250)
		n, at := 1+random.IntN(4), 0.0
		switch {
		case i < 20:
			n, at = 15, random.Float64()*7200
		case i < 220:
			n, at = 7, random.Float64()*7200
		}
		for range n {
			if i >= 220 {
				at = random.Float64() * 7200
			}
			log = append(log, entry(begin+at, name))
		}
	}
	for i, pause := range []float64{2, 0.5, 0.1} {
		for at := 600.0; at < 1800; at += pause {
			log = append(log, entry(begin+at, fmt.Sprintf("203.0.113.%d", i+1)))
		}
	}
	slices.SortStableFunc(log, func(a, b accesslog.Entry) int { return cmp.Compare(a.Time, b.Time) })
	return log
}

// In a minute the machines send 30, 120 and 600 requests. So a threshold of 5 affects 223 clients, 10 affects
// 23, 20 affects 3, 50 and 100 affect 2, and 200 and 500 affect 1.
func TestSweepRecommends(t *testing.T) {
	for _, test := range []struct {
		name string
		pct  float64
		want uint64
	}{
		{"a tenth of a percent is two clients", 0, 50},
		{"half of that is one client", 0.05, 200},
		{"a tenth of that is no client", 0.01, 1000},
		{"more than that is three clients", 0.15, 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			report := sweep(t, office(), analysis.SweepOptions{MaxClientsPct: test.pct, Periods: []time.Duration{time.Minute}})
			if got := report.Curves[0]; got.Recommended != test.want || got.Knee != 20 {
				t.Errorf("recommended %d with the knee at %d, want %d and 20", got.Recommended, got.Knee, test.want)
			}
		})
	}
	report := sweep(t, office(), analysis.SweepOptions{})
	for _, c := range report.Curves {
		var requests, refused uint64
		for _, p := range c.Timeline.Points {
			requests, refused = requests+p.Requests, refused+p.Refused
		}
		i := slices.IndexFunc(c.Cells, func(cell analysis.Cell) bool { return cell.Threshold == c.Recommended })
		if requests != report.Requests || refused != c.Cells[i].Refused {
			t.Errorf("%d of %d requests refused in the timeline, want %d of %d", refused, requests, c.Cells[i].Refused, report.Requests)
		}
	}
	report = sweep(t, office(), analysis.SweepOptions{MaxClientsPct: 0.01, Thresholds: []uint64{5, 10}})
	if c := report.Curves[0]; c.Recommended != 0 || c.Timeline != nil {
		t.Errorf("recommended %d, although each threshold affects too many", c.Recommended)
	}
}

func TestSweepText(t *testing.T) {
	log := office()
	for i := range log {
		if log[i].Client == "203.0.113.3" {
			log[i].Path = "/a\x1b[2J\u202e" + strings.Repeat("long/", 30)
		}
	}
	byPath, err := analysis.ParseCharacteristics("ip+path")
	if err != nil {
		t.Fatal(err)
	}
	report := sweep(t, log, analysis.SweepOptions{
		Periods: []time.Duration{time.Minute, time.Hour}, Characteristics: [][]rule.Characteristic{{{Kind: rule.IP}}, byPath, {{Kind: rule.Host}}},
	})
	var b bytes.Buffer
	if err := report.Document().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/sweep.txt", b.Bytes())
	for line := range strings.Lines(b.String()) {
		if len([]rune(line)) > 101 || strings.ContainsRune(line, '\x1b') {
			t.Errorf("too long, or not escaped: %q", line)
		}
	}
}

// Curves of periods with the same results are one line with both names.
func TestCoincidingCurves(t *testing.T) {
	var log []accesslog.Entry
	add := func(second, n int, client string) {
		for range n {
			log = append(log, entry(float64(newYear.Unix()+int64(second)), client))
		}
	}
	add(0, 12, "192.0.2.1")
	add(300, 8, "192.0.2.2")
	add(420, 8, "192.0.2.2") // 16 in ten minutes, 8 in one
	report := sweep(t, log, analysis.SweepOptions{Thresholds: []uint64{5, 10, 20}, Periods: []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute}})
	plots := 0
	for _, block := range report.Document().Sections[0].Blocks {
		if plot, ok := block.(chart.Lines); ok {
			plots++
			if len(plot.Lines) != 2 || plot.Lines[0].Name != "10s, 1m" || plot.Lines[1].Name != "10m" {
				t.Errorf("%s has the lines %+v, want 10s, 1m and 10m", plot.Title, plot.Lines)
			}
		}
	}
	if plots != 2 {
		t.Errorf("%d plots of lines, want 2", plots)
	}
}
