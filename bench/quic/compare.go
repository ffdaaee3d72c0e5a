package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/edgelimit/edge/bench/harness"
)

// A server serves HTTP/3 at addr on one core.
type server struct {
	name, addr string
	*harness.Process
}

// compare prints the CPU time of a request that is refused, and of one that passes to origin, for all servers.
func compare(dir, origin string) {
	fmt.Printf("CPU µs per request over HTTP/3 of a server on one core, 16 connections (medians of %d rounds of %v)\n\n"+
		"| | nginx | HAProxy | Caddy | edge |\n|---|--:|--:|--:|--:|\n", *rounds, *length)
	for _, refuse := range []bool{true, false} {
		servers := []server{nginx(dir, origin, refuse), haproxy(dir, origin, refuse), caddy(dir, origin, refuse), node(dir, origin, refuse)}
		cpu := make([][]float64, len(servers))
		for _, s := range servers {
			harness.WaitFor(s.addr)
		}
		for round := range *rounds + 1 { // the first one is a warm-up
			for i, s := range servers {
				if used := s.round(refuse); round > 0 {
					cpu[i] = append(cpu[i], used)
				}
			}
		}
		fmt.Print(map[bool]string{true: "| refuse |", false: "| pass |"}[refuse])
		for i, s := range servers {
			fmt.Printf(" %.0f |", harness.Median(cpu[i]))
			s.End()
		}
		fmt.Println()
	}
}

// round loads s, and returns its CPU time per request in microseconds.
func (s server) round(refuse bool) float64 {
	before := s.PreciseCPU()
	out := harness.Output("taskset", "-c", "1", *edge, "load", "--http3", "--insecure", "-c", "16", "-d", length.String(), "--json", "https://"+named(s.addr)+"/")
	used := s.PreciseCPU() - before
	var report struct {
		Sending  struct{ Requests int } `json:"sending"`
		Statuses map[string]int         `json:"statuses"`
	}
	harness.Check(json.Unmarshal([]byte(out), &report))
	want := "200"
	if refuse {
		want = "429"
	}
	all := report.Sending.Requests
	if n := report.Statuses[want]; n < all*99/100 || n == 0 {
		log.Fatalf("%s: of %d requests, %v were answered", s.name, all, report.Statuses)
	}
	return used.Seconds() * 1e6 / float64(all)
}

// named returns addr with the name in the certificate, by which Caddy finds it.
func named(addr string) string { return strings.Replace(addr, "127.0.0.1", "localhost", 1) }

func write(dir, name, text string) string {
	file := filepath.Join(dir, name)
	harness.Check(os.WriteFile(file, []byte(text), 0o600))
	return file
}

func nginx(dir, origin string, refuse bool) server {
	limit, use := "limit_req_zone $binary_remote_addr zone=all:10m rate=1000000r/s;", "limit_req zone=all burst=1000000 nodelay;"
	if refuse {
		limit, use = "limit_req_zone $binary_remote_addr zone=all:10m rate=1r/m;", "limit_req zone=all;"
	}
	addr := harness.FreeAddr()
	return server{"nginx", addr, harness.Nginx("0", dir, addr, fmt.Sprintf(`%s limit_req_status 429; limit_req_log_level info; quic_gso on;
		upstream origin { server %s; keepalive 1024; keepalive_requests 1000000000; }
		server { listen %s quic reuseport; listen %[3]s ssl; ssl_certificate %s/cert.pem; ssl_certificate_key %[4]s/key.pem;
			location / { %s proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection ""; } }`, limit, origin, addr, dir, use))}
}

func haproxy(dir, origin string, refuse bool) server {
	addr, cert := harness.FreeAddr(), " ssl crt "+dir+"/both.pem"
	file := write(dir, "haproxy-"+strconv.FormatBool(refuse), harness.HAProxyConfig(refuse, origin, "quic4@"+addr+cert+" alpn h3", addr+cert))
	return server{"HAProxy", addr, harness.Start("0", "haproxy", "-db", "-q", "-f", file)}
}

// caddy has no limiter of its own: it refuses everything.
func caddy(dir, origin string, refuse bool) server {
	handle := "reverse_proxy " + origin
	if refuse {
		handle = `respond "refused" 429`
	}
	addr := harness.FreeAddr()
	file := write(dir, "Caddyfile-"+strconv.FormatBool(refuse), fmt.Sprintf(`
{
	admin off
	auto_https off
	log {
		output discard
	}
}
https://%s {
	bind 127.0.0.1
	tls %s/cert.pem %[2]s/key.pem
	%s
}
`, named(addr), dir, handle))
	return server{"Caddy", addr, harness.StartLogging(func([]byte) {}, "0", "caddy", "run", "--adapter", "caddyfile", "--config", file)}
}

func node(dir, origin string, refuse bool) server {
	threshold := 1 << 40
	if refuse {
		threshold = 1
	}
	rules := write(dir, "rules-"+strconv.FormatBool(refuse), fmt.Sprintf(
		"rules:\n  - {id: all, characteristics: [ip], limits: [{threshold: %d, period: 1m}], mitigation_timeout: 1h}\n", threshold))
	addr := harness.FreeAddr()
	return server{"edge", addr, harness.Start("0", *edge, "node", "--name", "bench", "--rules", rules, "--listen", harness.FreeAddr(),
		"--tls-listen", addr, "--http3-listen", addr, "--tls-cert", dir+"/cert.pem", "--tls-key", dir+"/key.pem",
		"--metrics-listen", "", "--admin-listen", "", "--origin", "http://"+origin, "--log-level", "error")}
}
