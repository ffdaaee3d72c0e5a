// Command flood measures what clients pass beside a flood of keys that are seen once, with a slow
// shard, in a burst, and at a saturated threshold. It starts nodes, memcached and nginx as the
// origin, each table with processes of its own.
//
//	go build -o /tmp/edge ./cmd/edge && cd bench && go run ./flood -edge /tmp/edge -table flood
//
// wrk, h2load, nginx, memcached and taskset must be installed.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

var (
	edge  = flag.String("edge", "edge", "the `binary`")
	table = flag.String("table", "all", "`table` to print: flood, slow, burst, overshoot or all")
	runs  = flag.Int("runs", 5, "runs of each row; the median and the worst are printed")
	last  = flag.Duration("for", 10*time.Second, "how long each run lasts")
)

func main() {
	flag.Parse()
	for name, print := range map[string]func(){"flood": floods, "slow": slow, "burst": burst, "overshoot": overshoot} {
		if *table == name || *table == "all" {
			print()
		}
	}
}

// row measures some runs and prints their median and the worst.
func row(name string, measure func() int) {
	var all []int
	for range *runs {
		all = append(all, measure())
	}
	slices.Sort(all)
	fmt.Printf("%-60s %8d %8d\n", name, all[len(all)/2], all[len(all)-1])
}

// A pop is some nodes that count in the same memcached.
type pop struct {
	nodes []string // addresses
	ends  func()
}

// start starts a PoP on some cores, with a rule. Answers of its memcached come so much later.
func start(cores, rule string, nodes int, delay time.Duration) pop {
	dir, err := os.MkdirTemp("", "flood")
	harness.Check(err)
	ctx, cancel := context.WithCancel(context.Background())
	p := pop{nodes: harness.FreeAddrs(nodes), ends: func() { cancel(); os.RemoveAll(dir) }}
	run := func(name string, args ...string) {
		cmd := exec.CommandContext(ctx, "taskset", append([]string{"-c", cores, name}, args...)...)
		cmd.Stderr = os.Stderr
		harness.Check(cmd.Start())
		go func() { _ = cmd.Wait() }() // until it is killed
	}
	addrs := harness.FreeAddrs(2 + nodes)
	shard, origin, gossip := addrs[0], addrs[1], addrs[2:]
	_, port, _ := net.SplitHostPort(shard)
	run("memcached", "-l", "127.0.0.1", "-p", port, "-U", "0", "-u", "root", "-m", "1024")
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		harness.Check(os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	run("nginx", "-e", "stderr", "-p", dir, "-c", file("nginx.conf", fmt.Sprintf("daemon off; worker_processes 1; pid %s/pid; error_log stderr error; events {worker_connections 4096;}\n"+
		"http {access_log off; server {listen %s backlog=4096; keepalive_requests 1000000000; location / {return 200 ok;}}}", dir, origin)))
	harness.WaitFor(shard)
	harness.WaitFor(origin)
	if delay > 0 {
		shard = relay(ctx, shard, delay)
	}
	rules, secret := file("rules.yaml", "rules: ["+rule+"]\n"), file("secret", "a secret of the benchmark")
	for i, addr := range p.nodes {
		args := []string{"node", "--name", fmt.Sprint("n", i+1), "--rules", rules, "--origin", "http://" + origin, "--listen", addr, "--metrics-listen", "",
			"--secret-file", secret, "--shard", shard, "--trusted-proxy", "127.0.0.0/8", "--log-level", "error"}
		if nodes > 1 {
			args = append(args, "--gossip-listen", gossip[i], "--join", strings.Join(gossip, ","))
		}
		run(*edge, args...)
		harness.WaitFor(addr)
	}
	time.Sleep(500 * time.Millisecond)
	if now := time.Now().Unix() % 60; now > 45 { // one window holds the run
		time.Sleep(time.Duration(61-now) * time.Second)
	}
	return p
}

// relay returns the address of a relay whose answers come so much later than those of to.
func relay(ctx context.Context, to string, delay time.Duration) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	context.AfterFunc(ctx, func() { ln.Close() })
	type piece struct {
		at   time.Time
		data []byte
	}
	go func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			harness.Check(err)
			answers := make(chan piece, 1<<12)
			go func() { _, _ = io.Copy(far, near); far.Close() }()
			go func() {
				defer close(answers)
				for {
					b := make([]byte, 1<<15)
					n, err := far.Read(b)
					if err != nil {
						return
					}
					answers <- piece{time.Now().Add(delay), b[:n]}
				}
			}()
			go func() {
				defer near.Close()
				for p := range answers {
					time.Sleep(time.Until(p.at))
					if _, err := near.Write(p.data); err != nil {
						return
					}
				}
			}()
		}
	}()
	return ln.Addr().String()
}

// ask sends a client's requests at a rate, to each of the nodes in turn, and returns how many
// passed and after how long the first was refused.
func ask(client string, rate int, lasts time.Duration, nodes ...string) (passed int, refused time.Duration) {
	http := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}, Timeout: 10 * time.Second}
	defer http.CloseIdleConnections()
	var mu sync.Mutex
	var wg sync.WaitGroup
	begin := time.Now()
	n := int(lasts.Seconds() * float64(rate))
	for i := range n {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		wg.Go(func() {
			status := get(http, nodes[i%len(nodes)], client)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case status == 200:
				passed++
			case status == 429 && refused == 0:
				refused = time.Since(begin)
			}
		})
	}
	wg.Wait()
	return passed, refused
}

func get(c *http.Client, node, client string) int {
	r, err := http.NewRequest("GET", "http://"+node+"/", nil)
	harness.Check(err)
	r.Header.Set("X-Forwarded-For", client)
	resp, err := c.Do(r)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp.StatusCode
}

const perMinute = "{id: all, characteristics: [ip], limits: [{threshold: %d, period: 1m}], mitigation_timeout: 1m}"

// flood sends requests of many addresses in turn, as fast as connections answer, until ctx ends.
func flood(ctx context.Context, node string, conns, addresses int) {
	script, err := os.CreateTemp("", "flood*.lua")
	harness.Check(err)
	defer os.Remove(script.Name())
	_, err = fmt.Fprintf(script, `local n = 0
request = function()
  n = (n + 1) %% %d
  wrk.headers["X-Forwarded-For"] = string.format("10.%%d.%%d.%%d", n / 65536, n / 256 %% 256, n %% 256)
  return wrk.format()
end
`, addresses)
	harness.Check(err)
	script.Close()
	_ = exec.CommandContext(ctx, "wrk", "-t1", fmt.Sprint("-c", conns), "-d", "600s", "-s", script.Name(), "http://"+node+"/").Run() // until ctx ends
}

// floods prints how many requests pass of a client that sends 100 a second beside a flood, of 50
// that are allowed in a minute.
func floods() {
	fmt.Printf("\nrequests that pass of 100/s for %v, threshold 50 %33s %8s\n", *last, "median", "worst")
	for _, r := range []struct {
		name             string
		cores            string
		conns, addresses int
		nodes            int
	}{
		{"no flood", "0", 0, 0, 1},
		{"two cores, 64 connections, 100,000 addresses", "0,1", 64, 100_000, 1},
		{"one core, 64 connections, 100,000 addresses", "0", 64, 100_000, 1},
		{"one core, 512 connections, 100,000 addresses", "0", 512, 100_000, 1},
		{"one core, 64 connections, 1,000,000 addresses", "0", 64, 1_000_000, 1},
		{"one core, 512 connections, 1,000,000 addresses", "0", 512, 1_000_000, 1},
		{"20 clients at three nodes, one core: the worst of them", "0", 64, 100_000, 3},
	} {
		row(r.name, func() (most int) {
			p := start(r.cores, fmt.Sprintf(perMinute, 50), r.nodes, 0)
			defer p.ends()
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			defer wg.Wait()
			defer cancel()
			if r.conns > 0 {
				for _, node := range p.nodes {
					wg.Go(func() { flood(ctx, node, r.conns/r.nodes, r.addresses) })
				}
				time.Sleep(2 * time.Second)
			}
			clients := 1
			if r.nodes > 1 {
				clients = 20
			}
			passed := make([]int, clients)
			var asking sync.WaitGroup
			for i := range clients {
				asking.Go(func() { passed[i], _ = ask(fmt.Sprint("192.0.2.", i+1), 100, *last, p.nodes[i%len(p.nodes)]) })
			}
			asking.Wait()
			return slices.Max(passed)
		})
	}
}

// slow prints how many requests pass of an attacker of 200 a second, of 100 in a minute, beside
// 1,500 people of 1 a second, while the shard answers late.
func slow() {
	fmt.Printf("\nrequests that pass of 200/s for %v, threshold 100 %32s %8s\n", *last, "median", "worst")
	for _, nodes := range []int{1, 3} {
		for _, delay := range []time.Duration{0, 10 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond} {
			row(fmt.Sprintf("answers %v late, attacker at %d of 3 nodes", delay, nodes), func() int {
				p := start("0,1", fmt.Sprintf(perMinute, 100), 3, delay)
				defer p.ends()
				var wg sync.WaitGroup
				defer wg.Wait()
				wg.Go(func() { people(p.nodes, *last) })
				passed, _ := ask("192.0.2.66", 200, *last, p.nodes[:nodes]...)
				return passed
			})
		}
	}
}

// people are 1,500 clients of about one request a second each.
func people(nodes []string, lasts time.Duration) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	room := make(chan struct{}, 64)
	begin := time.Now()
	for i := 0; time.Since(begin) < lasts; i++ {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / 1500)))
		room <- struct{}{}
		go func() { // the channel bounds them
			get(client, nodes[i%len(nodes)], fmt.Sprintf("10.1.%d.%d", i%1500/256, i%1500%256))
			<-room
		}()
	}
}

var passedOf = regexp.MustCompile(`status codes: (\d+) 2xx`)

// burst prints how many of 10,000 requests at once pass, of 50 in a minute.
func burst() {
	fmt.Printf("\nrequests that pass of a burst over HTTP/2, threshold 50 %27s %8s\n", "median", "worst")
	for _, conns := range []int{1, 40} {
		row(fmt.Sprintf("%d connections × 250 streams", conns), func() (passed int) {
			p := start("0,1", fmt.Sprintf(perMinute, 50), 1, 0)
			defer p.ends()
			out, err := exec.Command("h2load", "-c", fmt.Sprint(conns), "-m", "250", "-n", fmt.Sprint(conns*250), "http://"+p.nodes[0]+"/").Output()
			harness.Check(err)
			_, err = fmt.Sscan(string(passedOf.FindSubmatch(out)[1]), &passed)
			harness.Check(err)
			return passed
		})
	}
}

// overshoot prints by how much what is admitted of one key exceeds 1,000 a second, at three
// nodes that are saturated with it for 20 s.
func overshoot() {
	fmt.Printf("\nadmitted of one key in 20 s, limit 1,000/s, three nodes %27s %8s\n", "median", "worst")
	row("12 connections to each, as fast as they answer", func() int {
		p := start("0,1", "{id: all, characteristics: [ip], limits: [{threshold: 1000, period: 1s}], mitigation_timeout: 0s}", 3, 0)
		defer p.ends()
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: 10 * time.Second}
		defer client.CloseIdleConnections()
		var mu sync.Mutex
		var wg sync.WaitGroup
		passed, end := 0, time.Now().Add(20*time.Second)
		for i := range 36 {
			wg.Go(func() {
				own := 0
				for time.Now().Before(end) {
					if get(client, p.nodes[i%3], "192.0.2.66") == 200 {
						own++
					}
				}
				mu.Lock()
				passed += own
				mu.Unlock()
			})
		}
		wg.Wait()
		return passed
	})
}
