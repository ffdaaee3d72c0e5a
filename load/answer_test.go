package load_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/edgelimit/edge/load"
)

// Requests do not allocate.
func TestAllocations(t *testing.T) {
	answer := []byte("HTTP/1.1 429 No\r\nX-Edge-Node: n1\r\nRateLimit-Policy: \"a\";q=5;w=10\r\nRateLimit: \"a\";r=0;t=7\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 7\r\nRetry-After: 7\r\nContent-Length: 5\r\n\r\nhello")
	serve := func(c net.Conn) {
		buf := make([]byte, 4096)
		for {
			if n, err := c.Read(buf); err != nil || !bytes.HasSuffix(buf[:n], []byte("\r\n\r\n")) {
				return
			}
			if _, err := c.Write(answer); err != nil {
				return
			}
		}
	}
	const requests = 20_000
	o := load.Options{
		Targets: []load.Target{listen(t, serve)}, ClosedLoop: true, Connections: 1, Requests: requests, Duration: 10 * time.Minute, Timeout: time.Minute,
		Source: &load.Steady{Clients: 100, Look: load.Look{Method: "GET", Agent: "probe/1"}}, Identity: load.Identity{Forwarded: true},
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	log, err := load.Run(t.Context(), o)
	runtime.ReadMemStats(&after)
	if err != nil || log.Requests() != requests {
		t.Fatalf("%d requests, %v", log.Requests(), err)
	}
	// Recorded results are allocated in pieces of thousands.
	if each := float64(after.Mallocs-before.Mallocs) / requests; each > 0.05 {
		t.Errorf("%.2f allocations for each request", each)
	}
}

// A rule's 503 has an ID; one due to an unavailable shard does not.
func TestRefusalsWith503(t *testing.T) {
	for lines, want := range map[string]bool{
		"HTTP/1.1 503 x\r\nRetry-After: 1\r\n":                          false,
		"HTTP/1.1 503 x\r\nRetry-After: 1\r\nRefusal-Id: 7kq2-m9xd\r\n": true,
		"HTTP/1.1 403 x\r\nRefusal-Id: 7kq2-m9xd\r\n":                   false, // from the deny list
	} {
		if got := load.ByRule(lines); got != want {
			t.Errorf("%q: %t, want %t", lines, got, want)
		}
	}
}

// Answers are read in the forms that servers send, at once and byte by byte.
func TestAnswers(t *testing.T) {
	for _, test := range []struct {
		name, raw string
		statuses  []int
		failure   string // of the answer after those
	}{
		{"plain", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", []int{200}, "closed"},
		{"chunks with a trailer", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\n", []int{200}, "closed"},
		{"early hints", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 429 Too Many\r\nretry-AFTER: 7\r\nContent-Length: 0\r\n\r\n", []int{429}, "closed"},
		{"until EOF", "HTTP/1.1 200 OK\r\n\r\nhello", []int{200}, ""},
		{"close", "HTTP/1.0 500 no\r\nContent-Length: 0\r\n\r\n", []int{500}, ""},
		{"several encodings", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", []int{200}, "closed"},
		{"a long head", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 60_000) + "\r\nContent-Length: 0\r\n\r\n", []int{200}, "closed"},
		{"not HTTP", "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n\r\n", nil, "malformed"},
		{"invalid length", "HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\n", nil, "malformed"},
		{"an endless head", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<19), nil, "malformed"},
		{"cut off", "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", nil, "closed"},
		{"no answer", "", nil, "closed"},
	} {
		for _, r := range []io.Reader{strings.NewReader(test.raw), iotest.OneByteReader(strings.NewReader(test.raw))} {
			statuses, err := load.ReadAnswers(r)
			if failure := load.FailureOf(err); !slices.Equal(statuses, test.statuses) || failure != test.failure {
				t.Errorf("%s: statuses %v, failure %q; want %v, %q", test.name, statuses, failure, test.statuses, test.failure)
			}
		}
	}
}

// Answers announce the end of the connection in several ways. What follows an answer never counts as the answer
// to the next request.
func TestAnswersOnOneConnection(t *testing.T) {
	for _, test := range []struct {
		name, raw   string
		connections uint64
	}{
		{"HTTP/1.1", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 1},
		{"HTTP/1.0 keep-alive", "HTTP/1.0 200 OK\r\nConnection: Keep-Alive, X\r\nContent-Length: 0\r\n\r\n", 1},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\nConnection: X\r\nContent-Length: 0\r\n\r\n", 20},
		{"HTTP/1.1 close", "HTTP/1.1 200 OK\r\nConnection: X, Close\r\nConnection: Y\r\nContent-Length: 0\r\n\r\n", 20},
		{"unsolicited answer", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 500 no\r\nContent-Length: 0\r\n\r\n", 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			to := listen(t, func(c net.Conn) {
				for r := bufio.NewReader(c); ; {
					if _, err := http.ReadRequest(r); err != nil {
						return
					}
					if _, err := io.WriteString(c, test.raw); err != nil {
						return
					}
				}
			})
			log, err := load.Run(t.Context(), load.Options{
				Targets: []load.Target{to}, Requests: 20, Connections: 1, Duration: 10 * time.Minute, Timeout: time.Minute,
				Source: &load.Steady{Profile: fast, Look: load.Look{Method: "GET"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if r := log.Report(); r.Statuses["200"] != 20 || r.Sending.Connections != test.connections {
				t.Errorf("statuses %v, failures %v over %d connections; want 20 × 200 over %d", r.Statuses, r.Failures, r.Sending.Connections, test.connections)
			}
		})
	}
}

// Nodes name themselves. The list of names is bounded, even if every answer has a new name.
func TestNodeNames(t *testing.T) {
	var n atomic.Int32
	_, targets := serve(t, false, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Edge-Node", fmt.Sprintf("edge\t%d%s", n.Add(1), strings.Repeat("x", 1000)))
	})
	r := run(t, load.Options{Targets: targets, Requests: 1500, Connections: 4, Source: &load.Steady{Profile: fast, Look: load.Look{Method: "GET"}}})
	if len(r.Nodes) > 1001 || r.Nodes[0].Requests != 500 {
		t.Errorf("%d nodes, the target itself with %d requests; want 1000 and 500", len(r.Nodes), r.Nodes[0].Requests)
	}
	if name := r.Nodes[1].Name; !strings.HasPrefix(name, `edge\u0009`) || len(name) > 300 {
		t.Errorf("node name %q", name)
	}
}
