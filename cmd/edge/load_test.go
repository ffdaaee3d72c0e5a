package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edge/load"
)

// Ctrl-C ends a run early with a report.
func TestLoadInterrupted(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{} }))
	defer server.Close()
	p := start(t, t.TempDir(), "load", "--rate=100/s", "--duration=1h", "--fail-if", "sending.requests > 1000000", server.URL)
	for range 5 {
		select {
		case <-asked:
		case <-p.Ended:
			t.Fatal("edge load ended early")
		case <-time.After(patience):
			t.Fatal("edge load sends nothing")
		}
	}
	p.Signal(syscall.SIGINT)
	if code := p.End(); code != 0 {
		t.Errorf("exit code %d: %s", code, p.Stderr)
	}
	if out := p.Stdout.String(); !strings.Contains(out, "interrupted before its end") || !strings.Contains(out, "answered 200") {
		t.Errorf("report:\n%s", out)
	}
}

// A sizeRecorder reads a report, and records the size of a file when the report begins.
type sizeRecorder struct {
	file string
	size int64
}

func (r *sizeRecorder) Write(b []byte) (int, error) {
	if info, err := os.Stat(r.file); err == nil && r.size == 0 {
		r.size = info.Size()
	}
	return len(b), nil
}

// load404 sends requests at this rate, at most most of them unless that is zero, to a server that has no pages.
func load404(t *testing.T, rate float64, most uint64, judge *judgeFlags, report io.Writer) error {
	t.Helper()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	target, err := load.ParseTarget(t.Context(), server.URL, false)
	if err != nil {
		t.Fatal(err)
	}
	o := load.Options{Targets: []load.Target{target}, Requests: most, Source: &load.Steady{Profile: []load.Point{{Rate: rate}}, Look: load.Look{Method: "GET"}}}
	return runLoad(t.Context(), o, judge, loadOutput{}, report, progressLine{})
}

// A reader of the report may stop reading, as head does, which ends the process. The log is complete by then.
func TestLoadWritesLogFirst(t *testing.T) {
	r := &sizeRecorder{file: filepath.Join(t.TempDir(), "run.log")}
	err := load404(t, 1000, 5, &judgeFlags{log: r.file}, r)
	if err != nil || r.size == 0 {
		t.Errorf("%v; the log had %d bytes when the report was written", err, r.size)
	}
}

// A run whose first request would be due after its end says so, not how soon it noticed.
func TestLoadWithoutRequests(t *testing.T) {
	err := load404(t, 0, 0, &judgeFlags{}, io.Discard)
	const want = "nothing was sent: no request was due before the run ended"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// If requests are sent as fast as possible to a target on this machine, it keeps half of the cores.
func TestLoadLeavesCores(t *testing.T) {
	all := runtime.GOMAXPROCS(4)
	defer runtime.GOMAXPROCS(all)
	here := []load.Target{{Addr: netip.MustParseAddrPort("127.0.0.1:80")}}
	unspecified := []load.Target{{Addr: netip.MustParseAddrPort("0.0.0.0:80")}}
	elsewhere := []load.Target{{Addr: netip.MustParseAddrPort("10.0.0.1:80")}}
	for _, test := range []struct {
		o    load.Options
		env  string
		want int
	}{
		{load.Options{Targets: here, ClosedLoop: true}, "", 2},
		{load.Options{Targets: here, ClosedLoop: true}, "4", 4},
		{load.Options{Targets: unspecified, ClosedLoop: true}, "", 2},
		{load.Options{Targets: elsewhere, ClosedLoop: true}, "", 4},
		{load.Options{Targets: here}, "", 4},
	} {
		t.Setenv("GOMAXPROCS", test.env)
		restore := leaveCores(test.o)
		if got := runtime.GOMAXPROCS(0); got != test.want {
			t.Errorf("%v, GOMAXPROCS=%q: %d cores, want %d", test.o.Targets[0].Addr, test.env, got, test.want)
		}
		if restore(); runtime.GOMAXPROCS(0) != 4 {
			t.Errorf("%d cores after restoring, want 4", runtime.GOMAXPROCS(0))
		}
	}
}

// A target that does not answer is reported long before the end of the run.
func TestLoadUnanswered(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for c, err := ln.Accept(); err == nil; c, err = ln.Accept() {
			defer c.Close()
			_, _ = io.WriteString(c, "220 mail.example.com\r\n\r\n")
		}
	}()
	p := start(t, t.TempDir(), "load", "--rate=100/s", "--timeout=1m", "--duration=1h", "http://"+ln.Addr().String())
	want := "edge: " + ln.Addr().String() + " did not answer any request\n"
	if code := p.End(); code != 1 || !strings.Contains(p.Stderr.String(), want) || !strings.Contains(p.Stdout.String(), "ended early: no request was answered") {
		t.Errorf("exit code %d, stderr %q, want 1 and %q; stdout\n%s", code, p.Stderr, want, p.Stdout)
	}
}

// Mixes and logs have their own duration, which is printed in advance. A run with -n alone lasts until all
// requests are sent.
func TestLoadDuration(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	write(t, dir+"/short.yaml", "duration: 1500ms\ncomponents: [{name: all, steady: {clients: 1, rate: 10/1s}}]\n")
	write(t, dir+"/access.log", `203.0.113.7 - - [02/Jan/2026:15:00:05 +0000] "GET /a HTTP/1.1" 200 512 "-" "curl/8.5.0"
203.0.113.8 - - [02/Jan/2026:15:59:05 +0000] "GET /b HTTP/1.1" 200 512 "-" "curl/8.5.0"
`)
	const mixed = `203.0.113.7 - - [02/Jan/2026:15:00:05 +0000] "GET /a HTTP/1.1" 200 512 "-" "curl/8.5.0"
no request
203.0.113.8 - - [02/Jan/2026:15:00:05 +0000] "GET /b HTTP/1.1" 200 512 "-" "curl/8.5.0"
`
	write(t, dir+"/mixed.log", mixed)
	var z bytes.Buffer
	compressor := gzip.NewWriter(&z)
	fmt.Fprint(compressor, strings.Repeat(mixed, 100))
	if err := compressor.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/cut.gz", string(z.Bytes()[:z.Len()-4]))
	write(t, dir+"/own.log", "2026-01-02T15:00:05Z|203.0.113.7|/a\n")
	const malformed = `edge: read 2 of 3 lines \(66.7%\); the others, of which the first follow, look like .*\n    mixed.log:2: .*\n`
	for _, test := range []struct {
		name     string
		args     []string
		stderr   string // a regular expression for the whole output
		requests uint64
		all      bool // all requests are sent
	}{
		{"a mix", []string{"--mix", "short.yaml"}, `^edge: sending the mix short.yaml takes 1.5s, until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(shorten it with --duration or --speed\)\n$`, 15, false},
		{"a mix, twice as fast", []string{"--mix", "short.yaml", "--speed", "2"}, `^edge: sending the mix short.yaml takes 750ms, `, 15, false},
		{"part of a mix", []string{"--mix", "short.yaml", "-d", "500ms"}, `^$`, 5, false},
		{"a log", []string{"--replay", "access.log", "--speed", "3600"}, `^edge: replaying access.log takes 980ms, until `, 2, false},
		{"part of a log", []string{"--replay", "access.log", "-n", "1"}, `^edge: replaying access.log takes 1s, until `, 1, true},
		{"malformed lines", []string{"--replay", "mixed.log"}, `^` + malformed + `edge: replaying mixed.log takes 1s, until .*\n$`, 2, false},
		{"malformed lines, reported after the run", []string{"--replay", "mixed.log", "-d", "1s"}, `^` + malformed + `$`, 2, false},
		{"a truncated log", []string{"--replay", "cut.gz", "-d", "1s"}, `(?s)edge: cut.gz \(gzip\) breaks off: it was read up to there\n$`, 200, false},
		{"a log in another format", []string{"--replay", "own.log", "--pattern", "$time|$remote_addr|$request_uri"}, `^edge: replaying own.log takes 1s, until .*\n$`, 1, false},
		{"requests alone", []string{"-n", "30", "-c", "2"}, `^$`, 30, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := start(t, dir, append(append([]string{"load", "--json"}, test.args...), server.URL)...)
			var r load.Report
			if code := p.End(); code != 0 || !regexp.MustCompile(test.stderr).MatchString(p.Stderr.String()) {
				t.Errorf("exit code %d, stderr %q, want %s", code, p.Stderr, test.stderr)
			}
			// On a busy machine the run may end before the last requests are sent.
			if err := json.Unmarshal([]byte(p.Stdout.String()), &r); err != nil || r.Sending.Requests > test.requests || test.all && r.Sending.Requests < test.requests {
				t.Errorf("%d requests were sent, want %d; %v", r.Sending.Requests, test.requests, err)
			}
		})
	}
}

// A body comes from the command line or a file, and makes the request a POST.
func TestLoadBody(t *testing.T) {
	got := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		got <- fmt.Sprint(r.Method, " ", r.Header.Get("Content-Type"), " ", string(body), " ", err)
	}))
	defer server.Close()
	dir := t.TempDir()
	write(t, dir+"/x.json", `{"x":1}`)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--body", "name=x"}, "POST application/x-www-form-urlencoded name=x <nil>"},
		{[]string{"-m", "PUT", "-H", "Content-Type: application/json", "--body", "@x.json"}, `PUT application/json {"x":1} <nil>`},
		{nil, "GET   <nil>"},
	} {
		p := start(t, dir, append(append([]string{"load", "-n", "1"}, test.args...), server.URL)...)
		if code := p.End(); code != 0 {
			t.Fatalf("%q: exit code %d", test.args, code)
		}
		if text := <-got; text != test.want {
			t.Errorf("%q: the target got %q, want %q", test.args, text, test.want)
		}
	}
}

// -H Host sets the Host of every kind of traffic. Clients have other addresses in each run, unless --seed or --networks
// selects them.
func TestLoadHostAndAddresses(t *testing.T) {
	got := make(chan [2]string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got <- [2]string{r.Host, r.Header.Get("X-Forwarded-For")}
	}))
	defer server.Close()
	dir := t.TempDir()
	write(t, dir+"/one.yaml", "duration: 1s\ncomponents: [{name: all, steady: {clients: 1, rate: 10/1s}, request: {hosts: [mixed.example.com]}}]\n")
	for _, test := range []struct {
		args []string
		same bool // two runs have the same address
	}{
		{[]string{"-c", "1"}, false},
		{[]string{"--mix", "one.yaml"}, false},
		{[]string{"-c", "1", "--seed", "7"}, true},
		{[]string{"--mix", "one.yaml", "--seed", "7"}, true},
		{[]string{"-c", "1", "--networks", "192.0.2.0/24"}, true},
	} {
		var addresses []string
		for range 2 {
			p := start(t, dir, append(append([]string{"load", "-n", "1", "-H", "host: www.example.com"}, test.args...), server.URL)...)
			if code := p.End(); code != 0 {
				t.Fatalf("%q: exit code %d: %s", test.args, code, p.Stderr)
			}
			request := <-got
			if request[0] != "www.example.com" {
				t.Errorf("%q: Host %q", test.args, request[0])
			}
			addresses = append(addresses, request[1])
		}
		if addresses[0] == addresses[1] != test.same {
			t.Errorf("%q: addresses %v", test.args, addresses)
		}
	}
}

// A file keeps its contents until something is written, which replaces all of them.
func TestWriteFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "report")
	if err := os.WriteFile(name, []byte("an older, longer report"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"an older, longer report", "a new report"} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Fatalf("the file has %q, %v, want %q", got, err, want)
		}
		file, err := createFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("opening it left %q, %v, want %q", got, err, want)
		}
		if err := writeFile(file, func(w io.Writer) error {
			_, err := io.WriteString(w, "a new report")
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}
