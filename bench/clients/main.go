// Command clients measures the cost of counting for requests that pass: the CPU time of the node
// for requests from 100,000 clients in turn, with existing or new counters, compared with those of a
// single client. The node has its own core, which wrk saturates, and counts
// in memcached.
//
//	go build -o /tmp/edge ./cmd/edge && cd bench && go build -o /tmp/clients ./clients && /tmp/clients -edge /tmp/edge
//
// It needs wrk, nginx, memcached and taskset.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

var (
	edge = flag.String("edge", "edge", "the `binary`")
	runs = flag.Int("runs", 5, "rounds of each; the report has medians and the worst")
	last = flag.Duration("for", 5*time.Second, "length of a round, whole seconds")
)

const (
	known = 100_000
	conns = 64

	nodeCore, otherCore = "0", "1"
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	harness.Main(func() {
		fmt.Printf("%s\n\n", harness.Machine("memcached", "nginx", "wrk"))
		fmt.Printf("CPU µs of the node for a request that passes, medians (and the worst) of %d rounds of %v, %d connections:\n\n", *runs, *last, conns)
		fmt.Println("| one client | 100,000 clients in turn | more | new clients | more |")
		fmt.Println("|--:|--:|--:|--:|--:|")
		measure()
	})
}

// measure prints the row. Each round is compared with a round of the single client right
// before it.
func measure() {
	b := startBench()
	defer b.end()
	b.send(known, 0, known)
	var single, many, more, fresh, moreFresh []float64
	for i := range *runs {
		one := b.round(1, 0)
		cost := b.round(known, i*known / *runs)
		single, many, more = append(single, one), append(many, cost), append(more, cost-one)
	}
	const all = 1 << 24 // number of addresses in 10.0.0.0/8
	next := known
	for range *runs {
		one := b.round(1, 0)
		before := b.origin.Requests()
		cost := b.round(all, next)
		next += b.origin.Requests() - before
		fresh, moreFresh = append(fresh, cost), append(moreFresh, cost-one)
	}
	fmt.Printf("| %s | %s | %s | %s | %s |\n", shown(single), shown(many), shown(more), shown(fresh), shown(moreFresh))
}

func shown(values []float64) string {
	return fmt.Sprintf("%.1f (%.1f)", harness.Median(values), slices.Max(values))
}

type bench struct {
	dir    string
	node   *harness.Process
	addr   string
	origin *harness.Origin
	end    func()
}

func startBench() *bench {
	dir, remove := harness.TempDir()
	b := &bench{dir: dir, addr: harness.FreeAddr(), origin: harness.StartOrigin(otherCore, dir)}
	memcached, shard := harness.Memcached(otherCore)
	rules, secret := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "secret")
	harness.Check(os.WriteFile(rules, []byte("rules: [{id: all, characteristics: [ip], limits: [{threshold: 1000000000, period: 1h}]}]\n"), 0o600))
	harness.Check(os.WriteFile(secret, []byte("a secret of the benchmark"), 0o600))
	b.node = harness.Start(nodeCore, *edge, "node", "--name", "bench", "--rules", rules, "--listen", b.addr, "--metrics-listen", "", "--admin-listen", "", "--origin", "http://"+b.origin.Addr,
		"--secret-file", secret, "--shard", shard, "--trusted-proxy", "127.0.0.0/8", "--log-level", "error")
	harness.WaitFor(b.addr)
	b.end = func() {
		b.node.End()
		b.origin.End()
		memcached.End()
		remove()
	}
	return b
}

// wrk starts wrk with requests of some clients in turn, from the nth on.
func (b *bench) wrk(clients, from int, lasts string) *harness.Process {
	script := filepath.Join(b.dir, "clients.lua")
	harness.Check(os.WriteFile(script, fmt.Appendf(nil, `local n = %d
request = function()
  n = (n + 1) %% %d
  wrk.headers["X-Forwarded-For"] = string.format("10.%%d.%%d.%%d", n / 65536, n / 256 %% 256, n %% 256)
  return wrk.format()
end
`, from, clients), 0o600))
	return harness.Start(otherCore, "wrk", "-t1", "-c", strconv.Itoa(conns), "-d", lasts, "-s", script, "http://"+b.addr+"/")
}

// send sends requests of clients in turn.
func (b *bench) send(clients, from, requests int) {
	before := b.origin.Requests()
	wrk := b.wrk(clients, from, "600s")
	for b.origin.Requests()-before < requests {
		time.Sleep(100 * time.Millisecond)
	}
	wrk.End()
}

// round returns the CPU time per request, in µs.
func (b *bench) round(clients, from int) float64 {
	before, used := b.origin.Requests(), b.node.CPU()
	b.wrk(clients, from, fmt.Sprintf("%.0fs", last.Seconds())).Wait()
	return (b.node.CPU() - used).Seconds() * 1e6 / float64(b.origin.Requests()-before)
}
