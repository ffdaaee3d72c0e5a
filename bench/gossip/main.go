// Command gossip measures what messages between the nodes of a PoP cost: the CPU time of each status, which
// every node sends to every other one four times a second, and of each mitigation that a node receives. All
// nodes run in this process, over the loopback interface, with a key.
//
//	cd bench && go run ./gossip
package main

import (
	"crypto/rand"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/bench/harness"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/gossip"
)

// statusSize is the length of the status of a node that considers no shard down.
const statusSize = 67

var (
	length = flag.Duration("length", 5*time.Second, "length of a measurement")
	rounds = flag.Int("rounds", 5, "measurements of each kind")
	rate   = flag.Int("rate", 200, "mitigations per second that start in the PoP")
)

// received and statuses count the mitigations and the statuses that all nodes have received.
var received, statuses atomic.Int64

// start starts count nodes, and waits until each has received the status of every other one.
func start(count int) (nodes []*gossip.Gossip) {
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	addrs := harness.FreeAddrs(count)
	for i, addr := range addrs {
		g, err := gossip.New(gossip.Options{
			Name: fmt.Sprint("edge-", i), Listen: addr, Join: addrs[:1], Keys: [][]byte{key},
			Logger: slog.New(slog.DiscardHandler),
		})
		harness.Check(err)
		harness.Check(g.Start(gossip.Handler{
			Receive:       func(string, []byte, time.Duration) error { received.Add(1); return nil },
			Status:        func() []byte { return make([]byte, statusSize) },
			ReceiveStatus: func(string, []byte) error { statuses.Add(1); return nil },
		}, nil))
		nodes = append(nodes, g)
	}
	for begun := statuses.Load(); statuses.Load()-begun < int64(4*count*(count-1)); {
		time.Sleep(100 * time.Millisecond)
	}
	return nodes
}

// idle returns the CPU time of a duration without mitigations, and the number of statuses.
func idle() (took time.Duration, told int64) {
	before, knew := harness.OwnCPU(), statuses.Load()
	time.Sleep(*length)
	return harness.OwnCPU() - before, statuses.Load() - knew
}

// cpu returns the CPU time of a duration in which mitigations start at this rate, and the number of mitigations
// that nodes received.
func cpu(nodes []*gossip.Gossip, rate int) (took time.Duration, got int64) {
	message := make([]byte, mitigation.SentSize)
	before, had := harness.OwnCPU(), received.Load()
	began := time.Now()
	for sent := 0; time.Since(began) < *length; time.Sleep(time.Millisecond) {
		for ; sent < int(time.Since(began).Seconds()*float64(rate)); sent++ {
			nodes[sent%len(nodes)].Send(message)
		}
	}
	return harness.OwnCPU() - before, received.Load() - had
}

func main() {
	log.SetFlags(0)
	flag.Parse()
	fmt.Println("| nodes | a status, CPU µs | a mitigation at one node, CPU µs |\n|--:|--:|--:|")
	for _, count := range []int{2, 4, 8} {
		nodes := start(count)
		var still, busy []float64 // µs
		for range *rounds {
			took, told := idle()
			still = append(still, float64(took.Microseconds())/float64(told))
			quiet, _ := cpu(nodes, 0) // with the loop that starts mitigations
			loud, got := cpu(nodes, *rate)
			busy = append(busy, float64((loud-quiet).Microseconds())/float64(got))
		}
		fmt.Printf("| %d | %.1f | %.1f |\n", count, harness.Median(still), harness.Median(busy))
		for _, g := range nodes {
			g.Stop()
		}
	}
}
