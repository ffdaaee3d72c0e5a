package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Files without an end are refused at a bound.
func TestEndlessFiles(t *testing.T) {
	for _, args := range []string{
		"check /dev/zero", "replay rules /dev/zero access.log", "replay generate /dev/zero", "import nginx /dev/zero",
		"import ingress-nginx /dev/zero", "node --config /dev/zero", "check --test /dev/zero",
		"load --rules /dev/zero --rate 1/s http://127.0.0.1:1/", "load --body @/dev/zero http://127.0.0.1:1/",
	} {
		var stdout, stderr bytes.Buffer
		if code := run(strings.Fields(args), &stdout, &stderr); code == 0 || !strings.Contains(stderr.String(), "/dev/zero has more than 32 MiB") {
			t.Errorf("edge %s: exit code %d, %s%s", args, code, stdout.String(), stderr.String())
		}
	}
}

// Ctrl-C ends a replay at once, even while it waits for somebody to write to a named pipe.
func TestReplayInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, dir, "replay", "pipe")
	p.Signal(syscall.SIGINT)
	if code := p.End(); code != -1 {
		t.Errorf("exit code %d, want -1, for a signal", code)
	}
}

// An answer that is not an object, such as null, is not a node's.
func TestOddAnswers(t *testing.T) {
	for _, body := range []string{"null", "[]", "7", ""} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
		defer server.Close()
		addr := strings.TrimPrefix(server.URL, "http://")
		for _, command := range []string{"status", "status --json", "mitigations", "shards", "explain 192.0.2.1"} {
			var stdout, stderr bytes.Buffer
			code := run(append(strings.Fields(command), "--node", addr), &stdout, &stderr)
			if code != 1 || !strings.Contains(stderr.String(), "not a node's admin listener") || stdout.Len() > 0 {
				t.Errorf("edge %s, answered with %q: exit code %d, %s%s", command, body, code, &stdout, &stderr)
			}
		}
	}
}
