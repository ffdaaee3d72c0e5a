// Command subwindows compares a PoP of three nodes that counts in whole windows with one that
// counts in sub-windows, alternately, under the same traffic: how many decisions differ from those of
// an exact log and why, how many operations memcached does per request, and the CPU time of a node.
// It needs memcached.
//
//	go build -o /tmp/edge ./cmd/edge && cd bench && go run ./subwindows -edge /tmp/edge
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

// mix is traffic near a threshold of 60 in 12 s, mostly in bursts: 450 requests per second from
// 1,070 clients, times the scale.
const mix = `
duration: 1h
components:
- name: people
  zipf: {clients: %d, rate: %d/s, exponent: 1, offset: %d}
- name: on-off
  on_off: {clients: %d, rate: 15/s, on: 5s, off: 11s}
  attack: true
- name: edges
  boundary: {clients: %d, requests: 70, period: 12s, width: 6s}
  attack: true
- name: just-above
  steady: {clients: %[5]d, rate: 64/12s, poisson: true}
  attack: true
`

var (
	edge     = flag.String("edge", "edge", "the `binary`")
	duration = flag.Duration("duration", 2*time.Minute, "length of a run")
	pairs    = flag.Int("pairs", 2, "runs of each kind, alternating")
	scale    = flag.Int("scale", 1, "factor for the number of clients")
	nodes    = flag.Int("nodes", 3, "nodes")
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	dir, err := os.MkdirTemp("", "subwindows")
	harness.Check(err)
	defer os.RemoveAll(dir)
	harness.Check(os.WriteFile(filepath.Join(dir, "mix.yaml"), fmt.Appendf(nil, mix, *scale*1000, *scale*150, *scale*100, *scale*30, *scale*20), 0o644))
	origin, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	go func() {
		log.Print(http.Serve(origin, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })))
	}()
	fmt.Println("sub_windows  requests  refused  wrong %  by estimate  by lag  unexplained  operations/request  CPU µs/request  faults")
	var ratios []float64
	for i := range *pairs {
		cpu := map[string]float64{}
		kinds := []string{"1", "auto"}
		if i%2 == 1 {
			slices.Reverse(kinds)
		}
		for _, subWindows := range kinds {
			cpu[subWindows] = run(dir, "http://"+origin.Addr().String(), subWindows)
		}
		ratios = append(ratios, cpu["auto"]/cpu["1"])
	}
	slices.Sort(ratios)
	fmt.Printf("CPU with sub-windows / without, by pair: minimum %.3f, median %.3f, maximum %.3f\n", ratios[0], ratios[len(ratios)/2], ratios[len(ratios)-1])
}

// run measures one PoP, and returns its CPU time per request, in microseconds.
func run(dir, origin, subWindows string) float64 {
	rules := filepath.Join(dir, "rules.yaml")
	harness.Check(os.WriteFile(rules, fmt.Appendf(nil, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 60, period: 12s, sub_windows: %s}]}]\n", subWindows), 0o644))
	addrs := harness.FreeAddrs(1 + 2**nodes)
	_, port, err := net.SplitHostPort(addrs[0])
	harness.Check(err)
	args := []string{"-l", "127.0.0.1", "-p", port, "-U", "0"}
	if os.Geteuid() == 0 {
		args = append(args, "-u", "root")
	}
	memcached := exec.Command("memcached", args...)
	harness.Check(memcached.Start())
	harness.WaitFor(addrs[0])
	var running []*exec.Cmd
	targets := make([]string, 0, *nodes)
	for i := range *nodes {
		node := exec.Command(*edge, "node", "--name", fmt.Sprint("n", i+1), "--secret", "a secret of the benchmark", "--rules", rules, "--origin", origin,
			"--shard", addrs[0], "--listen", addrs[1+2*i], "--metrics-listen", "", "--admin-listen", "", "--trusted-proxy", "127.0.0.0/8", "--node-header", "X-Edge-Node",
			"--gossip-listen", addrs[2+2*i], "--join", addrs[2], "--log-level", "error")
		node.Stderr = os.Stderr
		harness.Check(node.Start())
		running = append(running, node)
		targets = append(targets, "http://"+addrs[1+2*i])
	}
	for i := range *nodes {
		harness.WaitFor(addrs[1+2*i])
	}
	time.Sleep(time.Second) // for the nodes to find each other
	before := operations(addrs[0])
	load := exec.Command(*edge, append([]string{"load", "--mix", filepath.Join(dir, "mix.yaml"), "--duration", duration.String(), "--rules", rules, "--come-back=false", "--json", "--connections", "24"}, targets...)...)
	load.Stderr = os.Stderr
	out, err := load.Output()
	if len(out) == 0 {
		harness.Check(err)
	}
	ops := operations(addrs[0]) - before
	var cpu time.Duration
	for _, node := range running {
		harness.Check(node.Process.Signal(syscall.SIGTERM))
	}
	for _, node := range running {
		_ = node.Wait()
		cpu += node.ProcessState.UserTime() + node.ProcessState.SystemTime()
	}
	harness.Check(memcached.Process.Signal(syscall.SIGTERM))
	_ = memcached.Wait()
	return report(out, subWindows, ops, cpu)
}

// operations returns the number of operations that memcached reports.
func operations(addr string) (sum int) {
	conn, err := net.Dial("tcp", addr)
	harness.Check(err)
	defer conn.Close()
	fmt.Fprint(conn, "stats\r\n")
	counted := map[string]bool{"cmd_get": true, "cmd_set": true, "incr_hits": true, "incr_misses": true}
	for lines := bufio.NewScanner(conn); lines.Scan() && lines.Text() != "END"; {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && counted[fields[1]] {
			n, err := strconv.Atoi(fields[2])
			harness.Check(err)
			sum += n
		}
	}
	return sum
}

// report prints a line of the table, and returns its CPU time.
func report(out []byte, subWindows string, ops int, cpu time.Duration) float64 {
	type disagreement struct{ Requests, Estimate, Lag, Unexplained float64 }
	var r struct {
		Sending struct{ Requests float64 }
		Score   struct {
			Refused        float64
			WronglyRefused disagreement `json:"wrongly_refused"`
			WronglyAllowed disagreement `json:"wrongly_allowed"`
			Faults         []struct{ Name string }
		} `json:"score"`
	}
	harness.Check(json.Unmarshal(out, &r))
	a, b := r.Score.WronglyRefused, r.Score.WronglyAllowed
	pct := func(n float64) float64 { return 100 * n / r.Sending.Requests }
	var faults []string
	for _, f := range r.Score.Faults {
		faults = append(faults, f.Name)
	}
	each := float64(cpu.Microseconds()) / r.Sending.Requests
	fmt.Printf("%-11s  %8.0f  %7.0f  %7.3f  %11.3f  %6.3f  %11.3f  %18.4f  %14.1f  %v\n", subWindows, r.Sending.Requests, r.Score.Refused,
		pct(a.Requests+b.Requests), pct(a.Estimate+b.Estimate), pct(a.Lag+b.Lag), pct(a.Unexplained+b.Unexplained),
		float64(ops)/r.Sending.Requests, each, faults)
	return each
}
