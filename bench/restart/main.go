// Command restart restarts every node of a PoP, one after the other, under load, and counts failed
// requests and lost mitigations. The PoP is three nodes, a memcached, and HAProxy with
// deploy/front.cfg, whose health checks decide which nodes get connections. Clients reuse
// connections, and send requests that must not be sent twice.
//
//	go build -o /tmp/edge ./cmd/edge && cd bench && go run ./restart -edge /tmp/edge
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
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

const (
	count = 3
	rules = `rules:
  - {id: all, match: {paths: [/]}, characteristics: [ip], limits: [{threshold: 1000000000, period: 1m}]}
  - {id: once, match: {paths: [/once]}, characteristics: [header:x-api-key], limits: [{threshold: 1, period: 1h}], mitigation_timeout: 1h}
`
)

var (
	edge      = flag.String("edge", "edge", "the `binary`")
	front     = flag.String("front", "../deploy/front.cfg", "HAProxy's configuration")
	rounds    = flag.Int("rounds", 3, "restarts of each node")
	clients   = flag.Int("clients", 16, "clients, with one connection each")
	pause     = flag.Duration("pause", 5*time.Millisecond, "pause of the first client between requests; the ith pauses i times as long")
	mitigated = flag.Int("mitigated", 100, "mitigations that must not be lost")
)

// A node is a process of the PoP.
type node struct {
	name, http, metrics string
	args                []string
	cmd                 *exec.Cmd
}

func (n *node) start() {
	n.cmd = exec.Command(*edge, n.args...)
	n.cmd.Stderr = os.Stderr
	harness.Check(n.cmd.Start())
	harness.WaitForReady(n.metrics)
}

// stop stops the node as an operator would, and returns how long that took.
func (n *node) stop() time.Duration {
	start := time.Now()
	harness.Check(n.cmd.Process.Signal(syscall.SIGTERM))
	if err := n.cmd.Wait(); err != nil {
		log.Printf("%s: %v", n.name, err)
	}
	return time.Since(start)
}

func main() {
	log.SetFlags(0)
	flag.Parse()
	if !harness.Measure(measure, func(f string) { log.Print(f) }) {
		os.Exit(1)
	}
}

func measure() bool {
	dir, err := os.MkdirTemp("", "restart")
	harness.Check(err)
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel() // ends the processes
	for name, text := range map[string]string{"rules.yaml": rules, "secret": "a secret of the benchmark"} {
		harness.Check(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer origin.Close()
	shard := harness.FreeAddr()
	harness.Check(exec.CommandContext(ctx, "memcached", "-l", "127.0.0.1", "-p", shard[strings.LastIndexByte(shard, ':')+1:], "-U", "0", "-u", "root").Start())
	harness.WaitFor(shard)

	addrs := harness.FreeAddrs(3*count + 2)
	gossip, pop, health := addrs[:count], addrs[3*count], addrs[3*count+1]
	var nodes []*node
	for i := range count {
		n := &node{name: fmt.Sprint("edge-", i+1), http: addrs[count+i], metrics: addrs[2*count+i]}
		n.args = []string{"node", "--name", n.name, "--rules", dir + "/rules.yaml", "--secret-file", dir + "/secret", "--origin", origin.URL,
			"--shard", shard, "--listen", n.http, "--metrics-listen", n.metrics, "--admin-listen", "", "--proxy-protocol", "--trusted-proxy", "127.0.0.1",
			"--gossip-listen", gossip[i], "--join", strings.Join(gossip, ","), "--log-level", "error"}
		n.start()
		defer func() { _ = n.cmd.Process.Kill() }()
		nodes = append(nodes, n)
	}
	startFront(ctx, dir, nodes, pop, health)

	url := "http://" + pop
	for i := range *mitigated {
		harness.Eventually("a mitigation", func() bool { return once(url, i) == http.StatusTooManyRequests })
	}
	var l load
	l.start(url)
	lost, longest := 0, time.Duration(0)
	for range *rounds {
		for _, n := range nodes {
			longest = max(longest, n.stop())
			n.start()
			for i := range *mitigated {
				// This node must refuse from memory.
				if once("http://"+n.http, i) != http.StatusTooManyRequests {
					lost++
				}
			}
			time.Sleep(3 * time.Second) // for the front's health checks
		}
	}
	l.end()
	fmt.Printf("%d restarts under load by %d connections: %d of %d requests failed; %d connections were made\n",
		*rounds*count, *clients, l.failed.Load(), l.sent.Load(), l.dials.Load())
	fmt.Printf("%d of %d mitigations were not known to a node that was ready again; the longest stop took %v\n", lost, *rounds*count**mitigated, longest.Round(10*time.Millisecond))
	return l.failed.Load() == 0 && lost == 0
}

// aServer is a line of the front's configuration.
var aServer = regexp.MustCompile(`(?m)^(\s*server (edge-\d+)) \S+$`)

// startFront starts HAProxy on free addresses.
func startFront(ctx context.Context, dir string, nodes []*node, pop, health string) {
	text, err := os.ReadFile(*front)
	harness.Check(err)
	config := strings.Replace(string(text), "bind :8080", "bind "+pop, 1)
	config = strings.Replace(config, "bind 127.0.0.1:8404", "bind "+health, 1)
	config = aServer.ReplaceAllStringFunc(config, func(line string) string {
		m := aServer.FindStringSubmatch(line)
		for _, n := range nodes {
			if n.name == m[2] {
				return m[1] + " " + n.http + " port " + n.metrics[strings.LastIndexByte(n.metrics, ':')+1:]
			}
		}
		return ""
	})
	harness.Check(os.WriteFile(dir+"/front.cfg", []byte(config), 0o600))
	cmd := exec.CommandContext(ctx, "haproxy", "-f", dir+"/front.cfg")
	harness.Check(cmd.Start())
	harness.WaitFor(pop)
}

// once sends one request that must not be repeated, and returns the status.
func once(url string, client int) int {
	r, err := http.NewRequest("GET", url+"/once", nil)
	harness.Check(err)
	r.Header.Set("X-Api-Key", fmt.Sprint(client))
	r.Header.Set("X-Forwarded-For", "192.0.2.1") // otherwise, it counts as a health check, and nodes pass some of those
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp.StatusCode
}

// A load sends requests while nodes are restarted.
type load struct {
	sent, failed, dials atomic.Int64
	stop                chan struct{}
	running             sync.WaitGroup
}

func (l *load) start(url string) {
	l.stop = make(chan struct{})
	for i := range *clients {
		l.running.Go(func() {
			transport := http.DefaultTransport.(*http.Transport).Clone()
			dial := transport.DialContext
			transport.DialContext = func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
				l.dials.Add(1)
				return dial(ctx, network, addr)
			}
			client := &http.Client{Transport: transport}
			tick := time.NewTicker(*pause * time.Duration(i+1))
			defer tick.Stop()
			for {
				select {
				case <-l.stop:
					return
				case <-tick.C:
				}
				l.sent.Add(1)
				// A client does not repeat a POST whose connection has ended.
				resp, err := client.Post(url, "", http.NoBody)
				if err != nil {
					l.failed.Add(1)
					log.Print(err)
					continue
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					l.failed.Add(1)
					log.Print(resp.Status)
				}
			}
		})
	}
}

func (l *load) end() {
	close(l.stop)
	l.running.Wait()
}
