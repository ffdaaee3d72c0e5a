package harness

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Memcached starts a memcached of 2 GiB on some cores, whose hash table need not grow for up to six million items,
// and returns its address once it listens.
func Memcached(cores string) (p *Process, addr string) {
	addr = FreeAddr()
	return MemcachedAt(cores, addr, "-m", "2048", "-o", "hashpower=22"), addr
}

// MemcachedAt starts a memcached on some cores, and returns it once it listens on addr.
func MemcachedAt(cores, addr string, args ...string) *Process {
	_, port, _ := net.SplitHostPort(addr)
	p := Start(cores, "memcached", append([]string{"-l", "127.0.0.1", "-p", port, "-U", "0", "-u", "root"}, args...)...)
	WaitFor(addr)
	select {
	case <-p.ended: // another program listens there
		Check(fmt.Errorf("memcached cannot listen on %s", addr))
	case <-time.After(50 * time.Millisecond):
	}
	return p
}

// Redis starts a Redis on some cores, and returns its address once it listens.
func Redis(cores string) (p *Process, addr string) {
	addr = FreeAddr()
	return RedisAt(cores, addr), addr
}

// RedisAt starts a Redis that saves nothing on some cores, and returns it once it listens on addr.
func RedisAt(cores, addr string, args ...string) *Process {
	_, port, _ := net.SplitHostPort(addr)
	p := Start(cores, "redis-server", append([]string{"--bind", "127.0.0.1", "--port", port, "--save", ""}, args...)...)
	WaitFor(addr)
	return p
}

// Nginx starts nginx on some cores as a single process with the given contents of its http block, and returns
// once it listens on addr. Its files are in dir.
func Nginx(cores, dir, addr, http string) *Process {
	file := filepath.Join(dir, "nginx-"+strings.ReplaceAll(addr, ":", "-"))
	Check(os.WriteFile(file+".conf", fmt.Appendf(nil, `daemon off; master_process off; pid %[1]s.pid; error_log stderr error;
		events { worker_connections 4096; }
		http { client_body_temp_path %[1]s.body; proxy_temp_path %[1]s.proxy; fastcgi_temp_path %[1]s.f; uwsgi_temp_path %[1]s.u; scgi_temp_path %[1]s.s;
		access_log off; keepalive_requests 1000000000; %[2]s }`, file, http), 0o600))
	p := Start(cores, "nginx", "-e", "stderr", "-p", dir, "-c", file+".conf")
	WaitFor(addr)
	return p
}

// An Origin is an nginx that answers every request with 200.
type Origin struct {
	*Process
	Addr  string
	asked int
}

// StartOrigin starts an origin on some cores.
func StartOrigin(cores, dir string) *Origin {
	o := &Origin{Addr: FreeAddr()}
	o.Process = Nginx(cores, dir, o.Addr, "server { listen "+o.Addr+` backlog=4096; location / { return 200 "hello\n"; } location /status { stub_status; } }`)
	return o
}

// Requests returns the number of requests to the origin, except those of this method.
func (o *Origin) Requests() (n int) {
	resp, err := http.Get("http://" + o.Addr + "/status")
	Check(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	Check(err)
	o.asked++
	n, err = strconv.Atoi(find(`\n \d+ \d+ (\d+)`, string(text)))
	Check(err)
	return n - o.asked
}

// HAProxyConfig returns a configuration of HAProxy that passes requests to origin, or refuses them all. binds are the
// addresses where it listens, with their options.
func HAProxyConfig(refuse bool, origin string, binds ...string) string {
	threshold := 1 << 30
	if refuse {
		threshold = 1
	}
	return fmt.Sprintf(`
global
	nbthread 1
	maxconn 30000
	no strict-limits
defaults
	mode http
	timeout connect 5s
	timeout client 60s
	timeout server 60s
frontend clients
	bind %s
	stick-table type ip size 1m expire 1h store http_req_rate(60s)
	http-request track-sc0 src
	http-request deny deny_status 429 if { sc_http_req_rate(0) gt %d }
	default_backend origin
backend origin
	http-reuse always
	server origin %s
`, strings.Join(binds, "\n\tbind "), threshold, origin)
}
