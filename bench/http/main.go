// Command http compares a node, with each of its HTTP/1.1 engines, with nginx and HAProxy as
// reverse proxies that refuse or pass every request: CPU time per request of the server process,
// user and system, on one core, under the same load from wrk over keep-alive connections. The
// servers take turns, so that a drift of the machine cancels out.
//
//	go build -o /tmp/edge ./cmd/edge && cd bench && go run ./http -edge /tmp/edge
//
// It needs nginx, haproxy, wrk, taskset, and two cores: servers run on the first one, load and origin
// on the others.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
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
	rounds = flag.Int("rounds", 5, "turns of each server")
	length = flag.Duration("length", 3*time.Second, "length of a turn, whole seconds")
	only   = flag.String("only", "", "run the cases that match this `regexp`")
)

// A load is the requests of a case, which are all refused or all pass.
type load struct {
	name   string
	refuse bool
	path   string
	upload int // bytes of the body
	conns  int
	tls    bool
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
}

func main() {
	log.SetFlags(0)
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

	fmt.Printf("CPU µs per request (medians of %d turns of %v), and the own engine's as a multiple of nginx's (median of the pairs)\n\n", *rounds, *length)
	fmt.Println("| | nginx | HAProxy | own | net/http | own/nginx |\n|---|--:|--:|--:|--:|--:|")
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
			used := b.turn(s, l)
			if round > 0 { // the first one warms up
				cpu[i] = append(cpu[i], used)
			}
		}
	}
	ratios := make([]float64, *rounds)
	for i := range ratios {
		ratios[i] = cpu[2][i] / cpu[0][i]
	}
	fmt.Printf("| %s |", l.name)
	for i := range servers {
		fmt.Printf(" %.1f |", median(cpu[i]))
	}
	fmt.Printf(" %.2f |\n", median(ratios))
}

var (
	requestsOf = regexp.MustCompile(`(\d+) requests in`)
	otherThan2 = regexp.MustCompile(`Non-2xx or 3xx responses: (\d+)`)
)

// turn loads a server, and returns its CPU time per request in microseconds. It checks that all
// answers are as expected.
func (b *bench) turn(s *server, l load) float64 {
	url := "http://" + s.addr
	if l.tls {
		url = "https://" + s.tls
	}
	args := []string{"wrk", "-t1", fmt.Sprintf("-c%d", l.conns), fmt.Sprintf("-d%.0fs", length.Seconds())}
	if l.upload > 0 {
		script := filepath.Join(b.dir, "upload.lua")
		harness.Check(os.WriteFile(script, fmt.Appendf(nil, "wrk.method = \"POST\"\nwrk.body = string.rep(\"x\", %d)\n", l.upload), 0o600))
		args = append(args, "-s", script)
	}
	before := s.cpuTime()
	out, err := pinned(loadCores, append(args, url+l.path)...).CombinedOutput()
	harness.Check(err)
	used := s.cpuTime() - before
	m := requestsOf.FindSubmatch(out)
	if m == nil || string(m[1]) == "0" || strings.Contains(string(out), "Socket errors") {
		log.Fatalf("%s, %s: wrk reports\n%s", l.name, s.name, out)
	}
	n, _ := strconv.ParseFloat(string(m[1]), 64)
	refused := 0.0
	if m := otherThan2.FindSubmatch(out); m != nil {
		refused, _ = strconv.ParseFloat(string(m[1]), 64)
	}
	if l.refuse && refused < 0.99*n || !l.refuse && refused > 0 {
		log.Fatalf("%s, %s: %.0f of %.0f requests were refused", l.name, s.name, refused, n)
	}
	return used.Seconds() * 1e6 / n
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
