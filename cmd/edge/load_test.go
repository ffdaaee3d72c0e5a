package main

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/edgelimit/edge/load"
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

// A reader notes how large a file is when something is written for it to read.
type reader struct {
	file string
	size int64
}

func (r *reader) Write(b []byte) (int, error) {
	if info, err := os.Stat(r.file); err == nil && r.size == 0 {
		r.size = info.Size()
	}
	return len(b), nil
}

// Who reads the report may stop, as head does, which ends the process: the log is there by then.
func TestLoadLogComesFirst(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	target, err := load.ParseTarget(t.Context(), server.URL, false)
	if err != nil {
		t.Fatal(err)
	}
	o := load.Options{Targets: []load.Target{target}, Requests: 5, Source: &load.Steady{Profile: []load.Point{{Rate: 1000}}, Look: load.Look{Method: "GET"}}}
	r := &reader{file: filepath.Join(t.TempDir(), "run.log")}
	err = runLoad(t.Context(), o, &oracleFlags{log: r.file}, loadOutput{stdout: r}, progressLine{end: func() {}})
	if err != nil || r.size == 0 {
		t.Errorf("%v; the log had %d bytes when the report was written", err, r.size)
	}
}

// A target on this machine keeps half of the cores, where requests are sent as fast as they can be.
func TestLoadLeavesCores(t *testing.T) {
	all := runtime.GOMAXPROCS(4)
	defer runtime.GOMAXPROCS(all)
	here := []load.Target{{Addr: netip.MustParseAddrPort("127.0.0.1:80")}}
	elsewhere := []load.Target{{Addr: netip.MustParseAddrPort("10.0.0.1:80")}}
	for _, test := range []struct {
		o    load.Options
		env  string
		want int
	}{
		{load.Options{Targets: here, ClosedLoop: true}, "", 2},
		{load.Options{Targets: here, ClosedLoop: true}, "4", 4},
		{load.Options{Targets: elsewhere, ClosedLoop: true}, "", 4},
		{load.Options{Targets: here}, "", 4},
	} {
		t.Setenv("GOMAXPROCS", test.env)
		back := leaveCores(test.o)
		if got := runtime.GOMAXPROCS(0); got != test.want {
			t.Errorf("%v, GOMAXPROCS=%q: %d cores, want %d", test.o.Targets[0].Addr, test.env, got, test.want)
		}
		if back(); runtime.GOMAXPROCS(0) != 4 {
			t.Errorf("it keeps %d cores", runtime.GOMAXPROCS(0))
		}
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
