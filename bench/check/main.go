// Command check measures what it costs a proxy to ask a node: nginx, HAProxy and Caddy with the configurations
// in deploy, compared with the same proxies without a node, in alternating runs. It reports the CPU time per request of
// proxy and node, under the load of 16 keep-alive connections, and the latency at a rate that leaves the core
// mostly idle.
//
//	go build -o /tmp/edge ./cmd/edge && cd bench && go run ./check -edge /tmp/edge
//
// With -attack 8s it counts instead the requests that pass from a client with 1,000 connections that exceeds a limit at
// once, while proxy and node are saturated.
//
// It needs nginx, haproxy, caddy, wrk, taskset, and two cores: the proxy and its node share the first one; load
// and origin run on the others.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

var (
	edge   = flag.String("edge", "edge", "the `binary`")
	deploy = flag.String("deploy", "../deploy", "`directory` of the configurations")
	rounds = flag.Int("rounds", 7, "pairs of rounds; the report has medians of the pairs")
	length = flag.Duration("length", 3*time.Second, "length of a round, whole seconds")
	rate   = flag.Int("rate", 1000, "requests per second while latency is measured")
	attack = flag.Duration("attack", 0, "only count the requests that pass during an attack of this length, whole seconds")
	only   = flag.String("only", "", "measure the proxies that match this `regexp`")
)

const core = "0" // of the proxy and the node

var loadCores = fmt.Sprintf("1-%d", runtime.NumCPU()-1)

func main() {
	log.SetFlags(0)
	flag.Parse()
	wanted, err := regexp.Compile(*only)
	harness.Check(err)
	if runtime.NumCPU() < 2 {
		log.Fatal("two cores are needed")
	}
	runtime.LockOSThread() // processes end with the thread that started them
	harness.Run(exec.Command("taskset", "-acp", loadCores, strconv.Itoa(os.Getpid())))
	harness.Main(func() {
		fmt.Printf("%s\n\n", harness.Machine("nginx", "haproxy", "caddy", "wrk"))
		row := measure
		if *attack == 0 {
			fmt.Printf("Medians of %d pairs of rounds of %v; CPU in µs per request over 16 connections, latency in ms at %d requests/s.\n\n", *rounds, *length, *rate)
			fmt.Println("| | CPU alone | added to the proxy | of the node | added in total | refused: proxy, node | p50 alone | added | p99 alone | added | late |")
			fmt.Println("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
		} else {
			row = resist
			fmt.Printf("A client with %d connections sends requests for %v; the rule's threshold is %d. Medians and worst of %d.\n\n", crowd, *attack, threshold, *rounds)
			fmt.Println("| | requests each second | passed in all | worst |")
			fmt.Println("|---|--:|--:|--:|")
		}
		for _, p := range []struct {
			name  string
			start func(b *bench) (alone, asking proxy)
		}{{"nginx, `auth_request`", nginx}, {"HAProxy, SPOP", haproxy}, {"Caddy, `forward_auth`", caddy}} {
			if wanted.MatchString(p.name) {
				row(p.name, p.start)
			}
		}
	})
}

// A bench is a node that proxies ask, and an origin.
type bench struct {
	dir, origin string
	node        *harness.Process
	check, spop string // addresses of the node
	end         []func()
}

// A proxy is a process that answers at addr.
type proxy struct {
	*harness.Process
	addr string
}

// An attack: the client's connections, and the threshold that it exceeds at once.
const (
	crowd     = 1000
	threshold = 100
)

var attackRules = fmt.Sprintf(`rules:
  - {id: everything, characteristics: [ip], limits: [{threshold: %d, period: 1m}], mitigation_timeout: 1h}
`, threshold)

const rules = `rules:
  - {id: passes, match: {paths: [/passes]}, characteristics: [ip], limits: [{threshold: 1000000000, period: 1h}]}
  - {id: refused, match: {paths: [/refused]}, characteristics: [ip], limits: [{threshold: 1, period: 1m}], mitigation_timeout: 24h}
`

func newBench() *bench {
	dir, remove := harness.TempDir()
	harness.Check(os.Chmod(dir, 0o755))
	addrs := harness.FreeAddrs(2)
	b := &bench{dir: dir, origin: addrs[0], spop: addrs[1], check: filepath.Join(dir, "check.sock"), end: []func(){remove}}
	origin := harness.Nginx(loadCores, dir, b.origin, "server { listen "+b.origin+` backlog=4096; default_type text/plain; location / { return 200 "`+strings.Repeat("x", 128)+`"; } }`)
	rules := rules
	if *attack > 0 {
		rules = attackRules
	}
	b.node = harness.Start(core, *edge, "node", "--name", "bench", "--rules", b.write("rules.yaml", rules), "--check-listen", "unix:"+b.check,
		"--spop-listen", b.spop, "--trusted-proxy", "127.0.0.1", "--metrics-listen", "", "--admin-listen", "", "--log-level", "error")
	b.end = append(b.end, origin.End, b.node.End)
	harness.WaitFor(b.spop)
	return b
}

func (b *bench) write(name, text string) (file string) {
	file = filepath.Join(b.dir, name)
	harness.Check(os.WriteFile(file, []byte(text), 0o644))
	return file
}

// shipped returns a configuration from deploy, with replacements for this run, given as old, new, ….
func shipped(file string, changes ...string) string {
	text, err := os.ReadFile(filepath.Join(*deploy, file))
	harness.Check(err)
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(string(text), changes[i]) {
			harness.Check(fmt.Errorf("%s does not have %q", file, changes[i]))
		}
	}
	return strings.NewReplacer(changes...).Replace(string(text))
}

func (b *bench) proxy(addr, name string, args ...string) proxy {
	p := proxy{harness.Start(core, name, args...), addr}
	harness.WaitFor(addr)
	b.end = append(b.end, p.End)
	return p
}

func nginx(b *bench) (alone, asking proxy) {
	server := b.write("edge.conf", shipped("nginx/edge.conf"))
	http := b.write("edge-http.conf", shipped("nginx/edge-http.conf", "/run/edge/", b.dir+"/", "/run/nginx-edge", b.dir+"/nginx-edge"))
	start := func(http, server string) proxy {
		addr := harness.FreeAddr()
		p := harness.Nginx(core, b.dir, addr, fmt.Sprintf(`%s upstream origin { server %s; keepalive 64; keepalive_requests 1000000000; }
			server { listen %s; %s location / { proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection ""; } }`, http, b.origin, addr, server))
		b.end = append(b.end, p.End)
		return proxy{p, addr}
	}
	return start("", ""), start("include "+http+";", "include "+server+";")
}

func haproxy(b *bench) (alone, asking proxy) {
	spoe := b.write("edge-spoe.conf", shipped("haproxy/edge-spoe.conf"))
	config := func(addr string) string {
		return shipped("haproxy/haproxy.cfg", "bind :8080", "bind "+addr, "127.0.0.1:3000", b.origin, "127.0.0.1:9171", b.spop, "/etc/haproxy/edge-spoe.conf", spoe)
	}
	addrs := harness.FreeAddrs(2)
	without := regexp.MustCompile(`(?m)^.*(filter spoe|txn\.edge).*\n`).ReplaceAllString(config(addrs[0]), "")
	return b.proxy(addrs[0], "haproxy", "-db", "-q", "-f", b.write("alone.cfg", without)),
		b.proxy(addrs[1], "haproxy", "-db", "-q", "-f", b.write("asking.cfg", config(addrs[1])))
}

func caddy(b *bench) (alone, asking proxy) {
	addrs := harness.FreeAddrs(2)
	start := func(i int, site string) proxy {
		config := b.write(fmt.Sprintf("caddy%d", i), "{\n\tadmin off\n\tlog {\n\t\toutput discard\n\t}\n}\n"+site)
		return b.proxy(addrs[i], "caddy", "run", "--adapter", "caddyfile", "--config", config)
	}
	return start(0, fmt.Sprintf("http://%s {\n\treverse_proxy %s\n}\n", addrs[0], b.origin)),
		start(1, shipped("caddy/Caddyfile", ":8080 {", "http://"+addrs[1]+" {", "/run/edge/", b.dir+"/", "127.0.0.1:3000", b.origin))
}

// close ends the processes.
func (b *bench) close() {
	for _, end := range b.end[1:] {
		end()
	}
	b.end[0]()
}

// resist prints a row of the table of attacks. Each round has a node of its own.
func resist(name string, start func(*bench) (alone, asking proxy)) {
	var rates, passed []float64
	for range *rounds {
		b := newBench()
		_, asking := start(b)
		report := harness.Output("taskset", "-c", loadCores, "wrk", "-t1", fmt.Sprintf("-c%d", crowd), fmt.Sprintf("-d%.0fs", attack.Seconds()), "http://"+asking.addr+"/")
		n := number(report, `(\d+) requests in`)
		rates = append(rates, n/attack.Seconds())
		passed = append(passed, n-number(report, `Non-2xx or 3xx responses: (\d+)`))
		b.close()
	}
	fmt.Printf("| %s | %.0f | %.0f | %.0f |\n", name, harness.Median(rates), harness.Median(passed), slices.Max(passed))
}

// measure prints a row of the table of costs.
func measure(name string, start func(*bench) (alone, asking proxy)) {
	b := newBench()
	defer b.close()
	alone, asking := start(b)
	var cpu, more, node, all, refusing, refusingNode, p50, more50, p99, more99 []float64
	var requests, late float64
	for round := range *rounds + 1 {
		plain, _, _, _ := b.round(alone, "/passes")
		passing, nodes, _, _ := b.round(asking, "/passes")
		refused, nodeRefused, n, passed := b.round(asking, "/refused")
		half, most := harness.Percentiles(harness.Probe(alone.addr, "/passes", *rate, *length))
		halfAsking, mostAsking := harness.Percentiles(harness.Probe(asking.addr, "/passes", *rate, *length))
		if round == 0 { // the first round is a warm-up
			continue
		}
		requests, late = requests+n, late+passed
		cpu, more, node, all = append(cpu, plain), append(more, passing-plain), append(node, nodes), append(all, passing+nodes-plain)
		refusing, refusingNode = append(refusing, refused), append(refusingNode, nodeRefused)
		p50, more50, p99, more99 = append(p50, half), append(more50, halfAsking-half), append(p99, most), append(more99, mostAsking-most)
	}
	m := harness.Median[float64]
	fmt.Printf("| %s | %.1f | %.1f | %.1f | %.1f | %.1f, %.1f | %.2f | %.2f | %.2f | %.2f | %.2f%% |\n", name, m(cpu), m(more), m(node), m(all),
		m(refusing), m(refusingNode), m(p50), m(more50), m(p99), m(more99), 100*late/requests)
}

// round loads a proxy. It returns the CPU time of the proxy and of the node per request, in µs, and the numbers
// of all and of passed requests.
func (b *bench) round(p proxy, path string) (proxyCPU, nodeCPU, n, passed float64) {
	proxyBefore, nodeBefore := p.CPU(), b.node.CPU()
	report := harness.Output("taskset", "-c", loadCores, "wrk", "-t1", "-c16", fmt.Sprintf("-d%.0fs", length.Seconds()), "http://"+p.addr+path)
	n = number(report, `(\d+) requests in`)
	passed = n - number(report, `Non-2xx or 3xx responses: (\d+)`)
	if n == 0 || strings.Contains(report, "Socket errors") || path == "/passes" && passed < n {
		harness.Check(fmt.Errorf("of %.0f requests for %s, %.0f passed; wrk reports\n%s", n, path, passed, report))
	}
	each := func(d time.Duration) float64 { return d.Seconds() * 1e6 / n }
	return each(p.CPU() - proxyBefore), each(b.node.CPU() - nodeBefore), n, passed
}

// number returns the number that pattern's group matches in text, or 0.
func number(text, pattern string) float64 {
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.ParseFloat(m[1], 64)
	return n
}
