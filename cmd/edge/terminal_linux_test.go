package main

// Tests of what terminals show while a command runs.

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/edgelimit/edge/internal/harness"
)

// openTerminal returns the two ends of a pseudo-terminal: screen receives what is written to tty.
func openTerminal(t *testing.T, columns uint16) (screen, tty *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		harness.Unavailable(t, fmt.Sprintf("there are no pseudo-terminals: %v", err))
	}
	t.Cleanup(func() { _ = screen.Close() })
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetUint32(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(screen.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return screen, tty
}

// onTerminal runs edge to its end with a terminal as standard error, and returns the output to the terminal and
// to standard output. It presses Ctrl-C when until is shown, unless until is empty.
func onTerminal(t *testing.T, columns uint16, dir, until string, args ...string) (stderr, stdout string) {
	t.Helper()
	screen, tty := openTerminal(t, columns)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "edge", args...)
	out := harness.NewOutput()
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, environ(), out, tty
	err := cmd.Start()
	_ = tty.Close()
	if err != nil {
		t.Fatal(err)
	}
	shown := harness.NewOutput()
	for buf := make([]byte, 4096); ; {
		n, err := screen.Read(buf)
		_, _ = shown.Write(buf[:n])
		if err != nil {
			break // the terminal was closed
		}
		if until != "" && regexp.MustCompile(until).MatchString(shown.String()) {
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			until = ""
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("edge %s: %v; the terminal shows %q", strings.Join(args, " "), err, shown)
	}
	return shown.String(), out.String()
}

// While edge load sends, a line shows its progress. The line is erased at the end.
func TestLoadOnATerminal(t *testing.T) {
	t.Parallel()
	var asked atomic.Uint64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch asked.Add(1) % 3 {
		case 0:
			w.WriteHeader(http.StatusTooManyRequests)
		case 1:
			panic(http.ErrAbortHandler)
		}
	}))
	defer server.Close()
	args := []string{"load", "--rate=100/s", "--duration=1h", server.URL}
	const clear = "\r\x1b[K"
	shown, report := onTerminal(t, 200, t.TempDir(), `[1-9]\d* refused, [1-9]\d* failed`, args...)
	lines := strings.Split(shown, clear)
	if len(lines) < 3 || lines[0] != "" || lines[len(lines)-1] != "" {
		t.Fatalf("the terminal shows %q", shown)
	}
	line := regexp.MustCompile(`^(\d+m)?\d+s/1h0m0s: \d+ sent, \d+/s, \d+ refused, \d+ failed, \d+ waiting, p50 \d+\.\d, p99 \d+\.\d ms$`)
	for _, l := range lines[1 : len(lines)-1] {
		if !line.MatchString(l) {
			t.Errorf("unexpected line %q", l)
		}
	}
	if !strings.Contains(report, "answered 429") || strings.Contains(report, "\x1b") {
		t.Errorf("report: %q", report)
	}
	// A line that wraps cannot be erased.
	shown, _ = onTerminal(t, 30, t.TempDir(), `[1-9]\d* sent`, args...)
	for l := range strings.SplitSeq(shown, clear) {
		if len(l) >= 30 {
			t.Errorf("line %q is too long for 30 columns", l)
		}
	}
	if shown, _ := onTerminal(t, 80, t.TempDir(), "", append(args, "--progress=false", "--requests=10")...); shown != "" {
		t.Errorf("the terminal shows %q with --progress=false", shown)
	}
}

// While edge replay reads, a line shows its progress. The line is erased at the end.
func TestReplayOnATerminal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var log strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&log, "192.0.2.%d - - [21/Nov/2026:10:%02d:%02d +0000] \"GET /%d HTTP/1.1\" 200 5\n", i%200, i/1000, i%1000*60/1000, i%7)
	}
	write(t, filepath.Join(dir, "access.log"), log.String())
	write(t, filepath.Join(dir, "rules.yaml"), generous)
	args := []string{"replay", "rules", "rules.yaml", "access.log"}
	shown, report := onTerminal(t, 80, dir, "", args...)
	if !regexp.MustCompile(`^(\r\x1b\[K\d+s: \d+ MB read, \d+% of 3 MB)+\r\x1b\[K$`).MatchString(shown) {
		t.Errorf("the terminal shows %q", shown)
	}
	if !strings.Contains(report, "50,000") || strings.Contains(report, "\x1b") {
		t.Errorf("report: %q", report)
	}
	if shown, _ := onTerminal(t, 80, dir, "", append(args, "--progress=false")...); shown != "" {
		t.Errorf("the terminal shows %q with --progress=false", shown)
	}
}
