package browser

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A process is an edge command that runs.
type process struct{ pid int }

// start builds the command and starts it with rules. It returns once the output has as many lines that
// match pattern as nodes are expected, with the submatches of each.
func start(t testing.TB, rules string, nodes int, pattern string, args ...string) (p *process, found [][]string) {
	t.Helper()
	dir := t.TempDir()
	edge, file := filepath.Join(dir, "edge"), filepath.Join(dir, "rules.yaml")
	build := exec.Command("go", "build", "-o", edge, "./cmd/edge")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.WriteFile(file, []byte(rules), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(edge, append(args, "--rules="+file)...)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = out.Close()
	})
	var log strings.Builder
	for lines := bufio.NewScanner(out); len(found) < nodes; {
		if !lines.Scan() {
			t.Fatalf("%v ended:\n%s", args, &log)
		}
		fmt.Fprintln(&log, lines.Text())
		if m := regexp.MustCompile(pattern).FindStringSubmatch(lines.Text()); m != nil {
			found = append(found, m[1:])
		}
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // until the process ends, so that it can write
	return &process{cmd.Process.Pid}, found
}
