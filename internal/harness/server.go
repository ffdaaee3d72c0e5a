package harness

import (
	"net"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// A Server is a process that listens on a port of its own, and ends with the test.
type Server struct {
	*Process        // the current one
	Addr     string // host:port, which Restart keeps
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
