package main

// What the tests of running processes have in common.

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edge/counter/shard/memcachedtest"
	"github.com/edgelimit/edge/internal/wait"
)

// patience is how long a test waits for what a process does before it gives up. No test
// depends on its length.
const patience = 2 * time.Minute

// An output is what a process has written so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // closed, and replaced, when there is more
}

func newOutput() *output { return &output{more: make(chan struct{})} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	close(o.more)
	o.more = make(chan struct{})
	return len(p), nil
}

// since returns what was written after the first n bytes, and a channel that is closed
// when there is more.
func (o *output) since(n int) (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()[n:], o.more
}

func (o *output) String() string {
	text, _ := o.since(0)
	return text
}

// mark returns a place in the output, for waitSince.
func (o *output) mark() int { return len(o.String()) }

// A process is a running command. It ends with the test.
type process struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr *output
	ended          chan struct{}
}

// start runs edge with args in dir.
func start(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	return startCommand(t, dir, nil, "edge", args...)
}

// startCommand runs a command in dir, with env beside the test's own environment without
// settings.
func startCommand(t *testing.T, dir string, env []string, name string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, environ(env...)
	return startPrepared(t, cmd)
}

// startPrepared runs cmd.
func startPrepared(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, stdout: newOutput(), stderr: newOutput(), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // its state is looked at
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("%s\nstdout:\n%s\nstderr:\n%s", strings.Join(cmd.Args, " "), p.stdout, p.stderr)
		}
	})
	return p
}

// wait waits until o has something that matches, and returns the match with its groups.
func (p *process) wait(o *output, expr string) []string {
	p.t.Helper()
	return p.waitSince(o, 0, expr)
}

// waitSince waits until o has something that matches after mark.
func (p *process) waitSince(o *output, mark int, expr string) []string {
	p.t.Helper()
	re := regexp.MustCompile(expr)
	giveUp := time.After(patience)
	for {
		// Whether it has ended is asked first: what it wrote before is then there.
		over := false
		select {
		case <-p.ended:
			over = true
		default:
		}
		text, more := o.since(mark)
		if m := re.FindStringSubmatch(text); m != nil {
			return m
		}
		if over {
			p.t.Fatalf("the process ended without %s", expr)
		}
		select {
		case <-more:
		case <-p.ended:
		case <-giveUp:
			p.t.Fatalf("the process did not write %s", expr)
		}
	}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// end waits for the end of the process and returns its exit code, or -1 if a signal ended
// it.
func (p *process) end() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatal("the process did not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

// terminate ends the process with SIGTERM, which must succeed.
func (p *process) terminate() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.end(); code != 0 {
		p.t.Errorf("exit code after SIGTERM = %d, want 0", code)
	}
}

// A node is a running edge node.
type node struct {
	*process
	http, https, metrics, admin string // its addresses
	rules                       string // its rules file
}

// generous are rules that stop nobody in a test.
const generous = "rules:\n  - {id: all, characteristics: [ip], limits: [{threshold: 100000, period: 1m}]}\n"

// startNode runs edge node with a rules file of its own.
func startNode(t *testing.T, rules string, args ...string) *node {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, file, rules)
	return startNodeOf(t, file, args...)
}

// startNodeOf runs edge node with rules that are there.
func startNodeOf(t *testing.T, rules string, args ...string) *node {
	t.Helper()
	args = append([]string{"node", "--name=n1", "--rules=" + rules, "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"}, args...)
	n := &node{process: start(t, t.TempDir(), args...), rules: rules}
	m := n.wait(n.stderr, `node runs.*\n`)
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

// replace writes a file as editors and deployment tools do, so that it is never there in
// part.
func replace(t *testing.T, file, text string) {
	t.Helper()
	write(t, file+".new", text)
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// from returns a client whose connections come from an address of this machine. Each
// request has its own.
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

// severalAddresses skips a test where the machine's loopback network is one address.
func severalAddresses(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		memcachedtest.Unavailable(t, "127.0.0.2 is no address of this machine")
	}
	_ = ln.Close()
}

// installed skips a test where a program is not.
func installed(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		memcachedtest.Unavailable(t, program+" is not installed")
	}
}

// An answer is one that was read to its end.
type answer struct {
	*http.Response
	body string
}

// get asks c for url.
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

// eventually waits until ok says true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	wait.Until(t, what, patience, 2*time.Millisecond, ok)
}

// shardStats returns the figures of memcached servers that count commands.
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

// allStats returns the figures of a memcached server.
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

// read reads what is sent next.
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
