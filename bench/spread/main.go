// Command spread measures how long a mitigation that starts on one node of a PoP takes to reach the
// others. Each node is a process in its own network namespace; only gossip connects them, and may
// lose packets, including those of TCP. Times are those of the nodes' log lines, by the machine's
// clock. It must run as root, and needs ip, curl, and nft to lose packets.
//
//	go build -o /tmp/edge ./cmd/edge && cd bench && sudo go run ./spread -edge /tmp/edge -loss 30
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

const (
	rules = `rules:
  - {id: all, characteristics: [ip], limits: [{threshold: 1, period: 1s}], mitigation_timeout: 2h}
`
	// after is how long a mitigation may take to reach a node before it counts as missing.
	after = 2 * time.Second
)

var (
	edge  = flag.String("edge", "edge", "the `binary`")
	nodes = flag.Int("nodes", 8, "nodes")
	count = flag.Int("count", 10000, "mitigations")
	rate  = flag.Int("rate", 200, "mitigations per second")
	loss  = flag.Int("loss", 0, "packets to lose between nodes, in `percent`")
	drive = flag.Bool("drive", false, "send requests of clients read from standard input to the local node (internal)")
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	if *drive {
		driveNode(os.Stdin)
		return
	}
	if !harness.Measure(measure, func(f string) { log.Print(f) }) {
		os.Exit(1)
	}
}

// driveNode sends two requests for each client that it reads: one too many.
func driveNode(clients io.Reader) {
	for lines := bufio.NewScanner(clients); lines.Scan(); {
		for range 2 {
			r, err := http.NewRequest("GET", "http://127.0.0.1:8080/", nil)
			harness.Check(err)
			r.Header.Set("X-Forwarded-For", lines.Text())
			resp, err := http.DefaultClient.Do(r)
			harness.Check(err)
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}
}

// A spread is the spread of one mitigation.
type spread struct {
	node    int // where it started
	started time.Time
	learned map[int]time.Time // by node
}

// spreads are those of all mitigations, by key.
type spreads struct {
	mu    sync.Mutex // guards the fields below
	of    map[string]*spread
	lost  int // nodes declared dead that had not left
	until time.Time
}

func (s *spreads) at(key string) *spread {
	if s.of[key] == nil {
		s.of[key] = &spread{node: -1, learned: map[int]time.Time{}}
	}
	return s.of[key]
}

// read reads the log of the ith node.
func (s *spreads) read(i int, stderr io.Reader) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		var line struct {
			Time     time.Time
			Msg, Key string
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			log.Printf("%s", lines.Text())
			continue
		}
		s.mu.Lock()
		switch line.Msg {
		case "mitigation started":
			s.at(line.Key).node, s.at(line.Key).started = i, line.Time
		case "mitigation learned":
			s.at(line.Key).learned[i] = line.Time
		case "node failed: it no longer answers":
			if s.until.IsZero() {
				s.lost++
			}
		}
		s.mu.Unlock()
	}
}

// network connects the nodes.
var network harness.Network

func measure() bool {
	network = harness.Network{Size: *nodes}
	dir, err := os.MkdirTemp("", "spread")
	harness.Check(err)
	defer os.RemoveAll(dir)
	for name, text := range map[string]string{"rules.yaml": rules, "secret": "a secret of the benchmark", "keys": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n"} {
		harness.Check(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	defer network.Up()()
	s := &spreads{of: map[string]*spread{}}
	var running []*exec.Cmd
	var reading sync.WaitGroup
	defer reading.Wait()
	defer func() {
		for _, n := range running {
			_ = n.Process.Signal(syscall.SIGTERM)
		}
	}()
	var drivers []*driver
	for i := range *nodes {
		n := network.Command(i, *edge, "node", "--name", network.Name(i), "--rules", dir+"/rules.yaml", "--secret-file", dir+"/secret",
			"--origin", "http://127.0.0.1:1", "--listen", "127.0.0.1:8080", "--trusted-proxy", "127.0.0.1", "--log-level", "debug", "--log-format", "json",
			"--gossip-listen", network.IP(i)+":7946", "--gossip-key-file", dir+"/keys", "--join", network.IP(0)+":7946")
		stderr, err := n.StderrPipe()
		harness.Check(err)
		harness.Check(n.Start())
		running = append(running, n)
		reading.Go(func() {
			s.read(i, stderr)
			_ = n.Wait() // stopped by a signal
		})
		drivers = append(drivers, startDriver(i))
	}
	harness.Eventually("the nodes to find each other", peers)
	if *loss > 0 {
		network.Lose(*loss)
		time.Sleep(after) // the first losses are part of what is measured
	}
	before := totals()

	tick := time.NewTicker(time.Second / time.Duration(*rate))
	for i := range *count {
		<-tick.C
		_, err := fmt.Fprintf(drivers[i%*nodes].clients, "10.%d.%d.%d\n", i>>16, i>>8&255, i&255)
		harness.Check(err)
	}
	for _, d := range drivers {
		_ = d.clients.Close()
		harness.Check(d.cmd.Wait())
	}
	time.Sleep(2 * after)
	s.report()
	for name, was := range before {
		if more := totals()[name] - was; more != 0 {
			fmt.Printf("%v %s\n", more, name)
		}
	}
	return true
}

// A driver sends requests to one node.
type driver struct {
	cmd     *exec.Cmd
	clients io.WriteCloser // clients to send for; closing it ends the driver
}

// startDriver starts the driver of the ith node.
func startDriver(i int) *driver {
	self, err := os.Executable()
	harness.Check(err)
	d := &driver{cmd: network.Command(i, self, "-drive")}
	d.cmd.Stderr = os.Stderr
	d.clients, err = d.cmd.StdinPipe()
	harness.Check(err)
	harness.Check(d.cmd.Start())
	return d
}

func (s *spreads) report() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Now()
	var took []time.Duration
	started, missing, never := 0, 0, 0
	for _, one := range s.of {
		if one.node < 0 {
			panic(harness.Failure("a node learned of a mitigation that no node started"))
		}
		started++
		incomplete := false
		for i := range *nodes {
			at, ok := one.learned[i]
			switch {
			case i == one.node:
				continue
			case !ok:
				never++
			default:
				// The line is written after the record was sent.
				took = append(took, max(0, at.Sub(one.started)))
			}
			incomplete = incomplete || !ok || at.Sub(one.started) > after
		}
		if incomplete {
			missing++
		}
	}
	slices.Sort(took)
	at := func(part float64) time.Duration {
		return took[int(part*float64(len(took)-1))].Round(100 * time.Microsecond)
	}
	fmt.Printf("%d nodes, %d mitigations at %d a second, %d%% of packets lost\n", *nodes, started, *rate, *loss)
	fmt.Printf("on another node after: p50 %v, p99 %v, p99.9 %v, longest %v\n", at(0.5), at(0.99), at(0.999), at(1))
	fmt.Printf("not everywhere after %v: %d of %d; %d copies never arrived; live nodes were declared dead %d times\n", after, missing, started, never, s.lost)
}

// scrape returns the ith node's metrics.
func scrape(i int) string {
	out, _ := network.Command(i, "curl", "-sf", "http://127.0.0.1:9180/metrics").Output()
	return string(out)
}

// peers reports whether each node knows all others.
func peers() bool {
	for i := range *nodes {
		if !strings.Contains(scrape(i), fmt.Sprintf("\nedge_gossip_nodes %d\n", *nodes)) {
			return false
		}
	}
	return true
}

// totals returns the sums of the nodes' gossip metrics.
func totals() map[string]float64 {
	sums := map[string]float64{}
	for i := range *nodes {
		for line := range strings.Lines(scrape(i)) {
			var name string
			var value float64
			if n, _ := fmt.Sscan(line, &name, &value); n == 2 && strings.HasPrefix(name, "edge_gossip_") && strings.Contains(name, "_total") {
				sums[name] += value
			}
		}
	}
	return sums
}
