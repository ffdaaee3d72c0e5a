// Command flood measures how many requests pass from clients that exceed a limit: during a flood of
// keys that are seen once, with a slow shard, in a burst, at a threshold, and while shards and nodes
// break. Each run starts its own nodes, memcached and nginx as the origin; all of them end with this program.
//
//	go build -o /tmp/edge ./cmd/edge && cd bench && go build -o /tmp/flood ./flood && /tmp/flood -edge /tmp/edge
//
// It needs wrk, h2load, nginx, memcached (with -redis redis-server) and taskset.
package main

import (
	"flag"
	"fmt"
	"log"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

var (
	edge    = flag.String("edge", "edge", "the `binary`")
	against = flag.String("against", "", "older `binary` to measure alternately with -edge")
	tables  = flag.String("table", "all", "comma-separated `tables` to print: flood, slow, burst, overshoot, networks, breaks, steady, schedules, or all")
	redis   = flag.Bool("redis", false, "with shards that are Redis instead of memcached")
	only    = flag.String("row", "", "measure only the rows whose names contain this `text`")
	runs    = flag.Int("runs", 5, "runs of each row; the report has the median and the worst")
	last    = flag.Duration("for", 10*time.Second, "length of a run; overshoot runs twice as long; breaks and schedules have their own")
	seed    = flag.Uint64("seed", 1, "of the first run of schedules; the next run has the next one")
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	known := []string{"flood", "slow", "burst", "overshoot", "networks", "breaks", "steady", "schedules"}
	print := map[string]func(){"flood": floods, "slow": slow, "burst": burst, "overshoot": overshoot, "networks": networks,
		"breaks": breaks, "steady": steady, "schedules": schedules}
	chosen := strings.Split(*tables, ",")
	if *tables == "all" {
		chosen = known
	}
	for _, name := range chosen {
		if print[name] == nil {
			log.Fatalf("unknown table %q: choose %s or all", name, strings.Join(known, ", "))
		}
	}
	harness.Main(func() {
		fmt.Println(harness.Machine(serverName(), "nginx", "wrk", "h2load"))
		for _, name := range chosen {
			print[name]()
		}
	})
}

// A run is the result of one run of a row.
type run struct {
	passed     int           // requests that passed, of the client that exceeds the limit
	unanswered int           // of its requests
	refused    time.Duration // until its first refusal; 0: never refused
	rate       float64       // requests per second of all clients
	busy       float64       // fraction of the nodes' cores in use
	most       int           // maximum number of requests that passed in one second

	sent                int // requests of the client that got the most through in one window, in that window
	all                 int // requests of that client that passed, in all windows
	innocents, innocent int // requests of clients that never exceed half of the limit: all and refused
}

func passed(r run) int { return r.passed }

// A column is a figure of the runs of a row.
type column struct {
	title string
	of    func([]run) string
}

var (
	medianPassed = column{"median", func(all []run) string {
		unanswered := sum(all, func(r run) int { return r.unanswered })
		if unanswered > 0 {
			return fmt.Sprintf("%d (%d unanswered in total)", median(all, passed), unanswered)
		}
		return fmt.Sprint(median(all, passed))
	}}
	worstPassed  = column{"worst", func(all []run) string { return fmt.Sprint(worst(all, passed)) }}
	firstRefusal = column{"first refusal after", func(all []run) string {
		if slices.ContainsFunc(all, func(r run) bool { return r.refused == 0 }) {
			return "never in one run"
		}
		return median(all, func(r run) time.Duration { return r.refused }).Round(time.Millisecond).String()
	}}
	allRequests = column{"requests/s in total", func(all []run) string {
		return fmt.Sprintf("%.0f", median(all, func(r run) float64 { return r.rate }))
	}}
	coresBusy = column{"cores busy", func(all []run) string {
		return fmt.Sprintf("%.0f%%", 100*median(all, func(r run) float64 { return r.busy }))
	}}
)

func values[T any](all []run, of func(run) T) (list []T) {
	for _, r := range all {
		list = append(list, of(r))
	}
	return list
}

func median[T int | float64 | time.Duration](all []run, of func(run) T) T {
	return harness.Median(values(all, of))
}

func worst(all []run, of func(run) int) int { return slices.Max(values(all, of)) }

func sum(all []run, of func(run) int) (n int) {
	for _, r := range all {
		n += of(r)
	}
	return n
}

// A row is measured several times with each binary.
type row struct {
	name    string
	measure func(binary string, nth int) run
	bar     func() int // maximum of the median; nil: no limit
	bound   bool       // the bar is the maximum of every run
	paired  bool       // both binaries are measured at the same time
	all     []run      // results with -edge
}

// show measures the rows of a table, and prints each as soon as it is measured.
func show(title string, columns []column, rows []*row) {
	rows = slices.DeleteFunc(rows, func(r *row) bool { return !strings.Contains(r.name, *only) })
	fmt.Printf("\n%s, %d runs of each row:\n\n", title, *runs)
	head := []string{""}
	for _, c := range columns {
		head = append(head, c.title)
	}
	head = append(head, "bar")
	if *against != "" {
		for _, c := range columns {
			head = append(head, "before: "+c.title)
		}
	}
	fmt.Printf("| %s |\n|---%s|\n", strings.Join(head, " | "), strings.Repeat("|--:", len(head)-1))
	for _, r := range rows {
		var before []run
		for nth := range *runs {
			var old sync.WaitGroup
			if *against != "" && r.paired {
				old.Go(func() { before = append(before, r.measure(*against, nth)) })
			}
			r.all = append(r.all, r.measure(*edge, nth))
			if *against != "" && !r.paired {
				before = append(before, r.measure(*against, nth))
			}
			old.Wait()
		}
		line := []string{r.name}
		for _, c := range columns {
			line = append(line, c.of(r.all))
		}
		bar := ""
		if r.bar != nil {
			bar = fmt.Sprint(r.bar())
			if median(r.all, passed) > r.bar() || r.bound && worst(r.all, passed) > r.bar() {
				bar += ", **missed**"
			}
		}
		line = append(line, bar)
		for _, c := range columns {
			if before != nil {
				line = append(line, c.of(before))
			}
		}
		fmt.Printf("| %s |\n", strings.Join(line, " | "))
	}
}

// atMost returns a constant bar.
func atMost(n int) func() int { return func() int { return n } }
