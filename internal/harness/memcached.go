package harness

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A Memcached is a real memcached, which ends with the test.
type Memcached struct {
	*Process        // the current one
	Addr     string // host:port, which Restart keeps
}

// StartMemcached starts memcached with args on a free port of 127.0.0.1, if it is installed.
func StartMemcached(t testing.TB, args ...string) *Memcached {
	t.Helper()
	path := Installed(t, "memcached")
	if os.Geteuid() == 0 {
		args = append(args, "-u", "root")
	}
	m := &Memcached{Addr: ReservePort(t)}
	_, port, _ := net.SplitHostPort(m.Addr)
	m.start(t, exec.Command(path, append([]string{"-l", "127.0.0.1", "-U", "0", "-p", port}, args...)...))
	return m
}

// start starts cmd and waits until it listens. It then writes its port to a file.
func (m *Memcached) start(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	ports := filepath.Join(t.TempDir(), "ports")
	cmd.Env = append(os.Environ(), "MEMCACHED_PORT_FILENAME="+ports)
	m.Process = Start(t, cmd)
	Until(t, "memcached listens", Patience, 5*time.Millisecond, func() bool {
		if m.HasEnded() {
			t.Fatal("memcached ended")
		}
		_, err := os.Stat(ports)
		return err == nil
	})
}

// Restart kills memcached, which loses its items, and starts it again on the same port.
func (m *Memcached) Restart() {
	m.t.Helper()
	m.Kill()
	m.start(m.t, exec.Command(m.Cmd.Path, m.Cmd.Args[1:]...))
}

// Stall stops memcached: its connections stay open, and it answers nothing.
func (m *Memcached) Stall() { m.t.Helper(); m.Signal(syscall.SIGSTOP) }

// Resume continues memcached after Stall.
func (m *Memcached) Resume() { m.t.Helper(); m.Signal(syscall.SIGCONT) }
