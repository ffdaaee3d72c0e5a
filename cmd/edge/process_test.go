package main

// Helpers of tests that run processes.

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/harness"
)

const patience = harness.Patience

// A process is a running command. It ends with the test.
type process struct {
	*harness.Process
	t *testing.T
}

// start runs edge with args in dir.
func start(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	return startCommand(t, dir, nil, "edge", args...)
}

// startCommand runs a command in dir. Its environment is env and the test's own, without settings.
func startCommand(t *testing.T, dir string, env []string, name string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, environ(env...)
	return startPrepared(t, cmd)
}

// startPrepared runs cmd.
func startPrepared(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	return &process{harness.Start(t, cmd), t}
}

// A node is a running edge node.
type node struct {
	*process
	http, https, metrics, admin string // its addresses
	rules                       string // its rules file
}

// generous are rules that refuse nobody in a test.
const generous = "rules:\n  - {id: all, characteristics: [ip], limits: [{threshold: 100000, period: 1m}]}\n"

// startNode writes the rules to a file and runs edge node with it.
func startNode(t *testing.T, rules string, args ...string) *node {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, file, rules)
	return startNodeOf(t, file, args...)
}

// startNodeOf runs edge node with a rules file.
func startNodeOf(t *testing.T, rules string, args ...string) *node {
	t.Helper()
	args = append([]string{"node", "--name=n1", "--rules=" + rules, "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"}, args...)
	n := &node{process: start(t, t.TempDir(), args...), rules: rules}
	m := n.Wait(n.Stderr, `node started.*\n`)
	for name, addr := range map[string]*string{"http": &n.http, "https": &n.https, "metrics": &n.metrics, "admin": &n.admin} {
		if a := regexp.MustCompile(`\b` + name + `"?[=:]"?(127\.0\.0\.1:\d+)`).FindStringSubmatch(m[0]); a != nil {
			*addr = a[1]
		}
	}
	return n
}

// write writes a file.
func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// replace replaces a file at once, as editors and deployment tools do.
func replace(t *testing.T, file, text string) {
	t.Helper()
	write(t, file+".new", text)
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// from returns a client whose requests come from addr, each over its own connection.
func from(t *testing.T, addr string) *http.Client {
	t.Helper()
	transport := &http.Transport{
		DialContext:       dialer(addr).DialContext,
		DisableKeepAlives: true,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

func dialer(addr string) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
}

// severalAddresses requires that 127.0.0.2 is a local address.
func severalAddresses(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		harness.Unavailable(t, "127.0.0.2 is not a local address")
	}
	_ = ln.Close()
}

// An answer is a response with its whole body.
type answer struct {
	*http.Response
	body string
}

// get returns the answer of url.
func get(t *testing.T, c *http.Client, url string) answer {
	t.Helper()
	a, err := try(c, url)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func try(c *http.Client, url string) (answer, error) {
	resp, err := c.Get(url)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp, string(body)}, err
}

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	harness.Until(t, what, patience, 2*time.Millisecond, ok)
}

// shardStats returns the statistics of memcached servers that count commands.
func shardStats(t *testing.T, addrs []string) map[string]string {
	t.Helper()
	stats := map[string]string{}
	for _, addr := range addrs {
		for name, value := range allStats(t, addr) {
			for _, kind := range []string{"cmd_", "get_", "incr_", "decr_", "cas_", "delete_", "touch_"} {
				if strings.HasPrefix(name, kind) {
					stats[addr+" "+name] = value
				}
			}
		}
	}
	return stats
}

// allStats returns the statistics of a memcached server.
func allStats(t *testing.T, addr string) map[string]string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, err = io.WriteString(conn, "stats\r\nquit\r\n")
	text, readErr := io.ReadAll(conn)
	if err != nil || readErr != nil || !strings.Contains(string(text), "STAT cmd_get ") {
		t.Fatalf("stats of %s: %v, %v, %q", addr, err, readErr, text)
	}
	stats := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 {
			stats[f[1]] = f[2]
		}
	}
	return stats
}

// read returns the next bytes from conn.
func read(t *testing.T, conn net.Conn) string {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, 4096)
	n, err := conn.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}
