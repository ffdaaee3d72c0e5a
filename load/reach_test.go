package load_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/load"
)

// Nothing is sent to a target that accepts no connection.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	refuse := func(context.Context, *load.Target) (net.Conn, error) { return nil, syscall.ECONNREFUSED }
	insecure := &tls.Config{InsecureSkipVerify: true}
	for _, test := range []struct {
		name string
		url  string
		o    load.Options
		why  string
	}{
		{"nothing listens", "http://127.0.0.1:1", load.Options{Dial: refuse}, "connection refused"},
		{"TLS to a plain HTTP server", strings.Replace(plain.URL, "http:", "https:", 1), load.Options{}, "does not look like a TLS handshake"},
		{"untrusted certificate", secure.URL, load.Options{}, "certificate signed by unknown authority"},
		{"TLS without HTTP/2", secure.URL, load.Options{HTTP2: true, TLS: insecure}, "no application protocol"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.o.Targets = []load.Target{target(t, test.url)}
			test.o.Source = &load.Steady{Profile: fast, Look: load.Look{Method: "GET"}}
			log, err := load.Run(t.Context(), test.o)
			want := "load: cannot connect to " + test.o.Targets[0].Name + ": "
			if log != nil || err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), test.why) {
				t.Errorf("Run() = %v, %v; want %s%s", log, err, want, test.why)
			}
		})
	}
}

// The run waits for a target that starts at the same time.
func TestTargetStartsLate(t *testing.T) {
	t.Parallel()
	to := target(t, "http://"+harness.ReservePort(t))
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Listener.Close()
	var once sync.Once
	r := run(t, load.Options{
		Targets: []load.Target{to}, Source: &load.Steady{Profile: fast, Look: load.Look{Method: "GET"}},
		Dial: func(ctx context.Context, to *load.Target) (net.Conn, error) {
			nc, err := new(net.Dialer).DialContext(ctx, "tcp", to.Addr.String())
			once.Do(func() { // it listens after the first attempt
				if s.Listener, err = net.Listen("tcp", to.Addr.String()); err != nil {
					t.Error(err)
					return
				}
				s.Start()
				t.Cleanup(s.Close)
				err = syscall.ECONNREFUSED
			})
			return nc, err
		},
	})
	if r.Statuses["404"] != 100 {
		t.Errorf("answers %v, failures %v", r.Statuses, r.Failures)
	}
}

// A run ends early if there is never an answer, whatever its duration.
func TestGivesUp(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		serve   func(net.Conn)
		http2   bool
		timeout time.Duration
		kinds   string // kinds of failures
	}{
		{"silent", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, false, 500 * time.Millisecond, "timeout cut_off not_connected"},
		{"silent to HTTP/2", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, true, 500 * time.Millisecond, "timeout cut_off not_connected"},
		{"closing", func(c net.Conn) { c.Close() }, false, time.Minute, "closed cut_off"},
		{"other protocol", func(c net.Conn) {
			_, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.6\r\n\r\n")
			_, _ = io.Copy(io.Discard, c)
		}, false, time.Minute, "malformed cut_off"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			log, err := load.Run(t.Context(), load.Options{
				Targets: []load.Target{listen(t, test.serve)}, Duration: time.Hour, Timeout: test.timeout, HTTP2: test.http2,
				Source: &load.Steady{Profile: []load.Point{{Rate: 100}}, Look: load.Look{Method: "GET"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			r := log.Report()
			var b bytes.Buffer
			if err := r.Document().WriteText(&b); err != nil || !r.GaveUp || !strings.Contains(b.String(), "ended early: no request was answered") {
				t.Errorf("%v: the run did not give up:\n%s", err, &b)
			}
			for kind := range r.Failures {
				if !strings.Contains(test.kinds, kind) {
					t.Errorf("failures %v, want %s", r.Failures, test.kinds)
				}
			}
		})
	}
}

// A run in which a single request was answered does not end early.
func TestDoesNotGiveUpAfterAnAnswer(t *testing.T) {
	t.Parallel()
	var connections atomic.Int32
	to := listen(t, func(c net.Conn) {
		defer c.Close()
		// The first connection only shows that the target can be reached.
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil && connections.Add(1) == 1 {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		}
	})
	log, err := load.Run(t.Context(), load.Options{
		Targets: []load.Target{to}, Duration: 2500 * time.Millisecond, Source: &load.Steady{Profile: []load.Point{{Rate: 20}}, Look: load.Look{Method: "GET"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := log.Report(); r.GaveUp || r.Statuses["200"] != 1 || r.Failures["closed"] == 0 {
		t.Errorf("gave up: %t; answers %v, failures %v", r.GaveUp, r.Statuses, r.Failures)
	}
}
