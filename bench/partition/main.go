// Command partition cuts a PoP of five nodes into two and three, starts and lifts
// mitigations on both sides, heals the network, and measures how long it takes until all
// nodes hold the same records. Each node is a process in its own network namespace, on bridges;
// only gossip connects them. It must run as root, and needs ip and curl.
//
//	go build -o /tmp/edge ./cmd/edge && cd bench && sudo go run ./partition -edge /tmp/edge -for 30s
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

const (
	count = 5
	left  = 2 // nodes on one side
	each  = 20
)

// Two rules: the mitigations of one last, those of the other end while the network is cut.
const rules = `rules:
  - {id: long, match: {paths: [/long]}, characteristics: [ip], limits: [{threshold: 1, period: 1s}], mitigation_timeout: 2h}
  - {id: short, match: {paths: [/short]}, characteristics: [ip], limits: [{threshold: 1, period: 1s}], mitigation_timeout: 10s}
`

var (
	edge   = flag.String("edge", "edge", "the `binary`")
	length = flag.Duration("for", 30*time.Second, "how long the network is cut")
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	if !harness.Measure(measure, func(f string) { log.Print(f) }) {
		os.Exit(1)
	}
}

// network connects the nodes.
var network = harness.Network{Size: count}

func measure() bool {
	dir, err := os.MkdirTemp("", "partition")
	harness.Check(err)
	defer os.RemoveAll(dir)
	harness.Check(os.WriteFile(dir+"/rules.yaml", []byte(rules), 0o600))
	harness.Check(os.WriteFile(dir+"/secret", []byte("a secret of the benchmark"), 0o600))
	harness.Check(os.WriteFile(dir+"/keys", []byte("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n"), 0o600))
	defer network.Up()()
	var nodes []*exec.Cmd
	defer func() {
		for _, n := range nodes {
			_ = n.Process.Signal(syscall.SIGTERM)
			_ = n.Wait()
		}
	}()
	for i := range count {
		nodes = append(nodes, start(dir, i))
	}
	harness.Eventually("the nodes to find each other", func() bool { return peers() })

	// Start mitigations, some of which are lifted on either side while the network is cut.
	for i := range each {
		attack(0, "/long", fmt.Sprintf("192.0.2.%d", i))
	}
	harness.Eventually("all nodes to know the mitigations from before the cut", same)

	network.Cut(left)
	cut := time.Now()
	for i := range each {
		attack(0, "/long", fmt.Sprintf("198.51.100.%d", i))
		attack(count-1, "/long", fmt.Sprintf("203.0.113.%d", i))
		attack(1, "/short", fmt.Sprintf("198.51.100.%d", i))
	}
	for i := range each / 2 {
		lift(dir, 0, fmt.Sprintf("192.0.2.%d", i))
		lift(dir, count-1, fmt.Sprintf("192.0.2.%d", each-1-i))
	}
	log.Printf("cut into %d and %d nodes, with %d mitigations before, %d started and %d lifted on each side", left, count-left, each, each, each/2)
	time.Sleep(time.Until(cut.Add(*length)))
	if same() {
		panic(harness.Failure("the sides know of each other while they are cut"))
	}
	network.Heal(left)
	healed := time.Now()
	harness.Eventually("the nodes to have the same records", same)
	fmt.Printf("cut for %v: equal %v after healing\n", *length, time.Since(healed).Round(10*time.Millisecond))

	active, lifted := 0, 0
	for _, r := range records(0) {
		if r.Lifted {
			lifted++
		} else {
			active++
		}
	}
	fmt.Printf("%d records mitigate, want %d; %d are lifts, want %d\n", active, 2*each, lifted, each)
	return active == 2*each && lifted == each
}

// start starts the ith node, which joins the first.
func start(dir string, i int) *exec.Cmd {
	cmd := network.Command(i, *edge, "node", "--name", network.Name(i), "--rules", dir+"/rules.yaml", "--secret-file", dir+"/secret",
		"--origin", "http://127.0.0.1:1", "--listen", "127.0.0.1:8080", "--trusted-proxy", "127.0.0.1",
		"--gossip-listen", network.IP(i)+":7946", "--gossip-key-file", filepath.Join(dir, "keys"), "--join", network.IP(0)+":7946", "--log-level", "error")
	cmd.Stderr = os.Stderr
	cmd.Env = ofNode(dir, i)
	harness.Check(cmd.Start())
	harness.Eventually("a node to run", func() bool { _, err := curl(i, "http://127.0.0.1:9180/livez"); return err == nil })
	return cmd
}

// ofNode returns the environment of the ith node and its commands: in their namespaces, all nodes have the
// same address, by which commands look for their token.
func ofNode(dir string, i int) []string {
	return append(os.Environ(), fmt.Sprintf("RUNTIME_DIRECTORY=%s/run-%d", dir, i))
}

// curl asks the ith node, from its own namespace.
func curl(i int, args ...string) ([]byte, error) {
	return network.Command(i, "curl", append([]string{"-sf"}, args...)...).Output()
}

// attack sends requests for a client until it is mitigated.
func attack(i int, path, client string) {
	harness.Eventually("a mitigation", func() bool {
		out, _ := network.Command(i, "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", "X-Forwarded-For: "+client,
			"http://127.0.0.1:8080"+path).Output()
		return string(out) == "429"
	})
}

func lift(dir string, i int, client string) {
	cmd := network.Command(i, *edge, "mitigations", "lift", "rule=long,ip="+client)
	cmd.Env = ofNode(dir, i)
	harness.Run(cmd)
}

// A record holds the properties of a mitigation that all nodes must agree on.
type record struct {
	Key    string
	Start  time.Time
	Lifted bool
}

func records(i int) []record {
	out, err := curl(i, "http://127.0.0.1:9190/api/v1/mitigations?limit=1000")
	harness.Check(err)
	var answer struct{ Mitigations []record }
	harness.Check(json.Unmarshal(out, &answer))
	slices.SortFunc(answer.Mitigations, func(a, b record) int { return cmp.Compare(a.Key, b.Key) })
	return answer.Mitigations
}

// same reports whether all nodes have the same records.
func same() bool {
	first := records(0)
	for i := 1; i < count; i++ {
		if !slices.Equal(records(i), first) {
			return false
		}
	}
	return true
}

// peers reports whether each node knows all others.
func peers() bool {
	for i := range count {
		out, err := curl(i, "http://127.0.0.1:9180/metrics")
		if err != nil || !strings.Contains(string(out), fmt.Sprintf("\nedge_gossip_nodes %d\n", count)) {
			return false
		}
	}
	return true
}
