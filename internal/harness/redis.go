package harness

import (
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A Redis is a real Redis, which ends with the test.
type Redis struct {
	*Process        // the current one
	Addr     string // host:port, which Restart keeps
	socket   string // of its own clients, without password
}

// StartRedis starts redis-server with args on a free port of 127.0.0.1, if it is installed. It keeps nothing on disk.
func StartRedis(t testing.TB, args ...string) *Redis {
	t.Helper()
	path := Installed(t, "redis-server")
	dir := t.TempDir()
	r := &Redis{Addr: ReservePort(t), socket: filepath.Join(dir, "s")}
	_, port, _ := net.SplitHostPort(r.Addr)
	own := []string{"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--unixsocket", r.socket, "--save", "",
		"--logfile", filepath.Join(dir, "log")}
	r.start(t, exec.Command(path, append(own, args...)...))
	return r
}

// start starts cmd and waits until it answers.
func (r *Redis) start(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	r.Process = Start(t, cmd)
	Until(t, "redis-server answers", Patience, 5*time.Millisecond, func() bool {
		if r.HasEnded() {
			t.Fatal("redis-server ended")
		}
		answer, err := exec.Command("redis-cli", "-s", r.socket, "PING").CombinedOutput()
		return err == nil && !strings.Contains(string(answer), "Could not connect")
	})
}

// Run returns the answer to a command of redis-cli, which shares no code with ours.
func (r *Redis) Run(args ...string) string {
	r.t.Helper()
	answer, err := exec.Command("redis-cli", append([]string{"-s", r.socket}, args...)...).CombinedOutput()
	if err != nil {
		r.t.Fatalf("redis-cli %v: %v: %s", args, err, answer)
	}
	return strings.TrimSpace(string(answer))
}

// Restart kills the server, which loses its items, and starts it again on the same port.
func (r *Redis) Restart() {
	r.t.Helper()
	r.Kill()
	r.start(r.t, exec.Command(r.Cmd.Path, r.Cmd.Args[1:]...))
}

// Stall stops the server: its connections stay open, and it answers nothing.
func (r *Redis) Stall() { r.t.Helper(); r.Signal(syscall.SIGSTOP) }

// Resume continues the server after Stall.
func (r *Redis) Resume() { r.t.Helper(); r.Signal(syscall.SIGCONT) }
