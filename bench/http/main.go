// Command http compares a node with nginx, as a reverse proxy that refuses every request or
// lets every one pass: CPU time per request of the server process, user and system, each on one core
// (nginx with one worker, the node with GOMAXPROCS=1), under the same load by wrk over
// kept-alive connections. The servers take turns, so that a drift of the machine cancels out.
//
//	go build -o /tmp/edge ./cmd/edge && cd bench && go run ./http -edge /tmp/edge
//
// It needs nginx and wrk.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

var (
	edge   = flag.String("edge", "edge", "the `binary`")
	rounds = flag.Int("rounds", 5, "turns of each server")
	length = flag.Duration("length", 3*time.Second, "length of a turn, whole seconds")
	conns  = flag.Int("conns", 64, "connections")
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	harness.Main(compare)
}

func compare() {
	dir, remove := harness.TempDir()
	defer remove()
	origin := harness.StartOrigin("", dir)
	defer origin.End()

	for _, refuse := range []bool{true, false} {
		limit, threshold, what := "1000000r/s", 1<<40, "passes"
		if refuse {
			limit, threshold, what = "1r/m", 1, "refuses"
		}
		addr := harness.FreeAddr()
		nginx := harness.Nginx("", dir, addr, fmt.Sprintf(`log_not_found off;
			limit_req_zone $binary_remote_addr zone=all:10m rate=%s; limit_req_status 429; limit_req_log_level info;
			upstream origin { server %s; keepalive 128; keepalive_requests 1000000000; }
			server { listen %s; location / { limit_req zone=all %s;
				proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection ""; } }`,
			limit, origin.Addr, addr, map[bool]string{true: "", false: "burst=1000000 nodelay"}[refuse]))
		node, nodeAddr := startNode(dir, threshold, origin.Addr)
		servers := []*server{{"nginx limit_req", addr, nginx, nil, nil}, {"edge node", nodeAddr, node, nil, nil}}
		for _, s := range servers {
			s.turn(refuse) // warm up
			s.cpu, s.rate = nil, nil
		}
		for range *rounds {
			for _, s := range servers {
				s.turn(refuse)
			}
		}
		fmt.Printf("%-18s %16s %14s   (medians of %d turns of %v, %d connections; every request %s)\n", "", "CPU µs/request", "requests/s", *rounds, *length, *conns, what[:len(what)-1]+"d")
		for _, s := range servers {
			fmt.Printf("%-18s %16.1f %14.0f\n", s.name, harness.Median(s.cpu), harness.Median(s.rate))
		}
		fmt.Printf("%-18s %16.2f %14.2f\n\n", "edge / nginx", harness.Median(servers[1].cpu)/harness.Median(servers[0].cpu), harness.Median(servers[1].rate)/harness.Median(servers[0].rate))
		nginx.End()
		node.End()
	}
}

// A server is one of those that are compared.
type server struct {
	name, addr string
	process    *harness.Process
	cpu, rate  []float64 // µs per request, requests per second
}

var (
	requestsOf = regexp.MustCompile(`(\d+) requests in ([0-9.]+)s`)
	otherThan2 = regexp.MustCompile(`Non-2xx or 3xx responses: (\d+)`)
)

// turn loads the server, and checks that all its answers are of the kind that is measured.
func (s *server) turn(refuse bool) {
	before := s.process.CPU()
	out, err := exec.Command("wrk", "-t1", fmt.Sprintf("-c%d", *conns), fmt.Sprintf("-d%.0fs", length.Seconds()), "http://"+s.addr+"/").CombinedOutput()
	harness.Check(err)
	used := s.process.CPU() - before
	m := requestsOf.FindSubmatch(out)
	if m == nil || strings.Contains(string(out), "Socket errors") {
		log.Fatalf("%s: wrk says\n%s", s.name, out)
	}
	n, _ := strconv.ParseFloat(string(m[1]), 64)
	refused := 0.0
	if m := otherThan2.FindSubmatch(out); m != nil {
		refused, _ = strconv.ParseFloat(string(m[1]), 64)
	}
	if refuse && refused < 0.99*n || !refuse && refused > 0 {
		log.Fatalf("%s: %.0f of %.0f requests were refused", s.name, refused, n)
	}
	s.cpu = append(s.cpu, used.Seconds()*1e6/n)
	seconds, _ := strconv.ParseFloat(string(m[2]), 64)
	s.rate = append(s.rate, n/seconds)
}

// startNode runs a node on one core.
func startNode(dir string, threshold int, origin string) (node *harness.Process, addr string) {
	file := filepath.Join(dir, "rules.yaml")
	harness.Check(os.WriteFile(file, fmt.Appendf(nil,
		"rules:\n  - {id: all, characteristics: [ip], limits: [{threshold: %d, period: 1m}], mitigation_timeout: 1h}\n", threshold), 0o600))
	addr = harness.FreeAddr()
	node = harness.Start("", "env", "GOMAXPROCS=1", *edge, "node", "--name", "bench", "--rules", file, "--listen", addr, "--metrics-listen", "",
		"--origin", "http://"+origin, "--log-level", "error")
	harness.WaitFor(addr)
	return node, addr
}
