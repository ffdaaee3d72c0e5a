// Command http compares a node with nginx, HAProxy and, with -before, another build of edge, as
// reverse proxies that refuse or pass every request: CPU time per request of the server process,
// user and system, on one core, under the same load over keep-alive connections, from wrk for
// HTTP/1.1 and h2load for HTTP/2. The servers alternate, so that drift of the machine cancels out.
// With -slow it measures instead how long requests take while other clients are slow, idle or numerous.
// With -latency it measures how long they take at half the rate that saturates one core.
// With -minimal it compares refusals, and requests that pass, with those of servers that do nothing else.
// With -profile it writes a CPU profile of the node under the same loads instead, for the compiler.
//
//	go build -o /tmp/edge ./cmd/edge && cd bench && go run ./http -edge /tmp/edge
//
// It needs nginx, haproxy, wrk, h2load, taskset, and two cores: servers run on the first one, load
// and origin on the others.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

var (
	edge   = flag.String("edge", "edge", "the `binary`")
	before = flag.String("before", "", "a `binary` of edge to compare with, such as that of an earlier version")
	rounds = flag.Int("rounds", 5, "rounds, in which each server runs once")
	length = flag.Duration("length", 3*time.Second, "length of a round, whole seconds")
	only   = flag.String("only", "", "run the cases that match this `regexp`")
	output = flag.String("profile", "", "write a CPU profile of the node under all loads to a `file`, such as ../cmd/edge/default.pgo")
	half   = flag.Bool("latency", false, "measure how long requests take at half the rate that saturates one core, instead of CPU time")
	least  = flag.Bool("minimal", false, "compare refusals and requests that pass, over 64, 1,000 and 10,000 connections, with servers that do nothing else")
	slow   = flag.Bool("slow", false, "measure how long requests take while other clients are slow, idle or numerous, instead of CPU time")
)

// A load describes the requests of a case, which are all refused or all pass.
type load struct {
	name   string
	refuse bool
	path   string
	upload int // bytes of the body
	conns  int
	tls    bool
	// streams is the number of concurrent requests on each HTTP/2 connection. If zero, the requests use
	// HTTP/1.1.
	streams int
}

var loads = []load{
	{name: "refuse", refuse: true, path: "/128", conns: 64},
	{name: "pass, 128 bytes", path: "/128", conns: 64},
	{name: "pass, 10,000 bytes", path: "/10000", conns: 64},
	{name: "pass, upload of 100,000 bytes", path: "/upload", upload: 100_000, conns: 64},
	{name: "refuse, 1,000 connections", refuse: true, path: "/128", conns: 1000},
	{name: "pass, 128 bytes, 1,000 connections", path: "/128", conns: 1000},
	{name: "refuse, TLS", refuse: true, path: "/128", conns: 64, tls: true},
	{name: "pass, 128 bytes, TLS", path: "/128", conns: 64, tls: true},
	{name: "refuse, HTTP/2 over TLS", refuse: true, path: "/128", conns: 16, streams: 8, tls: true},
	{name: "pass, 128 bytes, HTTP/2 over TLS", path: "/128", conns: 16, streams: 8, tls: true},
	{name: "pass, 10,000 bytes, HTTP/2 over TLS", path: "/10000", conns: 16, streams: 8, tls: true},
	{name: "pass, upload of 100,000 bytes, HTTP/2 over TLS", path: "/upload", upload: 100_000, conns: 16, streams: 8, tls: true},
}

func main() {
	log.SetFlags(0)
	serveMinimal()
	flag.Parse()
	runtime.LockOSThread() // the servers end with the thread that started them
	wanted, err := regexp.Compile(*only)
	harness.Check(err)
	if runtime.NumCPU() < 2 {
		log.Fatal("two cores are needed")
	}
	dir, err := os.MkdirTemp("", "http")
	harness.Check(err)
	defer os.RemoveAll(dir)
	b := newBench(dir)
	defer b.origin.end()

	switch {
	case *least:
		b.compareMinimal(true)
		b.compareMinimal(false)
		return
	case *half:
		b.compareLatency(wanted)
		return
	case *slow:
		b.compareSlow(wanted)
		return
	case *output != "":
		b.profile(wanted)
		return
	}
	fmt.Printf("CPU µs per request (medians of %d rounds of %v), and those of the node as a multiple of the others' (medians of the pairs)\n\n", *rounds, *length)
	if *before == "" {
		fmt.Println("| | nginx | HAProxy | edge | edge/nginx |\n|---|--:|--:|--:|--:|")
	} else {
		fmt.Println("| | nginx | HAProxy | edge | before | edge/nginx | edge/before |\n|---|--:|--:|--:|--:|--:|--:|")
	}
	for _, refuse := range []bool{true, false} {
		servers := b.start(refuse)
		for _, l := range loads {
			if l.refuse == refuse && wanted.MatchString(l.name) {
				b.compare(l, servers)
			}
		}
		for _, s := range servers {
			s.end()
		}
	}
}

// compare prints a line of the table.
func (b *bench) compare(l load, servers []*server) {
	cpu := make([][]float64, len(servers))
	for round := range *rounds + 1 {
		for i, s := range servers {
			used := b.round(s, l)
			if round > 0 { // the first round is a warm-up
				cpu[i] = append(cpu[i], used)
			}
		}
	}
	fmt.Printf("| %s |", l.name)
	for i := range servers {
		fmt.Printf(" %.1f |", median(cpu[i]))
	}
	for _, other := range []int{0, 3} { // nginx, and edge before
		if other < len(servers) {
			ratios := make([]float64, *rounds)
			for i := range ratios {
				ratios[i] = cpu[2][i] / cpu[other][i]
			}
			fmt.Printf(" %.2f |", median(ratios))
		}
	}
	fmt.Println()
}

// round loads a server, and returns its CPU time per request in microseconds. It checks that all
// responses are as expected.
func (b *bench) round(s *server, l load) float64 {
	url := "http://" + s.addr + l.path
	if l.tls {
		url = "https://" + s.tls + l.path
	}
	command, counts := b.wrk, countWrk
	if l.streams > 0 {
		command, counts = b.h2load, countH2load
	}
	before := s.cpuTime()
	out, err := pinned(loadCores, append(command(l), url)...).CombinedOutput()
	harness.Check(err)
	used := s.cpuTime() - before
	n, refused, ok := counts(string(out))
	if !ok || n == 0 {
		log.Fatalf("%s, %s: the load generator reports\n%s", l.name, s.name, out)
	}
	if l.refuse && refused < 0.99*n || !l.refuse && refused > 0 {
		log.Fatalf("%s, %s: %.0f of %.0f requests were refused", l.name, s.name, refused, n)
	}
	return used.Seconds() * 1e6 / n
}

// wrk returns the command for an HTTP/1.1 load.
func (b *bench) wrk(l load) []string {
	args := []string{"wrk", "-t1", fmt.Sprintf("-c%d", l.conns), fmt.Sprintf("-d%.0fs", length.Seconds())}
	if l.upload > 0 {
		script := b.write("upload.lua", fmt.Sprintf("wrk.method = \"POST\"\nwrk.body = string.rep(\"x\", %d)\n", l.upload))
		args = append(args, "-s", script)
	}
	return args
}

// countWrk returns the number of requests, and of those that were refused, from wrk's report.
func countWrk(report string) (n, refused float64, ok bool) {
	return number(report, `(\d+) requests in`), number(report, `Non-2xx or 3xx responses: (\d+)`), !strings.Contains(report, "Socket errors")
}

// h2load returns the command for an HTTP/2 load.
func (b *bench) h2load(l load) []string {
	args := []string{"h2load", "-t1", fmt.Sprintf("-c%d", l.conns), fmt.Sprintf("-m%d", l.streams), fmt.Sprintf("-D%.0f", length.Seconds())}
	if l.upload > 0 {
		args = append(args, "-d", b.write("upload", strings.Repeat("x", l.upload)))
	}
	return args
}

// countH2load is countWrk for h2load's report. Requests in flight at the end of a round are not errors.
func countH2load(report string) (n, refused float64, ok bool) {
	refused = number(report, `(\d+) 4xx`)
	return refused + number(report, `(\d+) 2xx`), refused, number(report, `(\d+) 5xx`)+number(report, `(\d+) timeout`) == 0
}

// number returns the number that pattern's group matches in text, or 0.
func number(text, pattern string) float64 {
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.ParseFloat(m[1], 64)
	return n
}

// loadCores are all cores but the first one.
var loadCores = fmt.Sprintf("1-%d", runtime.NumCPU()-1)

// pinned returns a command that runs on these cores.
func pinned(cores string, args ...string) *exec.Cmd {
	return exec.Command("taskset", append([]string{"-c", cores}, args...)...)
}

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}
