package harness

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A Server is a process that listens on a port of 127.0.0.1, and ends with the test.
type Server struct {
	*Process        // the current one
	Addr     string // host:port, which Restart keeps
}

// StartMemcached starts a real memcached with args. It skips the test if memcached is not installed.
func StartMemcached(t testing.TB, args ...string) *Server {
	t.Helper()
	if os.Geteuid() == 0 {
		args = append(args, "-u", "root")
	}
	return serve(t, "memcached", "-p", append([]string{"-l", "127.0.0.1", "-U", "0"}, args...))
}

// StartRedis starts redis-server with args, without data on disk. It skips the test if redis-server is not installed.
func StartRedis(t testing.TB, args ...string) *Server {
	t.Helper()
	own := []string{"--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", ""}
	return serve(t, "redis-server", "--port", append(own, args...))
}

// Run returns the answer of a Redis to a command of redis-cli, which shares no code with ours. It gives no password.
func (s *Server) Run(args ...string) string {
	s.t.Helper()
	_, port, _ := net.SplitHostPort(s.Addr)
	answer, err := exec.Command("redis-cli", append([]string{"-p", port}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("redis-cli %v: %v: %s", args, err, answer)
	}
	return strings.TrimSpace(string(answer))
}

// serve starts a program with args on a free port, which it passes after portFlag.
func serve(t testing.TB, program, portFlag string, args []string) *Server {
	t.Helper()
	path := Installed(t, program)
	s := &Server{Addr: ReservePort(t)}
	_, port, _ := net.SplitHostPort(s.Addr)
	s.start(t, exec.Command(path, append([]string{portFlag, port}, args...)...))
	return s
}

// start starts cmd and waits until it listens.
func (s *Server) start(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	s.Process = Start(t, cmd)
	Until(t, cmd.Path+" listens", Patience, 5*time.Millisecond, func() bool {
		if s.HasEnded() {
			t.Fatal(cmd.Path, "ended")
		}
		conn, err := net.Dial("tcp", s.Addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// Restart kills the server, which loses its items, and starts it again on the same port.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.start(s.t, exec.Command(s.Cmd.Path, s.Cmd.Args[1:]...))
}

// Stall stops the server: its connections stay open, and it answers nothing.
func (s *Server) Stall() { s.t.Helper(); s.Signal(syscall.SIGSTOP) }

// Resume continues the server after Stall.
func (s *Server) Resume() { s.t.Helper(); s.Signal(syscall.SIGCONT) }
