// Command gossip measures the cost of gossip: the CPU time and the bytes of a node while nothing happens, and of each
// mitigation that a node learns of. All nodes run in this process, with a key. Run it in a network namespace of its own,
// because it counts all bytes on the loopback interface.
//
//	cd bench && go build -o /tmp/bench . && sudo unshare -n sh -c 'ip link set lo up; /tmp/bench gossip'
package main

import (
	"crypto/rand"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/bench/harness"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/gossip"
)

// statusSize is the length of the status of a node that considers no shard down.
const statusSize = 76

var (
	length = flag.Duration("length", 5*time.Second, "length of a measurement")
	rounds = flag.Int("rounds", 5, "measurements of each kind")
	rate   = flag.Int("rate", 200, "mitigations per second that start in the PoP")
	sizes  = flag.String("nodes", "2,4,8", "sizes of the PoP")
)

// received counts the mitigations that all nodes have received.
var received atomic.Int64

// start starts count nodes, and waits until each knows all others.
func start(count int) (nodes []*gossip.Gossip) {
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	addrs := harness.FreeAddrs(count)
	for i, addr := range addrs {
		g, err := gossip.New(gossip.Options{
			Name: fmt.Sprint("edge-", i), Listen: addr, Join: addrs[:1], Keys: [][]byte{key}, MaxNodes: count,
			Logger: slog.New(slog.DiscardHandler),
		})
		harness.Check(err)
		harness.Check(g.Start(gossip.Handler{
			Receive:       func(string, []byte, time.Duration) error { received.Add(1); return nil },
			Status:        func() []byte { return make([]byte, statusSize) },
			ReceiveStatus: func(string, []byte, bool) error { return nil },
		}, nil))
		nodes = append(nodes, g)
	}
	harness.Eventually("the nodes to find each other", func() bool {
		return !slices.ContainsFunc(nodes, func(g *gossip.Gossip) bool { return len(g.Peers()) < count-1 })
	})
	time.Sleep(2 * time.Second)
	return nodes
}

// A cost is the CPU time and the traffic of all nodes in some time.
type cost struct {
	cpu   time.Duration
	bytes int64 // sent
	got   int64 // mitigations
}

// sent returns how many bytes were sent over the loopback interface.
func sent() (bytes int64) {
	text, err := os.ReadFile("/proc/net/dev")
	harness.Check(err)
	_, lo, _ := strings.Cut(string(text), "lo:")
	_, err = fmt.Sscan(lo, &bytes)
	harness.Check(err)
	return bytes
}

// measure returns the cost of a duration in which mitigations start at this rate.
func measure(nodes []*gossip.Gossip, rate int) cost {
	message := make([]byte, mitigation.SentSize)
	before := cost{harness.OwnCPU(), sent(), received.Load()}
	began := time.Now()
	for started := 0; time.Since(began) < *length; time.Sleep(time.Millisecond) {
		for ; started < int(time.Since(began).Seconds()*float64(rate)); started++ {
			nodes[started%len(nodes)].Send(message)
		}
	}
	return cost{harness.OwnCPU() - before.cpu, sent() - before.bytes, received.Load() - before.got}
}

func main() {
	log.SetFlags(0)
	flag.Parse()
	fmt.Println("| nodes | a node: CPU ms/s | KB/s | a mitigation at one node: CPU µs | bytes |\n|--:|--:|--:|--:|--:|")
	for size := range strings.SplitSeq(*sizes, ",") {
		count, err := strconv.Atoi(size)
		harness.Check(err)
		nodes := start(count)
		var all [4][]float64
		for range *rounds {
			quiet, loud := measure(nodes, 0), measure(nodes, *rate)
			each := length.Seconds() * float64(count)
			for i, value := range []float64{
				quiet.cpu.Seconds() * 1e3 / each, float64(quiet.bytes) / 1e3 / each,
				float64((loud.cpu - quiet.cpu).Microseconds()) / float64(loud.got), float64(loud.bytes-quiet.bytes) / float64(loud.got),
			} {
				all[i] = append(all[i], value)
			}
		}
		fmt.Printf("| %d | %.1f | %.1f | %.1f | %.0f |\n", count, harness.Median(all[0]), harness.Median(all[1]), harness.Median(all[2]), harness.Median(all[3]))
		for _, g := range nodes {
			g.Stop()
		}
	}
}
