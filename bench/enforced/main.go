// Command enforced compares the decisions of simulated PoPs of 1, 3 and 10 nodes, with and without sub-windows,
// with those of a limiter that counts exactly. It plays five traces of real web traffic about 80 times each, and
// writes the figures of docs/accuracy.md about sub-windows under enforcement to a file, and a plot next to it:
//
//	cd bench && go run . enforced -traces DIR -out FILE
package main

import (
	"bufio"
	"compress/gzip"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/bench/harness"
	"github.com/edgelimit/edge/limit/exact"
	rulefile "github.com/edgelimit/edge/rule/file"
)

var traces = []string{"bplogs", "airisdata", "esnote_2017", "srhegde", "xzymo"}

func main() {
	dir := flag.String("traces", "", "`directory` of the traces, as NAME.tsv.gz")
	file := flag.String("out", "subwindows", "`file` for the figures")
	flag.Parse()
	settings := []string{"1", "4", "6", "auto"}
	pops := []struct {
		nodes   int
		timeout time.Duration
	}{{1, 0}, {3, 0}, {10, 0}, {3, 10 * time.Minute}}
	type row struct {
		pop            int
		trace, setting string
	}
	sums := map[row]errorCount{}
	var mu sync.Mutex
	add := func(pop int, trace, setting string, p errorCount) {
		mu.Lock()
		defer mu.Unlock()
		for _, name := range []string{trace, "all"} {
			sum := sums[row{pop, name, setting}]
			sum.add(p)
			sums[row{pop, name, setting}] = sum
		}
	}
	var work sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, name := range traces {
		all := entries(filepath.Join(*dir, name+".tsv.gz"))
		for _, l := range []limit{
			{10, 10e6}, {20, 60e6}, {50, 60e6},
			{100, 60e6}, {300, 900e6}, {1000, 3600e6},
		} {
			exact := map[time.Duration]exactDecisions{}
			for i, pop := range pops {
				x, known := exact[pop.timeout]
				if !known {
					x = enforceExactly(all, l, pop.timeout)
					exact[pop.timeout] = x
				}
				for _, setting := range settings {
					if setting == "6" && l.threshold > 96 {
						continue
					}
					work.Go(func() {
						slots <- struct{}{}
						defer func() { <-slots }()
						p, err := enforced(all, x, l, pop.timeout, setting, pop.nodes)
						harness.Check(err)
						add(i, name, setting, p)
						if setting == "1" && l.threshold <= 96 {
							add(i, name, "1, where 6 fit", p)
						}
					})
				}
			}
		}
		work.Wait()
	}
	var b strings.Builder
	for i, pop := range pops {
		for _, name := range append(traces, "all") {
			for _, setting := range append(settings, "1, where 6 fit") {
				p := sums[row{i, name, setting}]
				fmt.Fprintf(&b, "| %d | %v | %s | %s | %.3f | %d | %d | %d | %.2f |\n", pop.nodes, pop.timeout, name, setting, p.wrongPct(),
					p.wronglyRefused, p.innocents, p.innocentRequests, 100*float64(p.wronglyPassed)/float64(max(1, p.attack)))
			}
		}
	}
	var bars []bar
	for i, pop := range pops[:3] {
		for _, setting := range []string{"1", "4", "auto"} {
			p := sums[row{i, "all", setting}]
			bars = append(bars, bar{fmt.Sprintf("%d nodes, %s", pop.nodes, setting), 100 * float64(p.wronglyPassed) / float64(max(1, p.attack)), p.wrongPct()})
		}
	}
	for name, text := range map[string]string{*file: b.String(), *file + ".svg": plot(bars)} {
		harness.Check(os.WriteFile(name, []byte(text), 0o644))
	}
}

// A limit is a threshold of requests in a period of microseconds.
type limit struct {
	threshold uint64
	period    int64
}

// entries returns the requests of a trace, spread over their seconds: the kth of a client's n requests at
// (k+½)/n.
func entries(file string) (all []accesslog.Entry) {
	f, err := os.Open(file)
	harness.Check(err)
	defer f.Close()
	text, err := gzip.NewReader(f)
	harness.Check(err)
	first := 0 // of the last second
	spread := func() {
		in, seen := map[string]int64{}, map[string]int64{}
		for _, e := range all[first:] {
			in[e.Client]++
		}
		for i := first; i < len(all); i++ {
			e := &all[i]
			e.Time += (2*seen[e.Client] + 1) * 500_000 / in[e.Client]
			seen[e.Client]++
		}
		first = len(all)
	}
	second := int64(-1)
	for lines := bufio.NewScanner(text); lines.Scan(); {
		at, client, _ := strings.Cut(lines.Text(), "\t")
		now, err := strconv.ParseInt(at, 10, 64)
		harness.Check(err)
		if now != second {
			spread()
			second = now
		}
		all = append(all, accesslog.Entry{Time: now * 1e6, Client: client, Method: "GET", Host: "example.com", Path: "/", Status: 200})
	}
	spread()
	slices.SortStableFunc(all, func(a, b accesslog.Entry) int { return int(a.Time - b.Time) })
	return all
}

// exactDecisions are those of a PoP with exact counts: from the time when a client exceeds the limit until no more
// than the threshold are left in the period, the client is refused and not counted.
type exactDecisions struct {
	refused   []bool          // by request
	innocents map[string]bool // clients that never exceed the limit, with all their requests counted
	attack    int             // refused requests
}

func enforceExactly(all []accesslog.Entry, l limit, timeout time.Duration) exactDecisions {
	type client struct {
		passed, all exact.Log
		until       int64
	}
	x := exactDecisions{refused: make([]bool, len(all)), innocents: map[string]bool{}}
	clients := map[string]*client{}
	for i := range all {
		e := &all[i]
		c := clients[e.Client]
		if c == nil {
			c = new(client)
			clients[e.Client], x.innocents[e.Client] = c, true
		}
		if c.all.Add(e.Time, l.period) > l.threshold {
			x.innocents[e.Client] = false
		}
		switch {
		case e.Time < c.until:
			x.refused[i] = true
			x.attack++
		case c.passed.Add(e.Time, l.period) > l.threshold:
			c.until = max(e.Time+timeout.Microseconds(), c.passed.Back(l.threshold, l.period))
		}
	}
	return x
}

// An errorCount compares the decisions of a PoP with the exact ones.
type errorCount struct {
	requests, wronglyRefused, wronglyPassed, attack int
	innocents                                       int // refused clients
	innocentRequests                                int
}

func (p *errorCount) add(o errorCount) {
	p.requests += o.requests
	p.wronglyRefused += o.wronglyRefused
	p.wronglyPassed += o.wronglyPassed
	p.attack += o.attack
	p.innocents += o.innocents
	p.innocentRequests += o.innocentRequests
}

func (p errorCount) wrongPct() float64 {
	return 100 * float64(p.wronglyRefused+p.wronglyPassed) / float64(p.requests)
}

// enforced compares the decisions of a PoP that enforces a limit with the exact ones.
func enforced(all []accesslog.Entry, x exactDecisions, l limit, timeout time.Duration, subWindows string, nodes int) (p errorCount, err error) {
	rules, err := rulefile.Parse("rules.yaml", fmt.Appendf(nil, "rules: [{id: r, characteristics: [ip], limits: [{threshold: %d, period: %ds, sub_windows: %s}], mitigation_timeout: %ds}]", l.threshold, l.period/1e6, subWindows, timeout/time.Second))
	if err != nil {
		return p, err
	}
	s, err := analysis.NewSimulation(analysis.PoPOptions{Nodes: nodes, Lag: 20 * time.Millisecond, Spread: analysis.ByRequest}, rules)
	if err != nil {
		return p, err
	}
	refused := map[string]bool{}
	for i := range all {
		switch d := s.Decide(&all[i]); {
		case d.Verdict.Refused() && x.innocents[all[i].Client]:
			p.innocentRequests++
			refused[all[i].Client] = true
			fallthrough
		case d.Verdict.Refused() && !x.refused[i]:
			p.wronglyRefused++
		case !d.Verdict.Refused() && x.refused[i]:
			p.wronglyPassed++
		}
	}
	p.requests, p.attack, p.innocents = len(all), x.attack, len(refused)
	return p, nil
}

// A bar is a PoP with two shares, in percent.
type bar struct {
	name              string
	letThrough, wrong float64
}

// plot draws two bars for each PoP.
func plot(bars []bar) string {
	const row, left, perPct = 40, 130, 45
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 640 %d' font-family='sans-serif' font-size='12'>\n", 30+row*len(bars))
	fmt.Fprintf(&b, "<rect width='100%%' height='100%%' fill='#fff'/>\n<text x='%d' y='16'>sub-windows: share of an attack let through (dark) and of wrong decisions (light), in percent</text>\n", 8)
	for i, bar := range bars {
		y := 28 + row*i
		fmt.Fprintf(&b, "<text x='%d' y='%d' text-anchor='end'>%s</text>\n", left-8, y+17, bar.name)
		for j, pct := range []float64{bar.letThrough, bar.wrong} {
			width := int(pct * perPct)
			fmt.Fprintf(&b, "<rect x='%d' y='%d' width='%d' height='12' fill='%s'/><text x='%d' y='%d'>%.2f</text>\n",
				left, y+14*j, width, []string{"#1f4e79", "#9dc3e6"}[j], left+width+4, y+14*j+10, pct)
		}
	}
	return b.String() + "</svg>\n"
}
