package envoy_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/edgelimit/edge/internal/harness"
)

// BenchmarkServer measures the CPU time per decision of a server process, edge-envoy in PATH, and of its
// memcached. One connection has 64 requests in flight. With EDGE_ENVOY_TARGET=HOST:PORT and
// EDGE_ENVOY_PIDS=PID,PID it measures another server instead.
func BenchmarkServer(b *testing.B) {
	target, pids := os.Getenv("EDGE_ENVOY_TARGET"), strings.Split(os.Getenv("EDGE_ENVOY_PIDS"), ",")
	if target == "" {
		target, pids = startServer(b)
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	for _, c := range []struct {
		name    string
		clients uint64
	}{{"10000_clients", 10_000}, {"one_client", 1}} {
		b.Run(c.name, func(b *testing.B) {
			var asked, refused atomic.Uint64
			var clients sync.WaitGroup
			before := cpu(b, pids)
			for range 64 {
				clients.Go(func() {
					client := rls.NewRateLimitServiceClient(conn)
					for i := asked.Add(1); i <= uint64(b.N); i = asked.Add(1) {
						who := i % c.clients
						r, err := client.ShouldRateLimit(context.Background(), &rls.RateLimitRequest{Domain: "bench", Descriptors: []*ratelimit.RateLimitDescriptor{
							descriptor("generic_key", "client", "remote_address", fmt.Sprintf("10.%d.%d.%d", c.clients&1, who>>8, who&255)),
						}})
						if err != nil {
							b.Error(err)
							return
						}
						if r.OverallCode == over {
							refused.Add(1)
						}
					}
				})
			}
			clients.Wait()
			for i, spent := range cpu(b, pids) {
				name := fmt.Sprintf("process%d-CPU-µs/op", i)
				b.ReportMetric((spent-before[i])*1e6/float64(b.N), name)
			}
			b.ReportMetric(float64(refused.Load())/float64(b.N), "refused/op")
		})
	}
}

// startServer starts edge-envoy with a memcached.
func startServer(b *testing.B) (target string, pids []string) {
	dir := b.TempDir()
	for name, text := range map[string]string{
		"secret":     "sixteen bytes at least\n",
		"rules.yaml": "rules: [{id: client, characteristics: [ip], limits: [{threshold: 1000, period: 1h}], action: block, mitigation_timeout: 1h}]\n",
	} {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	memcached := harness.StartMemcached(b)
	path, err := exec.LookPath("edge-envoy")
	if err != nil {
		b.Skipf("%v: run go build -o DIR ./cmd/edge-envoy, and put DIR in PATH", err)
	}
	p := harness.Start(b, exec.Command(path, "--listen", "127.0.0.1:0", "--rules", dir+"/rules.yaml", "--secret-file", dir+"/secret", "--shard", memcached.Addr, "--metrics-listen", "", "--admin-listen", ""))
	target = p.Wait(p.Stderr, ` envoy=(\S+)`)[1]
	return target, []string{strconv.Itoa(p.Cmd.Process.Pid), strconv.Itoa(memcached.Cmd.Process.Pid)}
}

// cpu returns the CPU time that processes have used, in seconds.
func cpu(b *testing.B, pids []string) (all []float64) {
	for _, pid := range pids {
		text, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			b.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		user, _ := strconv.ParseFloat(fields[11], 64)
		system, _ := strconv.ParseFloat(fields[12], 64)
		all = append(all, (user+system)/100)
	}
	return all
}
