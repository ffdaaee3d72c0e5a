// Package memcachedtest runs the real memcached for tests.
package memcachedtest

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/port"
)

// Require is the variable that, if it is set, makes a test fail rather than be skipped
// where what it needs is not there, such as a program.
const Require = "EDGE_TEST_REQUIRE"

// Unavailable skips a test whose requirements are missing or, if Require is set, fails it.
func Unavailable(t testing.TB, why string) {
	t.Helper()
	if os.Getenv(Require) != "" {
		t.Fatalf("%s, and %s is set", why, Require)
	}
	t.Skip(why)
}

// patience is how long a test waits for memcached before it gives up. No test depends on
// its length.
const patience = 2 * time.Minute

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
	addr := port.Reserve(t)
	_, number, _ := net.SplitHostPort(addr)
	p := &Process{Addr: addr, t: t, args: append([]string{path, "-l", "127.0.0.1", "-U", "0", "-p", number}, args...)}
	t.Cleanup(p.Kill)
	p.start()
	return p
}

// start starts memcached, and waits until it listens: then it writes a file.
func (p *Process) start() {
	p.t.Helper()
	ports := filepath.Join(p.t.TempDir(), "ports")
	p.cmd = exec.Command(p.args[0], p.args[1:]...)
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
			p.t.Fatal("memcached does not listen")
		case <-ticker.C:
		}
		if _, err := os.Stat(ports); err == nil {
			return
		}
	}
}

// PID returns the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

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
	p.start()
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
