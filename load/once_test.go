package load_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edge/load"
)

type connKey struct{}

// closing returns a server that counts the requests that it reads, and closes the connection without an answer
// if closes returns true for that count.
func closing(t *testing.T, closes func(n uint64) bool) (url string, read *atomic.Uint64) {
	read = new(atomic.Uint64)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if closes(read.Add(1)) {
			r.Context().Value(connKey{}).(net.Conn).Close()
		}
	}))
	s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL, read
}

// A request whose connection ends without an answer may have been counted: it is not sent again, however long
// the connection was idle before.
func TestSentOnce(t *testing.T) {
	source := func(rate float64) *load.Steady {
		return &load.Steady{Profile: []load.Point{{Rate: rate}}, Look: load.Look{Method: "GET"}}
	}
	for _, test := range []struct {
		name           string
		o              load.Options
		closes         func(n uint64) bool
		closed, reused uint64
	}{
		{"fresh connections", load.Options{Source: source(5000), Connections: 4, KeepAlive: 1, Requests: 100},
			func(n uint64) bool { return n > 1 }, 99, 0},
		{"every second request, on a connection that was unused for 200 ms", load.Options{Source: source(5), Connections: 1, Requests: 6},
			func(n uint64) bool { return n%2 == 0 }, 3, 3},
		{"HTTP/2", load.Options{Source: source(5000), Connections: 4, Requests: 100, HTTP2: true},
			func(n uint64) bool { return n%2 == 0 }, 50, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			url, read := closing(t, test.closes)
			test.o.Targets, test.o.Duration, test.o.Timeout = []load.Target{target(t, url)}, 10*time.Minute, time.Minute
			log, err := load.Run(t.Context(), test.o)
			if err != nil {
				t.Fatal(err)
			}
			r := log.Report()
			if got := read.Load(); got != r.Sending.Requests || got != test.o.Requests {
				t.Errorf("the target read %d requests, the report has %d; want %d", got, r.Sending.Requests, test.o.Requests)
			}
			if r.Failures["closed"] != test.closed || r.Sending.ClosedReused != test.reused {
				t.Errorf("failures %v, %d of them on connections that were used before; want %d closed, %d", r.Failures, r.Sending.ClosedReused, test.closed, test.reused)
			}
		})
	}
}
