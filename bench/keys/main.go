// Command keys measures the cost of counting a key in memcached and Redis: the CPU time of client and server
// together, and how many keys per second one server can count. It compares batches, as nodes
// send them, with gomemcache, which handles one key at a time, and with pipelines of go-redis and rueidis. They alternate.
//
//	cd bench && go run ./keys
//
// It needs memcached and redis-server.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"log"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

var (
	runs    = flag.Int("runs", 5, "rounds of each; the report has medians and the worst")
	last    = flag.Duration("for", 2*time.Second, "length of a round")
	only    = flag.String("only", "", "measure only this `client`: gomemcache, batches, writes, counting, redis, redis-counting, go-redis or rueidis")
	kind    = flag.String("keys", "", "measure only these `keys`: known or new")
	inBatch = flag.Int("batch", 1024, "keys in a batch or pipeline; a node sends up to 1024")
	profile = flag.String("cpuprofile", "", "write a profile of this process to a `file`")
)

// known is the number of keys with existing counters.
const known = 100_000

func main() {
	log.SetFlags(0)
	flag.Parse()
	harness.Main(func() {
		if *profile != "" {
			f, err := os.Create(*profile)
			harness.Check(err)
			harness.Check(pprof.StartCPUProfile(f))
			defer pprof.StopCPUProfile()
		}
		compare()
	})
}

// A client counts keys in a server until end, from the nth on, and returns their number. If not
// fresh, they are the known keys in turn.
type client interface {
	count(from uint64, fresh bool, end time.Time) (keys int)
}

// A figure is the result of one round.
type figure struct {
	client, server float64 // CPU time in µs
	rate           float64 // keys per second
	allocations    float64
	grown          float64 // resident memory of the server per key, in bytes
}

func (f figure) cpu() float64 { return f.client + f.server }

func compare() {
	clients := []struct {
		name  string
		what  string
		serve func(cores string) (*harness.Process, string)
		open  func(addr string, fresh bool) (client, func())
	}{
		{"gomemcache", "gomemcache, 8 goroutines", harness.Memcached, openGomemcache},
		{"batches", "batches (`counter/memcached`)", harness.Memcached, openBatches},
		{"writes", "batches without reads", harness.Memcached, openWrites},
		{"counting", "all of counting (`async`), from the offer on", harness.Memcached, openCounting},
		{"redis-counting", "all of counting in Redis", harness.Redis, openRedisCounting},
		{"redis", "batches without reads (`counter/redis`)", harness.Redis, openRedis},
		{"go-redis", "pipelines of go-redis", harness.Redis, openGoRedis},
		{"rueidis", "pipelines of rueidis", harness.Redis, openRueidis},
	}
	fmt.Printf("%s\n\n", harness.Machine("memcached", "redis-server"))
	fmt.Printf("CPU µs per key of client and server, with %d keys in a batch, medians (and the worst) of %d rounds of %v:\n\n", *inBatch, *runs, *last)
	fmt.Println("| | client | server | both (worst) | gomemcache takes … times as much | keys/s (worst) | allocations per key | bytes of the server per key |")
	fmt.Println("|---|--:|--:|--:|--:|--:|--:|--:|")
	for _, fresh := range []bool{false, true} {
		keys := map[bool]string{false: "known", true: "new"}[fresh]
		if cmp.Or(*kind, keys) != keys {
			continue
		}
		figures := make([][]figure, len(clients))
		for range *runs {
			for i, c := range clients {
				if cmp.Or(*only, c.name) == c.name {
					figures[i] = append(figures[i], round(c.serve, c.open, fresh))
				}
			}
		}
		for i, c := range clients {
			if figures[i] == nil {
				continue
			}
			of := func(each []figure, value func(figure) float64) (median, least, most float64) {
				values := make([]float64, len(each))
				for j, f := range each {
					values[j] = value(f)
				}
				return spread(values)
			}
			one, _, _ := of(figures[i], func(f figure) float64 { return f.client })
			other, _, _ := of(figures[i], func(f figure) float64 { return f.server })
			both, _, worst := of(figures[i], figure.cpu)
			rate, slowest, _ := of(figures[i], func(f figure) float64 { return f.rate })
			allocations, _, _ := of(figures[i], func(f figure) float64 { return f.allocations })
			grown, _, _ := of(figures[i], func(f figure) float64 { return f.grown })
			ratio := "1"
			if i > 0 && figures[0] != nil {
				peer, _, _ := of(figures[0], figure.cpu)
				ratio = fmt.Sprintf("%.1f", peer/both)
			}
			fmt.Printf("| %s keys: %s | %.2f | %.2f | %.2f (%.2f) | %s | %s (%s) | %.3f | %.0f |\n", keys,
				c.what, one, other, both, worst, ratio, thousands(rate), thousands(slowest), allocations, grown)
		}
	}
}

func spread(values []float64) (median, least, most float64) {
	least, most = values[0], values[0]
	for _, v := range values {
		least, most = min(least, v), max(most, v)
	}
	return harness.Median(values), least, most
}

// thousands returns n with commas.
func thousands(n float64) string {
	text := strconv.Itoa(int(n))
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// round measures a client with its own server.
func round(serve func(cores string) (*harness.Process, string), open func(addr string, fresh bool) (client, func()), fresh bool) figure {
	server, addr := serve("")
	defer server.End()
	c, end := open(addr, fresh)
	defer end()
	warm := c.count(0, fresh, time.Now().Add(*last/4))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin, own, other, memory := time.Now(), harness.OwnCPU(), server.CPU(), server.Memory()
	n := float64(c.count(uint64(warm), fresh, begin.Add(*last)))
	took, own, other := time.Since(begin), harness.OwnCPU()-own, server.CPU()-other
	runtime.ReadMemStats(&after)
	return figure{
		client: own.Seconds() * 1e6 / n, server: other.Seconds() * 1e6 / n,
		rate: n / took.Seconds(), allocations: float64(after.Mallocs-before.Mallocs) / n,
		grown: float64(server.Memory()-memory) / n,
	}
}
