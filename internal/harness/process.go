package harness

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Patience is how long a test waits for a process before it fails. No test depends on its length.
const Patience = 2 * time.Minute

// A Process is a running program, which is killed when the test ends. A failed test logs its output.
type Process struct {
	Cmd            *exec.Cmd
	Stdout, Stderr *Output
	Ended          <-chan struct{} // closed when the process has ended

	t testing.TB
}

// Start starts cmd and captures its output.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	ended := make(chan struct{})
	p := &Process{t: t, Cmd: cmd, Stdout: NewOutput(), Stderr: NewOutput(), Ended: ended}
	cmd.Stdout, cmd.Stderr = p.Stdout, p.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait() // sets cmd.ProcessState
		close(ended)
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s\nstdout:\n%s\nstderr:\n%s", strings.Join(cmd.Args, " "), p.Stdout, p.Stderr)
		}
	})
	return p
}

// Wait waits until o matches expr, and returns the match and its groups.
func (p *Process) Wait(o *Output, expr string) []string {
	p.t.Helper()
	return p.WaitSince(o, 0, expr)
}

// WaitSince waits until the output after the first n bytes matches expr, and returns the match and
// its groups.
func (p *Process) WaitSince(o *Output, n int, expr string) []string {
	p.t.Helper()
	re := regexp.MustCompile(expr)
	giveUp := time.After(Patience)
	for {
		ended := p.HasEnded() // checked first: after the end, the output read next is complete
		text, more := o.since(n)
		if m := re.FindStringSubmatch(text); m != nil {
			return m
		}
		if ended {
			p.t.Fatalf("the process ended without writing %s", expr)
		}
		select {
		case <-more:
		case <-p.Ended:
		case <-giveUp:
			p.t.Fatalf("the process did not write %s", expr)
		}
	}
}

// HasEnded reports whether the process has ended.
func (p *Process) HasEnded() bool {
	select {
	case <-p.Ended:
		return true
	default:
		return false
	}
}

// Signal sends a signal to the process.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// Kill kills the process and waits until it has ended.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill()
	<-p.Ended
}

// End waits until the process has ended and returns its exit code, or -1 if a signal ended it.
func (p *Process) End() int {
	p.t.Helper()
	select {
	case <-p.Ended:
	case <-time.After(Patience):
		p.t.Fatal("the process did not end")
	}
	return p.Cmd.ProcessState.ExitCode()
}

// Terminate sends SIGTERM to the process, which must exit with 0.
func (p *Process) Terminate() {
	p.t.Helper()
	p.Signal(syscall.SIGTERM)
	if code := p.End(); code != 0 {
		p.t.Errorf("exit code after SIGTERM = %d, want 0", code)
	}
}

// An Output holds the output of a process so far.
type Output struct {
	mu   sync.Mutex // guards the fields below
	text bytes.Buffer
	more chan struct{} // closed, and replaced, by each write
}

// NewOutput returns an empty output.
func NewOutput() *Output { return &Output{more: make(chan struct{})} }

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	close(o.more)
	o.more = make(chan struct{})
	return len(p), nil
}

// since returns the output after the first n bytes, and a channel that the next write closes.
func (o *Output) since(n int) (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()[n:], o.more
}

// String returns the output so far.
func (o *Output) String() string {
	text, _ := o.since(0)
	return text
}

// Len returns the length of the output so far, in bytes, for WaitSince.
func (o *Output) Len() int { return len(o.String()) }
