package load_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/edgelimit/edge/load"
	"github.com/google/go-cmp/cmp"
)

// What net/http understands is understood alike, in whatever pieces it comes.
func FuzzAnswers(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 429 No\r\nRetry-After: 7\r\nRateLimit: \"a\";r=0;t=7, \"b\";r=3;t=1\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Edge-Node: n1\r\n\r\n5;x=y\r\nhello\r\n0\r\nX: y\r\n\r\n",
		"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.0 204 None\r\n\r\n",
		"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end",
		"HTTP/1.1 999\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", "\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		whole, wholeErr := load.ReadAnswers(bytes.NewReader(raw))
		bytewise, byteErr := load.ReadAnswers(iotest.OneByteReader(bytes.NewReader(raw)))
		if len(whole) != len(bytewise) || (wholeErr == nil) != (byteErr == nil) {
			t.Fatalf("at once %v, %v; byte by byte %v, %v", whole, wholeErr, bytewise, byteErr)
		}
		r := bufio.NewReader(bytes.NewReader(raw))
		for i, status := range whole {
			var resp *http.Response
			var err error
			for { // those before the answer
				if resp, err = http.ReadResponse(r, nil); err != nil || resp.StatusCode >= 200 {
					break
				}
			}
			if err != nil {
				return // net/http is stricter
			}
			if resp.StatusCode != status {
				t.Fatalf("answer %d has the status %d, net/http says %d", i, status, resp.StatusCode)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.ContentLength < 0 && len(resp.TransferEncoding) > 0 && !bytes.Contains(raw, []byte("0\r\n\r\n")) {
				return
			}
			resp.Body.Close()
			if strings.Contains(strings.ToLower(string(raw)), "transfer-encoding") {
				return // what both of length and encoding mean is read otherwise
			}
		}
	})
}

// What headers say is held against Retry-After, in whatever form they say it.
func TestHeaders(t *testing.T) {
	for _, test := range []struct {
		name, lines string
		want        load.Told
	}{
		{"nothing is said", "Retry-After: 7\r\n", load.Told{Remaining: -1}},
		{"they agree", "RateLimit-Policy: \"a\";q=5;w=10\r\nRateLimit: \"a\";r=0;t=7\r\nRetry-After: 7\r\n", load.Told{}},
		{"t is earlier", "RateLimit: \"a\";r=0;t=6\r\nRetry-After: 7\r\n", load.Told{OtherTime: true}},
		{"t is later", "Retry-After: 7\r\nRateLimit: \"a\";t=8;r=0\r\n", load.Told{OtherTime: true}},
		{"t is now", "Retry-After: 7\r\nRateLimit: \"a\";r=0;t=0\r\n", load.Told{OtherTime: true}},
		{"no t", "Retry-After: 7\r\nRateLimit: \"a\";r=0\r\n", load.Told{}},
		{"no Retry-After", "RateLimit: \"a\";r=0;t=7\r\n", load.Told{}},
		{"the last of several is back then", "Retry-After: 7\r\nRateLimit: \"a\";r=0;t=2, \"b\";r=0;t=7, \"c\";r=1;t=60\r\n", load.Told{}},
		{"in several lines", "Retry-After: 7\r\nRateLimit: \"a\";r=0;t=2\r\nRateLimit: \"b\";r=0;t=8\r\n", load.Told{OtherTime: true}},
		{"with spaces, and more parameters", "Retry-After: 7\r\nRateLimit: \"a\"; r=0; pk=:cj0x:; t=7; x;y=\"t=9\"\r\n", load.Told{}},
		{"names that look like parameters", "Retry-After: 7\r\nRateLimit: \"a;t=9,;r=0\\\";r=0\";r=3;t=1\r\n", load.Told{Remaining: 3}},
		{"no integers", "Retry-After: 7\r\nRateLimit: \"a\";r=0.5;t=-1, b;r=;t\r\n", load.Told{Remaining: -1}},
		{"a dictionary of an older draft", "Retry-After: 7\r\nRateLimit: limit=5, remaining=0, reset=9\r\n", load.Told{Remaining: -1}},
		{"the older form agrees", "X-RateLimit-Limit: 5\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 7\r\nRetry-After: 7\r\n", load.Told{}},
		{"the older form does not", "X-RateLimit-Reset: 9\r\nX-RateLimit-Remaining: 0\r\nRetry-After: 7\r\n", load.Told{OtherTime: true}},
		{"as a date", "X-RateLimit-Reset: 1767225600\r\nX-RateLimit-Remaining: 0\r\nRetry-After: 7\r\n", load.Told{}},
		{"of what remains", "X-RateLimit-Reset: 9\r\nX-RateLimit-Remaining: 1\r\nRetry-After: 7\r\n", load.Told{Remaining: 1}},
	} {
		if got := load.ReadHeaders(test.lines); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

// Nothing is allocated for a request.
func TestAllocations(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	answer := []byte("HTTP/1.1 429 No\r\nX-Edge-Node: n1\r\nRateLimit-Policy: \"a\";q=5;w=10\r\nRateLimit: \"a\";r=0;t=7\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 7\r\nRetry-After: 7\r\nContent-Length: 5\r\n\r\nhello")
	serve := func(c net.Conn) {
		defer c.Close()
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
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	const requests = 20_000
	o := load.Options{
		Targets: []load.Target{target(t, "http://"+ln.Addr().String())}, ClosedLoop: true, Connections: 1, Requests: requests, Duration: 10 * time.Minute, Timeout: time.Minute,
		Source: &load.Steady{Clients: 100, Look: load.Look{Method: "GET", Agent: "probe/1"}}, Identity: load.Identity{Forwarded: true},
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	log, err := load.Run(t.Context(), o)
	runtime.ReadMemStats(&after)
	if err != nil || log.Requests() != requests {
		t.Fatalf("%d requests, %v", log.Requests(), err)
	}
	// What is recorded is allocated in pieces of thousands.
	if each := float64(after.Mallocs-before.Mallocs) / requests; each > 0.05 {
		t.Errorf("%.2f allocations for each request", each)
	}
}

// Answers as they may come.
func TestAnswers(t *testing.T) {
	for _, test := range []struct {
		name, raw        string
		status, failures map[string]uint64
	}{
		{"plain", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", map[string]uint64{"200": 2}, nil},
		{"chunks with a trailer", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\n", map[string]uint64{"200": 2}, nil},
		{"early hints", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 429 Too Many\r\nretry-AFTER: 7\r\nContent-Length: 0\r\n\r\n", map[string]uint64{"429": 2}, nil},
		{"until the end", "HTTP/1.1 200 OK\r\n\r\nhello", map[string]uint64{"200": 2}, nil},
		{"close", "HTTP/1.0 500 no\r\nContent-Length: 0\r\n\r\n", map[string]uint64{"500": 2}, nil},
		{"several encodings", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", map[string]uint64{"200": 2}, nil},
		{"a long head", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 60_000) + "\r\nContent-Length: 0\r\n\r\n", map[string]uint64{"200": 2}, nil},
		{"no HTTP", "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n\r\n", map[string]uint64{}, map[string]uint64{"malformed": 2}},
		{"a length that is none", "HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\n", map[string]uint64{}, map[string]uint64{"malformed": 2}},
		{"an endless head", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<19), map[string]uint64{}, map[string]uint64{"malformed": 2}},
		{"cut off", "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", map[string]uint64{}, map[string]uint64{"closed": 2}},
		{"nothing", "", map[string]uint64{}, map[string]uint64{"closed": 2}},
	} {
		for _, bytewise := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/byte by byte=%t", test.name, bytewise), func(t *testing.T) {
				var r *load.Report
				inBubble(t, func(t *testing.T) { // a run of which nothing is answered is given up after a second
					o := load.Options{
						Targets: make([]load.Target, 1), Requests: 2, Connections: 1, KeepAlive: 1,
						Source: &two{Steady: load.Steady{Profile: fast, Look: load.Look{Method: "GET", Host: "example.com", Target: "/"}}},
					}
					o.Dial = func(context.Context, *load.Target) (net.Conn, error) {
						ours, theirs := net.Pipe()
						go answer(theirs, test.raw)
						if bytewise {
							return pieces{ours, iotest.OneByteReader(bufio.NewReader(ours))}, nil
						}
						return ours, nil
					}
					o.UseTimers()
					r = run(t, o)
				})
				if diff := cmp.Diff(test.status, r.Statuses); diff != "" {
					t.Errorf("statuses (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(test.failures, r.Failures, cmp.Comparer(func(a, b map[string]uint64) bool { return fmt.Sprint(a) == fmt.Sprint(b) })); diff != "" {
					t.Errorf("failures (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// Answers say in several ways whether the connection ends, and some send more than was asked
// for. None of it becomes the answer to the next request.
func TestAnswersOfOneConnection(t *testing.T) {
	for _, test := range []struct {
		name, raw   string
		connections uint64
	}{
		{"it goes on", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 1},
		{"HTTP/1.0 goes on", "HTTP/1.0 200 OK\r\nConnection: Keep-Alive, X\r\nContent-Length: 0\r\n\r\n", 1},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\nConnection: X\r\nContent-Length: 0\r\n\r\n", 20},
		{"it ends", "HTTP/1.1 200 OK\r\nConnection: X, Close\r\nConnection: Y\r\nContent-Length: 0\r\n\r\n", 20},
		{"more than was asked for", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 500 no\r\nContent-Length: 0\r\n\r\n", 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			go func() {
				for {
					c, err := ln.Accept()
					if err != nil {
						return
					}
					go func() {
						defer c.Close()
						for r := bufio.NewReader(c); ; {
							if _, err := http.ReadRequest(r); err != nil {
								return
							}
							if _, err := io.WriteString(c, test.raw); err != nil {
								return
							}
						}
					}()
				}
			}()
			log, err := load.Run(t.Context(), load.Options{
				Targets: []load.Target{target(t, "http://"+ln.Addr().String())}, Requests: 20, Connections: 1, Duration: 10 * time.Minute, Timeout: time.Minute,
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

// Nodes name themselves, and a target that says something else each time has no names without
// end.
func TestNodeNames(t *testing.T) {
	var n atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Edge-Node", fmt.Sprintf("edge\t%d%s", n.Add(1), strings.Repeat("x", 1000)))
	}))
	defer s.Close()
	r := run(t, load.Options{Targets: []load.Target{target(t, s.URL)}, Requests: 3000, Connections: 4, Source: &load.Steady{Profile: fast, Look: load.Look{Method: "GET"}}})
	if len(r.Nodes) > 1001 || r.Nodes[0].Requests != 2000 {
		t.Errorf("%d nodes, the target itself with %d requests; want 1000 and 2000", len(r.Nodes), r.Nodes[0].Requests)
	}
	if name := r.Nodes[1].Name; !strings.HasPrefix(name, "edge\ufffd") || len(name) > 300 {
		t.Errorf("a node has the name %q", name)
	}
}

// two makes two requests of those of a source.
type two struct {
	load.Steady
	n int
}

func (s *two) Next(r *load.Request) bool {
	s.n++
	return s.n <= 2 && s.Steady.Next(r)
}

// pieces is a connection that is read otherwise than it comes.
type pieces struct {
	net.Conn
	io.Reader
}

func (p pieces) Read(b []byte) (int, error) { return p.Reader.Read(b) }

// answer answers the request of a connection, and ends it.
func answer(c net.Conn, raw string) {
	defer c.Close()
	if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
		_, _ = io.WriteString(c, raw)
	}
}
