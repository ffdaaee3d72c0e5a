package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
)

// Ctrl-C ends a run early, with a report of what was done.
func TestLoadInterrupted(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{} }))
	defer server.Close()
	p := start(t, t.TempDir(), "load", "--rate=100/s", "--duration=1h", "--fail-if", "sending.requests > 1000000", server.URL)
	for range 5 {
		<-asked
	}
	p.signal(syscall.SIGINT)
	if code := p.end(); code != 0 {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}
	if out := p.stdout.String(); !strings.Contains(out, "interrupted before its end") || !strings.Contains(out, "× 200") {
		t.Errorf("the report is\n%s", out)
	}
}

// Progress is for terminals.
func TestLoadInAPipe(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	p := start(t, t.TempDir(), "load", "--rate=100/s", "--duration=1500ms", "--json", server.URL)
	if code := p.end(); code != 0 || p.stderr.String() != "" {
		t.Errorf("exit code %d, stderr %q", code, p.stderr)
	}
}
