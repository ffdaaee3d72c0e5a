// Command score scores a PoP of three nodes and three memcached with edge load: 10,000 innocent
// clients and 50 attackers send 10,000 requests per second, while one memcached is killed and
// restarted. It prints the report: how many innocent requests were refused and how many others
// passed, with the causes.
//
//	go build -o /tmp/edge ./cmd/edge && cd bench && go run ./score -edge /tmp/edge
//
// It needs memcached and nginx, which is the origin.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

var (
	edge   = flag.String("edge", "edge", "the `binary`")
	length = flag.Duration("length", time.Minute, "length of the run; the memcached is down in its second third")
	rate   = flag.Int("rate", 10_000, "requests a second")
	keep   = flag.Bool("keep", false, "do not kill a memcached")
)

const rules = `rules: [{id: all, characteristics: [ip], limits: [{threshold: 100, period: 10s}], mitigation_timeout: 10s}]`

// mix is traffic, half of it from attackers, each at ten times the limit if the rate is
// 10,000 requests per second.
const mix = `
duration: 1h
components:
- name: legitimate
  zipf: {clients: 10_000, rate: %d/s, exponent: 1, offset: 2000}
- name: attackers
  steady: {clients: 50, rate: %d/50s, poisson: true}
  attack: true
`

func main() {
	log.SetFlags(0)
	flag.Parse()
	dir, err := os.MkdirTemp("", "score")
	harness.Check(err)
	defer os.RemoveAll(dir)
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		harness.Check(os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	origin := harness.FreeAddr()
	nginx := start(exec.Command("nginx", "-p", dir, "-c", write("nginx.conf", fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/log error;
		events { worker_connections 4096; }
		http { client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
		access_log off; keepalive_requests 1000000000; server { listen %[2]s; location / { return 200 "hello\n"; } } }`, dir, origin))), origin)
	shards := harness.FreeAddrs(3)
	memcached := func(addr string) *exec.Cmd {
		host, port, _ := net.SplitHostPort(addr)
		return start(exec.Command("memcached", "-u", "nobody", "-U", "0", "-l", host, "-p", port, "-t", "1"), addr)
	}
	var running []*exec.Cmd
	for _, addr := range shards {
		running = append(running, memcached(addr))
	}
	rulesFile := write("rules.yaml", rules)
	var pop []*exec.Cmd
	nodes := harness.FreeAddrs(3)
	secret := write("secret", "a secret of the benchmark\n")
	peers := harness.FreeAddrs(3)
	for i, addr := range nodes {
		pop = append(pop, start(exec.Command(*edge, "node", "--name", fmt.Sprintf("node-%d", i+1), "--rules", rulesFile, "--listen", addr, "--metrics-listen", "", "--admin-listen", "",
			"--origin", "http://"+origin, "--shard", strings.Join(shards, ","), "--secret-file", secret, "--trusted-proxy", "127.0.0.0/8",
			"--gossip-listen", peers[i], "--join", strings.Join(peers, ","), "--node-header", "X-Edge-Node", "--log-level", "error"), addr))
	}
	time.Sleep(3 * time.Second) // for the nodes to find each other

	args := []string{"load", "--mix", write("mix.yaml", fmt.Sprintf(mix, *rate/2, *rate/2)), "--rules", rulesFile, "--duration", length.String(), "--requests", "100000000"}
	for _, addr := range nodes {
		args = append(args, "http://"+addr)
	}
	load := exec.Command(*edge, args...)
	var out bytes.Buffer
	load.Stdout, load.Stderr = &out, os.Stderr
	harness.Check(load.Start())
	if !*keep {
		time.Sleep(*length / 3)
		_ = running[1].Process.Kill()
		_ = running[1].Wait()
		time.Sleep(*length / 3)
		running[1] = memcached(shards[1])
	}
	harness.Check(load.Wait())
	_, _ = os.Stdout.Write(out.Bytes())
	fmt.Printf("CPU              of %.0f s: nodes %.1f s, memcached %.1f s, nginx %.1f s, edge load %.1f s\n",
		(*length * time.Duration(runtime.NumCPU())).Seconds(), end(pop...).Seconds(), end(running...).Seconds(), end(nginx).Seconds(), used(load).Seconds())
}

func start(cmd *exec.Cmd, addr string) *exec.Cmd {
	cmd.Stderr = os.Stderr
	harness.Check(cmd.Start())
	harness.WaitFor(addr)
	return cmd
}

// end stops processes and returns their CPU time.
func end(cmds ...*exec.Cmd) (sum time.Duration) {
	for _, cmd := range cmds {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		sum += used(cmd)
	}
	return sum
}

// used returns the CPU time of a process that has ended.
func used(cmd *exec.Cmd) time.Duration {
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}
