// Package memcachedtest runs the real memcached for tests.
package memcachedtest

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Require is the variable that, if it is set, makes a test fail rather than be skipped
// where what it needs is not there, such as a program.
const Require = "EDGE_TEST_REQUIRE"

// Unavailable ends a test for want of what it needs: it is skipped or, if Require is set, fails.
func Unavailable(t testing.TB, why string) {
	t.Helper()
	if os.Getenv(Require) != "" {
		t.Fatalf("%s, and %s is set", why, Require)
	}
	t.Skip(why)
}

// patience is how long a test waits for memcached before it gives up. No test depends on
// its length.
const patience = 20 * time.Second

// A Process is a running memcached. It ends with the test.
type Process struct {
	// Addr is its host:port. It stays the same over Restart.
	Addr string

	t     testing.TB
	args  []string
	cmd   *exec.Cmd
	ended chan struct{}
}

// Start starts memcached on a free port of 127.0.0.1. Where it is not installed it is
// Unavailable.
func Start(t testing.TB, args ...string) *Process {
	t.Helper()
	path, err := exec.LookPath("memcached")
	if err != nil {
		Unavailable(t, "memcached is not installed")
	}
	if os.Geteuid() == 0 {
		args = append(args, "-u", "root")
	}
	p := &Process{t: t, args: append([]string{path, "-l", "127.0.0.1", "-U", "0"}, args...)}
	t.Cleanup(p.Kill)
	p.start("-1")
	return p
}

// start starts memcached on port; for -1 it finds a free one and tells which in a file.
func (p *Process) start(port string) {
	p.t.Helper()
	ports := filepath.Join(p.t.TempDir(), "ports")
	p.cmd = exec.Command(p.args[0], append(p.args[1:], "-p", port)...)
	p.cmd.Env = append(os.Environ(), "MEMCACHED_PORT_FILENAME="+ports)
	var stderr bytes.Buffer
	p.cmd.Stderr = &stderr
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	cmd, ended := p.cmd, make(chan struct{})
	p.ended = ended
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	giveUp := time.After(patience)
	for {
		select {
		case <-ended:
			p.t.Fatalf("memcached ended: %s", &stderr)
		case <-giveUp:
			p.t.Fatal("memcached did not say its port")
		case <-ticker.C:
		}
		text, err := os.ReadFile(ports)
		if err != nil {
			continue
		}
		if _, port, ok := strings.Cut(string(text), "TCP INET: "); ok {
			p.Addr = net.JoinHostPort("127.0.0.1", strings.TrimSpace(port))
			return
		}
	}
}

// Kill ends it at once. What it held is lost.
func (p *Process) Kill() {
	if p.cmd != nil && p.cmd.Process != nil {
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// Restart starts it again, empty, on the same port.
func (p *Process) Restart() {
	p.t.Helper()
	p.Kill()
	_, port, _ := net.SplitHostPort(p.Addr)
	p.start(port)
}

// Stall stops it as a machine that hangs does: its connections stay, nothing is answered.
func (p *Process) Stall() { p.signal(syscall.SIGSTOP) }

// Resume lets it go on.
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}
