package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/harness"
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

// Ctrl-C ends a replay that waits for somebody to write to a named pipe.
func TestReplayInterruptedWhileOpening(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ignored := make(chan os.Signal, 1) // until the command waits for the signal
	signal.Notify(ignored, os.Interrupt)
	defer signal.Stop(ignored)
	code := make(chan int, 1)
	var stderr bytes.Buffer
	go func() { code <- run([]string{"replay", pipe}, io.Discard, &stderr) }()
	harness.Until(t, "the end of the command", patience, 10*time.Millisecond, func() bool {
		_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
		return len(code) > 0
	})
	if got := <-code; got != 1 || !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("exit code %d, %s", got, &stderr)
	}
	if f, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil { // so that nothing waits any more
		_ = f.Close()
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
