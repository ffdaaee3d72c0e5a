// Command shardloss measures what the loss of a shard costs requests that pass: nothing, if the
// request path touches no network. It runs a PoP of three nodes and three memcached, and compares
// consecutive runs of requests at one node in pairs: two undisturbed ones, whose difference is the
// machine's noise, and an undisturbed one with one right after a memcached was killed or stalled,
// or after all memcached and all other nodes were stalled.
//
//	go build -o /tmp/edge ./cmd/edge && cd bench && go run ./shardloss -edge /tmp/edge
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

const rules = `rules:
  - {id: all, characteristics: [ip], limits: [{threshold: 1000000, period: 1m}]}
`

var (
	edge     = flag.String("edge", "edge", "the `binary`")
	pairs    = flag.Int("pairs", 20, "pairs of runs")
	requests = flag.Int("requests", 4000, "requests in a run")
	conns    = flag.Int("conns", 4, "connections")
	clients  = flag.Int("clients", 1000, "clients that send the requests")
	lose     = flag.String("lose", "killed", "what to lose: `killed` or stalled, for one memcached, or everything: all memcached and all other nodes stalled")
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	dir, err := os.MkdirTemp("", "shardloss")
	harness.Check(err)
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel() // ends the processes
	file := filepath.Join(dir, "rules.yaml")
	harness.Check(os.WriteFile(file, []byte(rules), 0o600))
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello from the origin\n")
	}))
	defer origin.Close()

	var lost []process // one is lost per pair, in turn, or all are
	var shards []string
	for range 3 {
		m := &memcached{addr: harness.FreeAddr()}
		m.start(ctx)
		lost, shards = append(lost, m), append(shards, m.addr)
	}
	url, nodes := startNodes(ctx, dir, file, origin.URL, shards)
	if *lose == "everything" {
		lost = append(lost, nodes...)
	}

	run(url)                                      // warm up
	var undisturbed, disturbed [2][]time.Duration // of medians, of 99th percentiles
	for i := range *pairs {
		add(&undisturbed, run(url), run(url))
		these := lost[i%len(lost) : i%len(lost)+1]
		if *lose == "everything" {
			these = lost
		}
		// The order alternates, so that drift of the machine cancels out.
		var healthy result
		if i%2 == 0 {
			healthy = run(url)
		}
		for _, p := range these {
			p.lose(*lose != "killed")
		}
		lonely := run(url)
		for _, p := range these {
			p.regain(ctx, *lose != "killed")
		}
		settle(url)
		if i%2 == 1 {
			healthy = run(url)
		}
		add(&disturbed, lonely, healthy)
	}
	fmt.Printf("%d pairs of %d requests over %d connections, %d clients; lost: %s\n\n", *pairs, *requests, *conns, *clients, *lose)
	fmt.Printf("%-28s %12s %26s %12s\n", "difference in a pair", "median", "undisturbed: 10 … 90%", "no slower")
	for i, name := range []string{"median latency", "99th percentile"} {
		u, d := undisturbed[i], disturbed[i]
		slices.Sort(u)
		slices.Sort(d)
		low, high, median := u[len(u)/10], u[len(u)-1-len(u)/10], d[len(d)/2]
		fmt.Printf("%-28s %12v %12v … %11v %12t\n", name, median, low, high, median <= high)
	}
	fmt.Printf("\nmedian of undisturbed differences: %v, of 99th percentiles: %v\n", undisturbed[0][len(undisturbed[0])/2], undisturbed[1][len(undisturbed[1])/2])
	fmt.Printf("failed requests: %d of %d\n", failed.Load(), sent.Load())
	if failed.Load() > 0 {
		defer os.Exit(1)
	}
}

// A result is the median and the 99th percentile of a run.
type result [2]time.Duration

func add(to *[2][]time.Duration, a, b result) {
	for i := range to {
		to[i] = append(to[i], a[i]-b[i])
	}
}

var sent, failed atomic.Int64

// run sends the requests of a run, as fast as the connections allow.
func run(url string) result {
	latencies := make([][]time.Duration, *conns)
	var wg sync.WaitGroup
	for c := range *conns {
		wg.Go(func() {
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}
			defer client.CloseIdleConnections()
			for i := range *requests / *conns {
				r, err := http.NewRequest("GET", url, nil)
				harness.Check(err)
				n := (i*7 + c*131) % *clients
				r.Header.Set("X-Forwarded-For", fmt.Sprintf("10.0.%d.%d", n/256, n%256))
				start := time.Now()
				resp, err := client.Do(r)
				sent.Add(1)
				if err != nil {
					failed.Add(1)
					log.Print(err)
					continue
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				latencies[c] = append(latencies[c], time.Since(start))
				if resp.StatusCode != http.StatusOK {
					failed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	all := slices.Concat(latencies...)
	slices.Sort(all)
	return result{all[len(all)/2], all[len(all)*99/100]}
}

// settle waits until the backlog of a shard is sent and its breaker is closed.
func settle(url string) {
	time.Sleep(time.Second)
	run(url)
}

// A process is a memcached or a node, which can be lost.
type process interface {
	lose(stall bool)
	regain(ctx context.Context, stalled bool)
}

// startNodes starts three nodes that share the shards and gossip, and returns the URL of the
// first and the others.
func startNodes(ctx context.Context, dir, rules, origin string, shards []string) (url string, others []process) {
	secret := filepath.Join(dir, "secret")
	harness.Check(os.WriteFile(secret, []byte("a secret of the benchmark"), 0o600))
	addrs := harness.FreeAddrs(6)
	gossip := addrs[:3]
	for i, addr := range addrs[3:] {
		cmd := exec.CommandContext(ctx, *edge, "node", "--name", fmt.Sprint("n", i+1), "--rules", rules, "--origin", origin, "--listen", addr,
			"--metrics-listen", "", "--admin-listen", "", "--secret-file", secret, "--shard", strings.Join(shards, ","), "--trusted-proxy", "127.0.0.0/8",
			"--gossip-listen", gossip[i], "--join", strings.Join(gossip, ","), "--log-level", "error")
		cmd.Stderr = os.Stderr
		harness.Check(cmd.Start())
		harness.WaitFor(addr)
		if i == 0 {
			url = "http://" + addr + "/"
		} else {
			others = append(others, &node{cmd})
		}
	}
	return url, others
}

// A node is a peer of the measured node.
type node struct{ cmd *exec.Cmd }

func (n *node) lose(bool)                    { harness.Check(n.cmd.Process.Signal(syscall.SIGSTOP)) }
func (n *node) regain(context.Context, bool) { harness.Check(n.cmd.Process.Signal(syscall.SIGCONT)) }

// A memcached is one shard.
type memcached struct {
	addr string
	cmd  *exec.Cmd
}

func (m *memcached) start(ctx context.Context) {
	_, port, err := net.SplitHostPort(m.addr)
	harness.Check(err)
	m.cmd = exec.CommandContext(ctx, "memcached", "-l", "127.0.0.1", "-p", port, "-U", "0", "-u", "root")
	harness.Check(m.cmd.Start())
	harness.WaitFor(m.addr)
}

func (m *memcached) lose(stall bool) {
	if stall {
		harness.Check(m.cmd.Process.Signal(syscall.SIGSTOP))
		return
	}
	harness.Check(m.cmd.Process.Kill())
	_ = m.cmd.Wait()
}

func (m *memcached) regain(ctx context.Context, stall bool) {
	if stall {
		harness.Check(m.cmd.Process.Signal(syscall.SIGCONT))
		return
	}
	m.start(ctx)
}
