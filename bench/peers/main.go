// Command peers uses edge load to judge nginx's limit_req, HAProxy's stick tables with peers, and edge with the
// same rule: three nodes of each, the same clients, the same requests. It prints how much of the attack passes,
// how many requests of innocent clients are refused, how many fail, and the CPU time per request, as Markdown.
//
//	go build -o /tmp/edge ./cmd/edge && cd bench && go run ./peers -edge /tmp/edge
//
// It needs nginx, haproxy and memcached.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

var (
	edge  = flag.String("edge", "edge", "the `binary`")
	only  = flag.String("situation", "", "measure only situations with this `text` in their names")
	quick = flag.Bool("quick", false, "5 seconds for each run instead of 40")
)

const rules = `rules: [{id: all, characteristics: [ip], limits: [{threshold: 100, period: 10s}], mitigation_timeout: 0s}]`

// mix has innocent clients and 10 attackers, each at ten times the limit if the rate is 2,000 requests a second.
const mix = `
duration: 1h
components:
- name: legitimate
  zipf: {clients: 10_000, rate: %[1]d/s, exponent: 1, offset: 2000}
- name: attackers
  steady: {clients: 10, rate: %[1]d/10s, poisson: true}
  attack: true
`

// A pop is a measured group of nodes.
type pop struct {
	nodes  []*harness.Process
	stores []*harness.Process
}

func (p *pop) cpu() (sum time.Duration) {
	for _, all := range [][]*harness.Process{p.nodes, p.stores} {
		for _, each := range all {
			sum += each.CPU()
		}
	}
	return sum
}

func write(dir, name, text string) string {
	file := filepath.Join(dir, name)
	harness.Check(os.WriteFile(file, []byte(text), 0o600))
	return file
}

// startNginx follows ngx_http_limit_req_module's documentation: 10 requests a second for each address,
// bursts of 100 without a delay. Its nodes share nothing.
func startNginx(dir, origin string, addrs []string, _ *atomic.Int64) (p pop) {
	for _, addr := range addrs {
		p.nodes = append(p.nodes, harness.Nginx("", dir, addr, fmt.Sprintf(`
			limit_req_log_level info;
			set_real_ip_from 127.0.0.0/8; real_ip_header X-Forwarded-For;
			limit_req_zone $binary_remote_addr zone=all:10m rate=10r/s;
			upstream origin { server %s; keepalive 64; }
			server { listen %s; location / {
				limit_req zone=all burst=100 nodelay; limit_req_status 429;
				proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://origin; } }`, origin, addr)))
	}
	return p
}

// startHAProxy follows HAProxy's documentation of stick tables: a rate over 10 seconds, and a peers
// section that passes each entry to the other nodes, which replaces theirs.
func startHAProxy(dir, origin string, addrs []string, _ *atomic.Int64) (p pop) {
	peers := harness.FreeAddrs(len(addrs))
	section := "peers pop\n"
	for i, addr := range peers {
		section += fmt.Sprintf("  peer node%d %s\n", i+1, addr)
	}
	for i, addr := range addrs {
		file := write(dir, fmt.Sprintf("haproxy-%d.cfg", i), fmt.Sprintf(`global
  nbthread 1
  localpeer node%d
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
%s
backend clients
  stick-table type ip size 1m expire 20s store http_req_rate(10s) peers pop
frontend edge
  bind %s
  http-request set-src req.hdr(x-forwarded-for)
  http-request track-sc0 src table clients
  http-request deny deny_status 429 if { sc_http_req_rate(0) gt 100 }
  default_backend origin
backend origin
  http-reuse always
  server origin %s
`, i+1, section, addr, origin))
		p.nodes = append(p.nodes, harness.Start("", "haproxy", "-q", "-f", file))
	}
	return p
}

func startEdge(dir, origin string, addrs []string, late *atomic.Int64) (p pop) {
	var shards []string
	for range 3 {
		store, addr := harness.Memcached("")
		p.stores, shards = append(p.stores, store), append(shards, addr)
	}
	if late != nil {
		shards[1] = relay(shards[1], late)
	}
	peers := harness.FreeAddrs(len(addrs))
	file, secret := write(dir, "rules.yaml", rules), write(dir, "secret", "a secret of the benchmark\n")
	for i, addr := range addrs {
		p.nodes = append(p.nodes, harness.Start("", *edge, "node", "--name", fmt.Sprintf("node-%d", i+1), "--rules", file, "--listen", addr, "--metrics-listen", "", "--admin-listen", "",
			"--origin", "http://"+origin, "--shard", strings.Join(shards, ","), "--secret-file", secret, "--trusted-proxy", "127.0.0.0/8",
			"--gossip-listen", peers[i], "--join", strings.Join(peers, ","), "--log-level", "error"))
	}
	return p
}

func main() {
	flag.Parse()
	harness.Main(run)
}

// take removes the second of three processes from the list, and returns it.
func take(all *[]*harness.Process) *harness.Process {
	p := (*all)[1]
	*all = []*harness.Process{(*all)[0], (*all)[2]}
	return p
}

// relay returns the address of a proxy in front of addr that delays replies by late, in nanoseconds.
func relay(addr string, late *atomic.Int64) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	go func() {
		for {
			from, err := l.Accept()
			harness.Check(err)
			to, err := net.Dial("tcp", addr)
			if err != nil {
				from.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(to, from)
				to.Close()
			}()
			go answer(from, to, late)
		}
	}()
	return l.Addr().String()
}

// answer forwards a store's replies. A delayed reply does not delay those behind it further.
func answer(to, store net.Conn, late *atomic.Int64) {
	type piece struct {
		due   time.Time
		bytes []byte
	}
	pieces := make(chan piece, 10_000)
	go func() {
		defer close(pieces)
		for buf := make([]byte, 64<<10); ; {
			n, err := store.Read(buf)
			if err != nil {
				return
			}
			pieces <- piece{time.Now().Add(time.Duration(late.Load())), bytes.Clone(buf[:n])}
		}
	}()
	for p := range pieces {
		time.Sleep(time.Until(p.due))
		_, _ = to.Write(p.bytes) // fails if the node has gone away
	}
	to.Close()
}

// A situation is an event after a third of a run.
type situation struct {
	name   string
	rate   int
	victim func(*pop) *harness.Process // returns the process to kill, if not nil
	late   time.Duration               // delay of a store's replies from then on
	store  bool                        // only edge has stores
}

func run() {
	length := 40 * time.Second
	if *quick {
		length = 5 * time.Second
	}
	programs := []struct {
		name  string
		start func(dir, origin string, addrs []string, late *atomic.Int64) pop
	}{{"nginx", startNginx}, {"HAProxy", startHAProxy}, {"edge", startEdge}}
	fmt.Printf("%s\n\n| | | attackers pass | innocent refused | failed | CPU µs a request |\n|---|---|--:|--:|--:|--:|\n", harness.Machine("nginx", "haproxy", "memcached"))
	for _, s := range []situation{
		{name: "2,000 requests a second", rate: 2000},
		{name: "saturated", rate: 40_000},
		{name: "a node is killed", rate: 2000, victim: func(p *pop) *harness.Process { return take(&p.nodes) }},
		{name: "a store is killed", rate: 2000, victim: func(p *pop) *harness.Process { return take(&p.stores) }, store: true},
		{name: "a store answers 20 ms late", rate: 2000, late: 20 * time.Millisecond, store: true},
		{name: "a store answers 200 ms late", rate: 2000, late: 200 * time.Millisecond, store: true},
	} {
		for _, each := range programs {
			if s.store && each.name != "edge" || !strings.Contains(s.name, *only) {
				continue
			}
			measure(s, each.name, each.start, length)
		}
	}
}

// measure prints a line of the table.
func measure(s situation, name string, begin func(dir, origin string, addrs []string, late *atomic.Int64) pop, length time.Duration) {
	dir, remove := harness.TempDir()
	defer remove()
	origin := harness.StartOrigin("", dir)
	addrs := harness.FreeAddrs(3)
	var late *atomic.Int64 // delay of a store's replies
	if s.late > 0 {
		late = new(atomic.Int64)
	}
	p := begin(dir, origin.Addr, addrs, late)
	for _, addr := range addrs {
		harness.WaitFor(addr)
	}
	time.Sleep(3 * time.Second) // the nodes discover each other
	args := []string{"load", "--json", "--progress=false", "--come-back=false", "--mix", write(dir, "mix.yaml", fmt.Sprintf(mix, s.rate/2)), "--rules", write(dir, "load.yaml", rules), "--duration", length.String(), "--requests", "100000000"}
	for _, addr := range addrs {
		args = append(args, "http://"+addr)
	}
	before := p.cpu()
	lost := make(chan time.Duration, 1) // CPU time of the killed process
	go func() {
		time.Sleep(length / 3)
		if late != nil {
			late.Store(int64(s.late))
		}
		if s.victim == nil {
			lost <- 0
			return
		}
		victim := s.victim(&p)
		lost <- victim.CPU()
		victim.End()
	}()
	var report struct {
		Sending    struct{ Requests uint64 }
		Components []struct{ Requests, Refused, Failed uint64 }
		Score      struct {
			InnocentRefused uint64 `json:"innocent_refused"`
		}
	}
	harness.Check(json.Unmarshal([]byte(harness.Output(*edge, args...)), &report))
	cpu := <-lost + p.cpu() - before
	innocent, attack := report.Components[0], report.Components[1]
	fmt.Printf("| %s | %s | %.1f%% | %d of %d | %d of %d | %.0f |\n", s.name, name,
		100*float64(attack.Requests-attack.Refused-attack.Failed)/float64(attack.Requests), report.Score.InnocentRefused, innocent.Requests,
		innocent.Failed+attack.Failed, report.Sending.Requests, float64(cpu.Microseconds())/float64(report.Sending.Requests))
	for _, each := range append(append([]*harness.Process{origin.Process}, p.nodes...), p.stores...) {
		each.End()
	}
}
