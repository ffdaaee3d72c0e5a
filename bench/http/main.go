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
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

var (
	edge   = flag.String("edge", "edge", "the `binary`")
	rounds = flag.Int("rounds", 5, "turns of each server")
	length = flag.Duration("length", 3*time.Second, "length of a turn, whole seconds")
	conns  = flag.Int("conns", 64, "connections")
)

// ticks is how many units of CPU time, as /proc gives them, are in a second (USER_HZ).
const ticks = 100

func main() {
	log.SetFlags(0)
	flag.Parse()
	dir, err := os.MkdirTemp("", "http")
	harness.Check(err)
	defer os.RemoveAll(dir)

	origin := harness.FreeAddr()
	defer startNginx(dir, "origin", fmt.Sprintf(`access_log off; keepalive_requests 1000000000;
		server { listen %s reuseport; location / { return 200 "hello from the origin\n"; } }`, origin)).end()

	for _, refuse := range []bool{true, false} {
		limit, threshold, what := "1000000r/s", 1<<40, "passes"
		if refuse {
			limit, threshold, what = "1r/m", 1, "refuses"
		}
		addr := harness.FreeAddr()
		nginx := startNginx(dir, "nginx-"+what, fmt.Sprintf(`access_log off; keepalive_requests 1000000000; log_not_found off;
			limit_req_zone $binary_remote_addr zone=all:10m rate=%s; limit_req_status 429; limit_req_log_level info;
			upstream origin { server %s; keepalive 128; keepalive_requests 1000000000; }
			server { listen %s; location / { limit_req zone=all %s;
				proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection ""; } }`,
			limit, origin, addr, map[bool]string{true: "", false: "burst=1000000 nodelay"}[refuse]))
		node := startNode(dir, threshold, origin)
		servers := []*server{{"nginx limit_req", addr, nginx, nil, nil}, {"edge node", node.addr, node.process, nil, nil}}
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
			fmt.Printf("%-18s %16.1f %14.0f\n", s.name, median(s.cpu), median(s.rate))
		}
		fmt.Printf("%-18s %16.2f %14.2f\n\n", "edge / nginx", median(servers[1].cpu)/median(servers[0].cpu), median(servers[1].rate)/median(servers[0].rate))
		nginx.end()
		node.end()
	}
}

// A server is one of those that are compared.
type server struct {
	name, addr string
	process    *process
	cpu, rate  []float64 // µs per request, requests per second
}

var (
	requestsOf = regexp.MustCompile(`(\d+) requests in ([0-9.]+)s`)
	otherThan2 = regexp.MustCompile(`Non-2xx or 3xx responses: (\d+)`)
)

// turn loads the server, and checks that all its answers are of the kind that is measured.
func (s *server) turn(refuse bool) {
	before := s.process.cpuTime()
	out, err := exec.Command("wrk", "-t1", fmt.Sprintf("-c%d", *conns), fmt.Sprintf("-d%.0fs", length.Seconds()), "http://"+s.addr+"/").CombinedOutput()
	harness.Check(err)
	used := s.process.cpuTime() - before
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

// A process is a server process, and what it started.
type process struct {
	cmd *exec.Cmd
}

func (p *process) end() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
}

// cpuTime returns the CPU time, user and system, that the process has used.
func (p *process) cpuTime() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	harness.Check(err)
	// What follows the name, which is in parentheses, begins with field 3.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.Atoi(fields[14-3])
	system, _ := strconv.Atoi(fields[15-3])
	return time.Duration(user+system) * time.Second / ticks
}

// startNginx runs nginx as one process, its only worker.
func startNginx(dir, name, http string) *process {
	file := filepath.Join(dir, name+".conf")
	harness.Check(os.WriteFile(file, []byte(fmt.Sprintf(`daemon off; master_process off; pid %[1]s/%[2]s.pid; error_log %[1]s/%[2]s.log error;
		events { worker_connections 1024; }
		http { client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
		%[3]s }`, dir, name, http)), 0o600))
	cmd := exec.Command("nginx", "-p", dir, "-c", file)
	cmd.Stderr = os.Stderr
	harness.Check(cmd.Start())
	listen := regexp.MustCompile(`listen ([0-9.:]+)`).FindStringSubmatch(http)[1]
	harness.WaitFor(listen)
	return &process{cmd}
}

// A node is a running edge node.
type node struct {
	*process
	addr string
}

func startNode(dir string, threshold int, origin string) node {
	file := filepath.Join(dir, "rules.yaml")
	harness.Check(os.WriteFile(file, []byte(fmt.Sprintf(
		"rules:\n  - {id: all, characteristics: [ip], limits: [{threshold: %d, period: 1m}], mitigation_timeout: 1h}\n", threshold)), 0o600))
	addr := harness.FreeAddr()
	cmd := exec.Command(*edge, "node", "--name", "bench", "--rules", file, "--listen", addr, "--metrics-listen", "", "--origin", "http://"+origin, "--log-level", "error")
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	harness.Check(cmd.Start())
	harness.WaitFor(addr)
	return node{&process{cmd}, addr}
}

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}
