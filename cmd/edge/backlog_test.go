package main

import (
	"bufio"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/edgelimit/edge/internal/harness"
)

// startUnread runs edge with its standard error in a full pipe that nobody reads, and returns the end to read.
func startUnread(t *testing.T, args ...string) (*harness.Process, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	defer w.Close()
	const capacity, fd = 64 << 10, 3
	if _, err := w.WriteString(strings.Repeat("full full full\n\n", capacity/16)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", append([]string{"-c", `exec edge "$@" 2>&3 3>&-`, "sh"}, args...)...)
	cmd.Env, cmd.ExtraFiles = environ(), []*os.File{w}
	return harness.Start(t, cmd), r
}

// A log that nobody reads delays neither requests nor the end of the node. Once it is read, it says how many lines
// are missing, and the others are whole.
func TestUnreadLog(t *testing.T) {
	t.Parallel()
	const requests = 1000
	dir, at, metricsAt := t.TempDir(), harness.ReservePort(t), harness.ReservePort(t)
	write(t, dir+"/rules.yaml", generous)
	p, log := startUnread(t, "node", "--name=n1", "--rules="+dir+"/rules.yaml", "--origin="+newOrigin(t).URL, "--access-log", "--listen="+at, "--metrics-listen="+metricsAt, "--admin-listen=127.0.0.1:0")
	eventually(t, "the node answers", func() bool {
		_, err := try(http.DefaultClient, "http://"+at+"/")
		return err == nil
	})
	path := "/" + strings.Repeat("a", 3<<10)
	flood := func() {
		for range requests {
			if a := get(t, http.DefaultClient, "http://"+at+path); a.StatusCode != http.StatusOK {
				t.Fatal(a.Status)
			}
		}
	}
	dropped := func() float64 { return value(t, metrics(t, metricsAt), "edge_log_lines_dropped_total") }
	flood()
	if dropped() == 0 {
		t.Fatal("no line was dropped")
	}
	lines := bufio.NewScanner(log)
	whole := regexp.MustCompile(`^(full full full|)$|^time=\S+ level=\S+ msg=.*[^a]$`)
	for reported := false; !reported; {
		if !lines.Scan() {
			t.Fatal("the log does not say how many lines are missing: ", lines.Err())
		}
		if !whole.MatchString(lines.Text()) {
			t.Fatalf("a line is not whole: %q", lines.Text())
		}
		reported = strings.Contains(lines.Text(), `msg="log lines dropped: they are written faster than read" lines=`)
	}
	before := dropped()
	flood() // nobody reads again
	if dropped() == before {
		t.Fatal("no line was dropped")
	}
	p.Terminate()
}

// A command that fails ends, although nobody reads why.
func TestUnreadError(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dir := t.TempDir()
	write(t, dir+"/rules.yaml", generous)
	for code, args := range [][]string{1: {"node", "--rules=" + dir + "/rules.yaml", "--origin=http://127.0.0.1:1", "--listen=" + ln.Addr().String()}, 2: {"node", "--no-such-flag"}} {
		if args == nil {
			continue
		}
		p, _ := startUnread(t, args...)
		if got := p.End(); got != code {
			t.Errorf("edge %v: exit code %d, want %d", args, got, code)
		}
	}
}

// What was logged before the end is written.
func TestLastLines(t *testing.T) {
	t.Parallel()
	n := startNode(t, generous, "--origin=http://127.0.0.1:1")
	n.Signal(syscall.SIGTERM)
	if n.End(); !strings.Contains(n.Stderr.String(), `msg="node stopping"`) {
		t.Error("the last line is missing")
	}
}
