package load_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edge/load"
)

// patience is how long a test waits before it fails. No test depends on its length.
const patience = 2 * time.Minute

// countingSource counts the requests that a source makes.
type countingSource struct {
	load.Steady
	n int
}

func (s *countingSource) Next(r *load.Request) bool {
	s.n++
	return s.Steady.Next(r)
}

// afterClose makes three requests, each after the previous connection was closed.
type afterClose struct {
	load.Steady
	closed chan struct{}
	began  time.Time
	n      int
}

func (s *afterClose) Begin(now time.Time) { s.began = now }

func (s *afterClose) Next(r *load.Request) bool {
	select {
	case <-s.closed: // the first is that of the connection that probed the target
	case <-time.After(patience):
		return false // the test fails because requests are missing
	}
	if s.n++; s.n > 3 {
		return false
	}
	*r = load.Request{Due: time.Since(s.began) + 5*time.Millisecond, Addr: s.Addr(0), Look: &s.Look}
	return true
}

func TestEndings(t *testing.T) {
	hang := make(chan struct{})
	var interrupted [3]atomic.Int64 // requests of interrupted runs without an answer, by version of HTTP
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/interrupted":
			interrupted[r.ProtoMajor].Add(1)
			<-hang
		case "/hang":
			<-hang
		}
	}))
	targets := []load.Target{target(t, s.URL)}
	s2 := httptest.NewUnstartedServer(s.Config.Handler)
	s2.Config.Protocols = new(http.Protocols)
	s2.Config.Protocols.SetUnencryptedHTTP2(true)
	s2.Start()
	t.Cleanup(func() { // after the waiting subtests have ended
		close(hang)
		s2.Close()
		s.Close()
	})
	targets2 := []load.Target{target(t, s2.URL)}
	t.Run("one of two targets does not listen", func(t *testing.T) {
		r := run(t, load.Options{
			Targets: append(targets, target(t, "http://127.0.0.1:1")), Hashed: true,
			Source: &load.Steady{Profile: fast, Clients: 100, Look: load.Look{Method: "GET"}},
		})
		if n := r.Failures["not_connected"]; n == 0 || n+r.Statuses["200"] != 100 {
			t.Errorf("failures %v, answers %v; want some not_connected, and answers to the others", r.Failures, r.Statuses)
		}
		var b bytes.Buffer
		if err := r.Document().WriteText(&b); err != nil || !strings.Contains(b.String(), "not connected; the first: dial tcp 127.0.0.1:1: connect: connection refused") {
			t.Errorf("%v\n%s", err, b.String())
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		log, err := load.Run(ctx, load.Options{
			Targets: targets, Source: &load.Steady{Profile: []load.Point{{Rate: 2000}}, Look: load.Look{Method: "GET"}},
			Duration: time.Hour, Progress: func(p load.Progress) {
				if p.Requests > 10 {
					cancel()
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		r := log.Report()
		if !r.Interrupted || r.Sending.Requests < 10 || r.Statuses["200"] == 0 {
			t.Errorf("interrupted run: report %+v", r)
		}
		var b bytes.Buffer
		if err := r.Document().WriteText(&b); err != nil || !strings.Contains(b.String(), "interrupted before its end") {
			t.Errorf("%v\n%s", err, b.String())
		}
	})
	t.Run("interrupted before the next is due", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		log, err := load.Run(ctx, load.Options{
			Targets: targets, Source: &load.Steady{Profile: []load.Point{{Rate: 0.01}}, Look: load.Look{Method: "GET"}}, Duration: time.Hour,
			Progress: func(p load.Progress) {
				if p.Requests > 0 {
					cancel()
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if r := log.Report(); r.Full || r.Sending.Requests != 1 || r.Sending.Unsent != 0 || !r.Sending.Kept {
			t.Errorf("sending %+v, want all due requests sent", r.Sending)
		}
	})
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("idle connections end/TLS=%t", secure), func(t *testing.T) {
			brief := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			source := &afterClose{Steady: load.Steady{Look: load.Look{Method: "GET"}}, closed: make(chan struct{}, 10)}
			brief.Config.ConnState = func(c net.Conn, state http.ConnState) {
				switch state {
				case http.StateIdle:
					c.Close()
				case http.StateClosed:
					source.closed <- struct{}{}
				}
			}
			if secure {
				brief.StartTLS()
			} else {
				brief.Start()
			}
			defer brief.Close()
			r := run(t, load.Options{
				Targets: []load.Target{target(t, brief.URL)}, Connections: 1, TLS: &tls.Config{InsecureSkipVerify: true}, Source: source,
			})
			if len(r.Failures) > 0 || r.Sending.Connections != 3 {
				t.Errorf("failures %v over %d connections, want none, and one connection for each request", r.Failures, r.Sending.Connections)
			}
		})
	}
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("interrupted without an answer/HTTP2=%t", http2), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			hung := &interrupted[map[bool]int{false: 1, true: 2}[http2]]
			log, err := load.Run(ctx, load.Options{
				Targets: map[bool][]load.Target{false: targets, true: targets2}[http2], HTTP2: http2, Duration: time.Hour, Timeout: time.Hour,
				Source: &load.Steady{Profile: fast, Look: load.Look{Method: "GET", Target: "/interrupted"}},
				Progress: func(load.Progress) {
					if hung.Load() == 64 {
						cancel()
					}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			if r := log.Report(); r.Failures["cut_off"] != 64 || len(r.Failures) != 1 {
				t.Errorf("failures %v, want one cut off on each connection", r.Failures)
			}
		})
	}
	t.Run("answers after the end", func(t *testing.T) {
		t.Parallel()
		slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(1500 * time.Millisecond) }))
		defer slow.Close()
		log, err := load.Run(t.Context(), load.Options{
			Targets: []load.Target{target(t, slow.URL)}, Duration: 100 * time.Millisecond, Timeout: time.Minute, Source: &load.Steady{Profile: []load.Point{{Rate: 100}}, Look: load.Look{Method: "GET"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if r := log.Report(); len(r.Failures) > 0 || r.Interrupted {
			t.Errorf("failures %v, want none", r.Failures)
		}
	})
	t.Run("HTTP/2 whose connections end immediately", func(t *testing.T) {
		r := run(t, load.Options{Targets: targets2, HTTP2: true, Source: &load.Steady{Profile: fast, Look: load.Look{Method: "GET", Target: "/%zz"}}})
		// A request uses three connections, and may begin to dial one more before it gives up.
		if r.Failures["closed"] == 0 || r.Sending.Connections > 4*r.Sending.Requests {
			t.Errorf("failures %v over %d connections, want at most 4 for each of %d requests", r.Failures, r.Sending.Connections, r.Sending.Requests)
		}
	})
	t.Run("HTTP/2, a client always to the same target", func(t *testing.T) {
		r := run(t, load.Options{
			Targets: append(targets2, targets2...), HTTP2: true, Hashed: true, Connections: 5, Streams: 10, Requests: 1000,
			Source: &load.Steady{Profile: fast, Clients: 100, Look: load.Look{Method: "GET"}},
		})
		if r.Statuses["200"] != 1000 || r.Sending.Connections > 5 {
			t.Errorf("statuses %v over %d connections, want 1000 × 200 over at most 5", r.Statuses, r.Sending.Connections)
		}
	})
	t.Run("closed loop, hashed", func(t *testing.T) {
		source := &countingSource{Steady: load.Steady{Clients: 100, Look: load.Look{Method: "GET", Target: "/hang"}}}
		log, err := load.Run(t.Context(), load.Options{Targets: targets, Hashed: true, ClosedLoop: true, Connections: 2, Requests: 100_000, Duration: 100 * time.Millisecond, Timeout: 200 * time.Millisecond, Source: source})
		if err != nil {
			t.Fatal(err)
		}
		if r := log.Report(); source.n > 1000 || r.Sending.Unsent != 0 {
			t.Errorf("%d requests generated for two connections, sending %+v", source.n, r.Sending)
		}
	})
	t.Run("closed loop", func(t *testing.T) {
		r := run(t, load.Options{Targets: targets, ClosedLoop: true, Connections: 2, Requests: 500, Source: &load.Steady{Look: load.Look{Method: "GET"}}})
		if r.Statuses["200"] != 500 || !r.Full || !r.Sending.Kept || r.Latency != r.Service {
			t.Errorf("statuses %v, sending %+v", r.Statuses, r.Sending)
		}
	})
}
