package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/edgelimit/edge/bench/harness"
)

// A bench is shared by all measurements.
type bench struct {
	dir     string
	origin  *server
	flooded bool // the servers refuse requests for /flood
}

func newBench(dir string) *bench {
	b := &bench{dir: dir}
	for _, size := range []int{128, 10_000} {
		b.write(strconv.Itoa(size), strings.Repeat("x", size))
	}
	harness.Certify(dir)
	addr := harness.FreeAddr()
	b.origin = b.startNginx("origin", loadCores, fmt.Sprintf(`server { listen %s; open_file_cache max=10; open_file_cache_valid 1h;
		location / { root %s; } location /done { return 200 "ok"; }
		location /upload { client_body_buffer_size 128k; proxy_pass http://%[1]s/done; proxy_pass_request_body off; proxy_set_header Content-Length ""; } }`, addr, dir)) // reads the body
	b.origin.addr = addr
	harness.WaitFor(addr)
	return b
}

func (b *bench) write(name, text string) string {
	file := filepath.Join(b.dir, name)
	harness.Check(os.WriteFile(file, []byte(text), 0o600))
	return file
}

// A server is a process that serves clients at addr, and over TLS at tls.
type server struct {
	name, addr, tls string
	cmd             *exec.Cmd
}

// start starts the servers in the order of the table.
func (b *bench) start(refuse bool) []*server {
	servers := []*server{b.nginx(refuse), b.haproxy(refuse), b.node("edge", *edge, refuse, "")}
	if *before != "" {
		servers = append(servers, b.node("before", *before, refuse, ""))
	}
	for _, s := range servers {
		harness.WaitFor(s.addr)
	}
	return servers
}

func (b *bench) run(name, cores string, args ...string) *server {
	s := &server{name: name, cmd: pinned(cores, args...)}
	s.cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	s.cmd.Stderr = os.Stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // even if Check ends the program
	harness.Check(s.cmd.Start())
	return s
}

// startNginx runs nginx as a single process.
func (b *bench) startNginx(name, cores, http string) *server {
	file := b.write(name+".conf", fmt.Sprintf(`daemon off; master_process off; pid %[1]s/%[2]s.pid; error_log %[1]s/%[2]s.log error; user root;
		events { worker_connections 60000; }
		http { access_log off; keepalive_requests 1000000000; log_not_found off;
		client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
		%[3]s }`, b.dir, name, http))
	return b.run(name, cores, "nginx", "-p", b.dir, "-c", file)
}

func (b *bench) nginx(refuse bool) *server {
	limit := "limit_req_zone $binary_remote_addr zone=all:10m rate=1000000r/s;"
	use := "limit_req zone=all burst=1000000 nodelay;"
	if refuse {
		limit, use = "limit_req_zone $binary_remote_addr zone=all:10m rate=1r/m;", "limit_req zone=all;"
	}
	flood := ""
	if b.flooded {
		limit += " limit_req_zone $binary_remote_addr zone=flood:1m rate=1r/m;"
		flood = "location /flood { limit_req zone=flood; proxy_pass http://origin; }"
	}
	addrs := harness.FreeAddrs(2)
	s := b.startNginx("nginx", "0", fmt.Sprintf(`%s limit_req_status 429; limit_req_log_level info;
		upstream origin { server %s; keepalive 1024; keepalive_requests 1000000000; }
		server { listen %s; listen %s ssl http2; ssl_certificate cert.pem; ssl_certificate_key key.pem; %s
			location / { %s proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_request_buffering off; } }`,
		limit, b.origin.addr, addrs[0], addrs[1], flood, use))
	s.addr, s.tls = addrs[0], addrs[1]
	return s
}

func (b *bench) haproxy(refuse bool) *server {
	addrs := harness.FreeAddrs(2)
	config := harness.HAProxyConfig(refuse, b.origin.addr, addrs[0], addrs[1]+" ssl crt "+b.dir+"/both.pem alpn h2,http/1.1")
	if b.flooded {
		config = strings.Replace(config, "	default_backend", "	http-request deny deny_status 429 if { path /flood }\n	default_backend", 1)
	}
	file := b.write("haproxy.cfg", config)
	s := b.run("HAProxy", "0", "haproxy", "-db", "-q", "-f", file)
	s.addr, s.tls = addrs[0], addrs[1]
	return s
}

func (b *bench) node(name, binary string, refuse bool, admin string) *server {
	threshold := 1 << 40
	if refuse {
		threshold = 1
	}
	text := fmt.Sprintf("rules:\n  - {id: all, characteristics: [ip], limits: [{threshold: %d, period: 1m}], mitigation_timeout: 1h}\n", threshold)
	if b.flooded {
		text += "  - {id: flood, match: {paths: [/flood]}, characteristics: [ip], limits: [{threshold: 1, period: 1m}], mitigation_timeout: 1h}\n"
	}
	rules := b.write(fmt.Sprintf("rules-%t.yaml", refuse), text)
	addrs := harness.FreeAddrs(2)
	s := b.run(name, "0", binary, "node", "--name", "bench", "--rules", rules, "--listen", addrs[0],
		"--tls-listen", addrs[1], "--tls-cert", filepath.Join(b.dir, "cert.pem"), "--tls-key", filepath.Join(b.dir, "key.pem"),
		"--metrics-listen", "", "--admin-listen", admin, "--admin-pprof", "--origin", "http://"+b.origin.addr, "--log-level", "error")
	s.addr, s.tls = addrs[0], addrs[1]
	return s
}

func (s *server) end() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait()
}

// ticks is the number of units of CPU time in /proc per second (USER_HZ).
const ticks = 100

// cpuTime returns the CPU time, user and system, that the process has used.
func (s *server) cpuTime() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	harness.Check(err)
	// The name in parentheses is followed by field 3.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.Atoi(fields[14-3])
	system, _ := strconv.Atoi(fields[15-3])
	return time.Duration(user+system) * time.Second / ticks
}
