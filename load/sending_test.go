package load_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pires/go-proxyproto"

	"github.com/edgelimit/edge/load"
)

// seen is what a server saw of requests.
type seen struct {
	mu    sync.Mutex
	lines map[string]int
}

func (s *seen) add(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lines == nil {
		s.lines = map[string]int{}
	}
	s.lines[fmt.Sprintf(format, args...)]++
}

// target returns a server as a target.
func target(t *testing.T, url string) load.Target {
	t.Helper()
	target, err := load.ParseTarget(t.Context(), url, false)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// run sends what o says, a hundred requests by default.
func run(t *testing.T, o load.Options) *load.Report {
	t.Helper()
	o.Requests = max(o.Requests, 100)
	if o.Duration == 0 {
		o.Duration = time.Minute // it ends with its requests
	}
	log, err := load.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return log.Report()
}

// fast is a schedule that takes no time worth mentioning.
var fast = []load.Point{{Rate: 20_000}}

func TestIdentities(t *testing.T) {
	v4, v6 := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/30")}, []netip.Prefix{netip.MustParsePrefix("2001:db8::/62")}
	for _, test := range []struct {
		name     string
		id       string
		networks []netip.Prefix
		want     map[string]int
	}{
		{"none", "none", v4, map[string]int{"127.0.0.1||": 100}},
		{"X-Forwarded-For", "xff", v4, map[string]int{"127.0.0.1|192.0.2.0|": 25, "127.0.0.1|192.0.2.1|": 25, "127.0.0.1|192.0.2.2|": 25, "127.0.0.1|192.0.2.3|": 25}},
		{"header and cookie", "header:x-api-key,cookie:sid", v4, map[string]int{"127.0.0.1||client-0,sid=client-0": 25, "127.0.0.1||client-1,sid=client-1": 25, "127.0.0.1||client-2,sid=client-2": 25, "127.0.0.1||client-3,sid=client-3": 25}},
		{"PROXY protocol 1", "proxy1", v4, map[string]int{"192.0.2.0||": 25, "192.0.2.1||": 25, "192.0.2.2||": 25, "192.0.2.3||": 25}},
		{"PROXY protocol 2", "proxy2", v4, map[string]int{"192.0.2.0||": 25, "192.0.2.1||": 25, "192.0.2.2||": 25, "192.0.2.3||": 25}},
		{"PROXY protocol 1, IPv6", "proxy1", v6, map[string]int{"2001:db8::1||": 25, "2001:db8:0:1::1||": 25, "2001:db8:0:2::1||": 25, "2001:db8:0:3::1||": 25}},
		{"PROXY protocol 2, IPv6, with a key", "proxy2,header:X-Api-Key", v6, map[string]int{"2001:db8::1||client-0": 25, "2001:db8:0:1::1||client-1": 25, "2001:db8:0:2::1||client-2": 25, "2001:db8:0:3::1||client-3": 25}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var saw seen
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				host, _, _ := net.SplitHostPort(r.RemoteAddr)
				keys := strings.Trim(r.Header.Get("X-Api-Key")+","+r.Header.Get("Cookie"), ",")
				saw.add("%s|%s|%s", host, r.Header.Get("X-Forwarded-For"), keys)
			}))
			if strings.HasPrefix(test.id, "proxy") {
				s.Listener = &proxyproto.Listener{Listener: s.Listener, ConnPolicy: func(proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) { return proxyproto.REQUIRE, nil }}
			}
			s.Start()
			defer s.Close()
			id, err := load.ParseIdentity(test.id)
			if err != nil {
				t.Fatal(err)
			}
			source := &load.Steady{Profile: fast, Clients: 4, Networks: test.networks, Look: load.Look{Method: "GET"}}
			if err := source.Check(); err != nil {
				t.Fatal(err)
			}
			r := run(t, load.Options{Targets: []load.Target{target(t, s.URL)}, Source: source, Identity: id, Connections: 3})
			if diff := cmp.Diff(test.want, saw.lines); diff != "" {
				t.Errorf("requests by peer, X-Forwarded-For and keys (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]uint64{"200": 100}, r.Statuses); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestProtocols(t *testing.T) {
	for _, test := range []struct {
		name          string
		secure, http2 bool
		want          string
	}{
		{"HTTP/1.1", false, false, "POST //a?b=c#d HTTP/1.1 example.com probe/1"},
		{"HTTP/1.1 over TLS", true, false, "POST //a?b=c#d HTTP/1.1 example.com probe/1"},
		{"HTTP/2", false, true, "POST //a?b=c#d HTTP/2.0 example.com probe/1"},
		{"HTTP/2 over TLS", true, true, "POST //a?b=c#d HTTP/2.0 example.com probe/1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var saw seen
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				saw.add("%s %s %s %s %s", r.Method, r.RequestURI, r.Proto, r.Host, r.UserAgent())
				w.WriteHeader(http.StatusTeapot)
				_, _ = io.WriteString(w, strings.Repeat("tea", 10_000))
			}))
			s.EnableHTTP2 = true
			s.Config.Protocols = new(http.Protocols)
			s.Config.Protocols.SetHTTP1(true)
			s.Config.Protocols.SetHTTP2(true)
			s.Config.Protocols.SetUnencryptedHTTP2(true)
			if test.secure {
				s.StartTLS()
			} else {
				s.Start()
			}
			defer s.Close()
			o := load.Options{
				Targets: []load.Target{target(t, s.URL)}, HTTP2: test.http2, Streams: 4, Connections: 2,
				Source: &load.Steady{Profile: fast, Look: load.Look{Method: "POST", Host: "example.com", Target: "//a?b=c#d", Agent: "probe/1"}},
			}
			if test.secure {
				o.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
				o.TLS.RootCAs.AddCert(s.Certificate())
			}
			r := run(t, o)
			if diff := cmp.Diff(map[string]int{test.want: 100}, saw.lines); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if r.Statuses["418"] != 100 || r.Sending.Connections > 2 {
				t.Errorf("statuses %v over %d connections, want 100 × 418 over at most 2", r.Statuses, r.Sending.Connections)
			}
		})
	}
}

// Connections end after so many requests, and each goes to one target.
func TestConnections(t *testing.T) {
	var opened [2]atomic.Int32
	var byClient seen
	var targets []load.Target
	for i := range 2 {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			byClient.add("%s at %d", r.Header.Get("X-Forwarded-For"), i)
		}))
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				opened[i].Add(1)
			}
		}
		s.Start()
		defer s.Close()
		targets = append(targets, target(t, s.URL))
	}
	o := load.Options{
		Targets: targets, Connections: 4, KeepAlive: 10, Requests: 400, Hashed: true, Identity: load.Identity{Forwarded: true},
		Source: &load.Steady{Profile: fast, Clients: 20, Look: load.Look{Method: "GET"}},
	}
	r := run(t, o)
	if len(byClient.lines) != 20 {
		t.Errorf("20 clients were seen at %d places: %v", len(byClient.lines), byClient.lines)
	}
	if total := opened[0].Load() + opened[1].Load(); total < 40 || total > 44 || uint64(total) != r.Sending.Connections {
		t.Errorf("400 requests were sent over %d connections, the report says %d; want 40 to 44", total, r.Sending.Connections)
	}
	t.Run("a connection for each client", func(t *testing.T) {
		clear(byClient.lines)
		o := o
		o.Identity, o.Source = load.Identity{Proxy: 1, Header: "X-Forwarded-For"}, &load.Steady{Profile: fast, Clients: 20, Look: load.Look{Method: "GET"}}
		// The servers take the first line for a bad request; who it came to is what counts.
		o.Dial = func(ctx context.Context, t *load.Target) (net.Conn, error) {
			nc, err := new(net.Dialer).DialContext(ctx, "tcp", t.Addr.String())
			return &headless{Conn: nc}, err
		}
		if run(t, o); len(byClient.lines) != 20 {
			t.Errorf("20 clients were seen at %d places: %v", len(byClient.lines), byClient.lines)
		}
	})
	o.Hashed, o.Source = false, &load.Steady{Profile: fast, Clients: 20, Look: load.Look{Method: "GET"}}
	run(t, o)
	if len(byClient.lines) < 30 {
		t.Errorf("20 clients were seen at %d places, want most of them at both targets", len(byClient.lines))
	}
}

// A headless is a connection that leaves out what is written first.
type headless struct {
	net.Conn
	begun bool
}

func (c *headless) Write(b []byte) (int, error) {
	if !c.begun {
		c.begun = true
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// A latency begins when the request was due, not when a connection was free for it.
func TestNoCoordinatedOmission(t *testing.T) {
	first := make(chan struct{}, 1)
	first <- struct{}{}
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		select {
		case <-first:
			time.Sleep(300 * time.Millisecond)
		default:
		}
	}))
	defer s.Close()
	r := run(t, load.Options{
		Targets: []load.Target{target(t, s.URL)}, Connections: 1,
		Source: &load.Steady{Profile: []load.Point{{Rate: 1000}}, Look: load.Look{Method: "GET"}},
	})
	// While the first one took 300 ms, the 99 others became due within 99 ms.
	if r.Latency.P50MS < 200 || r.Service.P50MS > r.Latency.P50MS/2 {
		t.Errorf("the median latency is %v ms, of which %v after sending; want 200 at least, most of it before", r.Latency.P50MS, r.Service.P50MS)
	}
	if r.Sending.Kept || r.Sending.Late < 90 {
		t.Errorf("sending was %+v, want most requests late", r.Sending)
	}
}

// A begun is a source that is told when the run begins.
type begun struct {
	load.Steady
	at time.Time
}

func (s *begun) Begin(now time.Time) { s.at = now }

// A source learns when the run begins, such as one that meets the edges of windows.
func TestBegin(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	source := &begun{Steady: load.Steady{Profile: fast, Look: load.Look{Method: "GET"}}}
	if r := run(t, load.Options{Targets: []load.Target{target(t, s.URL)}, Source: source}); !r.Began.Equal(source.at) {
		t.Errorf("the run began at %v, and its source was told %v", r.Began, source.at)
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
		for _, piece := range []int{1 << 20, 1} {
			t.Run(fmt.Sprintf("%s/in pieces of %d", test.name, piece), func(t *testing.T) {
				ln, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				defer ln.Close()
				go answer(ln, test.raw, piece)
				r := run(t, load.Options{
					Targets: []load.Target{target(t, "http://"+ln.Addr().String())}, Requests: 2, Connections: 1, KeepAlive: 1,
					Source: &two{Steady: load.Steady{Profile: fast, Look: load.Look{Method: "GET"}}},
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
				Targets: []load.Target{target(t, "http://"+ln.Addr().String())}, Requests: 20, Connections: 1, Duration: time.Minute,
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

// answer answers a request on each connection, and ends it.
func answer(ln net.Listener, raw string, piece int) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		r := bufio.NewReader(c)
		if _, err := http.ReadRequest(r); err == nil {
			for b := []byte(raw); len(b) > 0; {
				n := min(piece, len(b))
				if _, err := c.Write(b[:n]); err != nil {
					break
				}
				b = b[n:]
			}
		}
		_ = c.Close()
	}
}

// drawnFrom counts the requests that are made.
type drawnFrom struct {
	load.Steady
	n int
}

func (s *drawnFrom) Next(r *load.Request) bool {
	s.n++
	return s.Steady.Next(r)
}

func TestEndings(t *testing.T) {
	hang := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			<-hang
		}
	}))
	defer s.Close()
	targets := []load.Target{target(t, s.URL)}
	s2 := httptest.NewUnstartedServer(s.Config.Handler)
	s2.Config.Protocols = new(http.Protocols)
	s2.Config.Protocols.SetUnencryptedHTTP2(true)
	s2.Start()
	defer s2.Close()
	defer close(hang)
	targets2 := []load.Target{target(t, s2.URL)}
	t.Run("nobody listens", func(t *testing.T) {
		r := run(t, load.Options{Targets: []load.Target{target(t, "http://127.0.0.1:1")}, Source: &load.Steady{Profile: fast, Look: load.Look{Method: "GET"}}})
		if r.Failures["not_connected"] != 100 {
			t.Errorf("failures are %v, want 100 that found no connection", r.Failures)
		}
		var b bytes.Buffer
		if err := r.WriteText(&b); err != nil || !strings.Contains(b.String(), "100 not connected; the first: dial tcp 127.0.0.1:1: connect: connection refused") || strings.Contains(b.String(), "latency") {
			t.Errorf("%v\n%s", err, b.String())
		}
	})
	t.Run("no answer", func(t *testing.T) {
		r := run(t, load.Options{Targets: targets, Connections: 100, Timeout: 200 * time.Millisecond, Source: &load.Steady{Profile: fast, Look: load.Look{Method: "GET", Target: "/hang"}}})
		if r.Failures["timeout"] != 100 {
			t.Errorf("failures are %v, want 100 timeouts", r.Failures)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
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
			t.Errorf("the report of an interrupted run is %+v", r)
		}
		var b bytes.Buffer
		if err := r.WriteText(&b); err != nil || !strings.Contains(b.String(), "interrupted before its end") {
			t.Errorf("%v\n%s", err, b.String())
		}
	})
	t.Run("interrupted before the next is due", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
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
			t.Errorf("sending was %+v, want all that was due", r.Sending)
		}
	})
	t.Run("idle connections end", func(t *testing.T) {
		brief := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		brief.Config.IdleTimeout = 20 * time.Millisecond
		brief.Start()
		defer brief.Close()
		r := run(t, load.Options{
			Targets: []load.Target{target(t, brief.URL)}, Connections: 1, Duration: 1200 * time.Millisecond,
			Source: &load.Steady{Profile: []load.Point{{Rate: 3}}, Look: load.Look{Method: "GET"}},
		})
		if len(r.Failures) > 0 || r.Sending.Connections < 3 {
			t.Errorf("failures %v over %d connections, want none over one for each request", r.Failures, r.Sending.Connections)
		}
	})
	t.Run("HTTP/2 to nobody", func(t *testing.T) {
		r := run(t, load.Options{Targets: []load.Target{target(t, "http://127.0.0.1:1")}, HTTP2: true, Source: &load.Steady{Profile: fast, Look: load.Look{Method: "GET"}}})
		if r.Failures["not_connected"] != 100 {
			t.Errorf("failures are %v, want 100 that found no connection", r.Failures)
		}
	})
	t.Run("TLS without HTTP/2", func(t *testing.T) {
		secure := httptest.NewUnstartedServer(http.NotFoundHandler())
		secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
		secure.StartTLS()
		defer secure.Close()
		r := run(t, load.Options{
			Targets: []load.Target{target(t, secure.URL)}, HTTP2: true, TLS: &tls.Config{InsecureSkipVerify: true}, Source: &load.Steady{Profile: fast, Look: load.Look{Method: "GET"}},
		})
		if r.Failures["not_connected"] != 100 {
			t.Errorf("failures are %v, want 100 that found no connection", r.Failures)
		}
	})
	t.Run("HTTP/2 without an answer", func(t *testing.T) {
		r := run(t, load.Options{Targets: targets2, HTTP2: true, Connections: 100, Timeout: 200 * time.Millisecond, Source: &load.Steady{Profile: fast, Look: load.Look{Method: "GET", Target: "/hang"}}})
		if r.Failures["timeout"] != 100 {
			t.Errorf("failures are %v, want 100 timeouts", r.Failures)
		}
	})
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("interrupted without an answer/HTTP2=%t", http2), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			log, err := load.Run(ctx, load.Options{
				Targets: map[bool][]load.Target{false: targets, true: targets2}[http2], HTTP2: http2, Duration: time.Hour, Timeout: time.Hour,
				Source:   &load.Steady{Profile: fast, Look: load.Look{Method: "GET", Target: "/hang"}},
				Progress: func(load.Progress) { cancel() },
			})
			if err != nil {
				t.Fatal(err)
			}
			if r := log.Report(); r.Failures["cut_off"] != 64 || len(r.Failures) != 1 {
				t.Errorf("failures are %v, want one that was cut off on each connection", r.Failures)
			}
		})
	}
	t.Run("answers that take longer than the end", func(t *testing.T) {
		slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(1500 * time.Millisecond) }))
		defer slow.Close()
		log, err := load.Run(t.Context(), load.Options{
			Targets: []load.Target{target(t, slow.URL)}, Duration: 100 * time.Millisecond, Source: &load.Steady{Profile: []load.Point{{Rate: 100}}, Look: load.Look{Method: "GET"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if r := log.Report(); len(r.Failures) > 0 || r.Interrupted {
			t.Errorf("failures are %v, want none", r.Failures)
		}
	})
	t.Run("HTTP/2 whose connections end at once", func(t *testing.T) {
		r := run(t, load.Options{Targets: targets2, HTTP2: true, Source: &load.Steady{Profile: fast, Look: load.Look{Method: "GET", Target: "/%zz"}}})
		// Three for each request, and one that it may begin to dial before it is given up.
		if r.Failures["closed"] != 100 || r.Sending.Connections > 400 {
			t.Errorf("failures are %v over %d connections, want 100 over at most 400", r.Failures, r.Sending.Connections)
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
	t.Run("as much as connections carry to each target", func(t *testing.T) {
		source := &drawnFrom{Steady: load.Steady{Clients: 100, Look: load.Look{Method: "GET", Target: "/hang"}}}
		log, err := load.Run(t.Context(), load.Options{Targets: targets, Hashed: true, ClosedLoop: true, Connections: 2, Requests: 100_000, Duration: 100 * time.Millisecond, Timeout: 200 * time.Millisecond, Source: source})
		if err != nil {
			t.Fatal(err)
		}
		if r := log.Report(); source.n > 1000 || r.Sending.Unsent != 0 {
			t.Errorf("%d requests were made for two connections, sending was %+v", source.n, r.Sending)
		}
	})
	t.Run("as much as connections carry", func(t *testing.T) {
		r := run(t, load.Options{Targets: targets, ClosedLoop: true, Connections: 2, Requests: 500, Source: &load.Steady{Look: load.Look{Method: "GET"}}})
		if r.Statuses["200"] != 500 || !r.Full || !r.Sending.Kept || r.Latency != r.Service {
			t.Errorf("statuses %v, sending %+v", r.Statuses, r.Sending)
		}
	})
}

func TestTargets(t *testing.T) {
	for _, test := range []struct {
		text string
		want load.Target
		fail string // part of the error
	}{
		{"127.0.0.1:8080", load.Target{Name: "127.0.0.1:8080", Addr: netip.MustParseAddrPort("127.0.0.1:8080"), Path: "/"}, ""},
		{"http://10.1.2.3/a?b", load.Target{Name: "10.1.2.3", Addr: netip.MustParseAddrPort("10.1.2.3:80"), Path: "/a?b"}, ""},
		{"https://[::1]", load.Target{Name: "[::1]", Addr: netip.MustParseAddrPort("[::1]:443"), TLS: true, Path: "/"}, ""},
		{"http://0.0.0.0:8080", load.Target{Name: "0.0.0.0:8080", Addr: netip.MustParseAddrPort("0.0.0.0:8080"), Path: "/"}, ""},
		{"http://[fe80::1%25lo]:8080", load.Target{Name: "[fe80::1]:8080", Addr: netip.MustParseAddrPort("[fe80::1%lo]:8080"), Path: "/"}, ""},
		{"http://127.0.0.1/a?b c", load.Target{}, "is no target"},
		{"http://:8080", load.Target{}, "is no target"},
		{"http://me@127.0.0.1", load.Target{}, "is no target"},
		{"http://127.0.0.1:99999", load.Target{}, "is no port"},
		{"http://192.0.2.1/", load.Target{}, "neither this machine nor in a private network"},
		{"http://[2001:db8::1]/", load.Target{}, "neither this machine nor in a private network"},
		{"ftp://127.0.0.1", load.Target{}, "is no target"},
		{"http://", load.Target{}, "is no target"},
	} {
		got, err := load.ParseTarget(t.Context(), test.text, false)
		if test.fail == "" && (err != nil || got != test.want) || test.fail != "" && (err == nil || !strings.Contains(err.Error(), test.fail)) {
			t.Errorf("ParseTarget(%q) = %+v, %v; want %+v, %q", test.text, got, err, test.want, test.fail)
		}
	}
	if _, err := load.ParseTarget(t.Context(), "http://192.0.2.1", true); err != nil {
		t.Errorf("a public target that is ours is refused: %v", err)
	}
	var public *load.PublicError
	if _, err := load.ParseTarget(t.Context(), "http://192.0.2.1", false); !errors.As(err, &public) {
		t.Errorf("%v is no PublicError", err)
	}
}

// A name may have several addresses, and a server listens at one of them.
func TestTaking(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	v4 := ln.Addr().(*net.TCPAddr).AddrPort()
	v6, nobody := netip.AddrPortFrom(netip.IPv6Loopback(), v4.Port()), netip.MustParseAddrPort("127.0.0.1:1")
	for _, test := range []struct {
		name  string
		addrs []netip.AddrPort
		want  netip.AddrPort
	}{
		{"only IPv4 is served", []netip.AddrPort{v6, v4}, v4},
		{"the first of those that are", []netip.AddrPort{v4, v6}, v4},
		{"none is", []netip.AddrPort{nobody, netip.AddrPortFrom(netip.IPv6Loopback(), 1)}, nobody},
	} {
		if got := load.Taking(t.Context(), test.addrs); got != test.want {
			t.Errorf("%s: of %v it is %v, want %v", test.name, test.addrs, got, test.want)
		}
	}
}

// What would make another request than is meant is refused.
func TestUnsendable(t *testing.T) {
	for _, look := range []load.Look{
		{Method: ""}, {Method: "GET /x"}, {Method: "GET\r\nX: y"}, {Method: "CONNECT"},
		{Method: "GET", Host: "a b"}, {Method: "GET", Host: "a\nX: y"}, {Method: "GET", Host: "a/b"}, {Method: "GET", Host: "me@a"},
		{Method: "GET", Target: "x"}, {Method: "GET", Target: "/ HTTP/1.1\r\nX: y"}, {Method: "GET", Target: "/a\tb"}, {Method: "GET", Target: "/\x7f"},
	} {
		if s := (&load.Steady{Look: look}); s.Check() == nil {
			t.Errorf("Check() has no error with %+v", look)
		}
	}
	for _, look := range []load.Look{{Method: "GET"}, {Method: "M-SEARCH", Host: "[::1]:80", Target: "//a?b=%zz#c"}} {
		if err := look.Check(); err != nil {
			t.Error(err)
		}
	}
	for _, line := range []string{"", ":", ": x", "a b: c", "a", "a: b\r\nc: d", "a: b\x00", "Host: x", "content-length: 5", "Transfer-Encoding: chunked", "Connection: close"} {
		if h, err := load.ParseHeader(line); err == nil {
			t.Errorf("ParseHeader(%q) = %q, want an error", line, h)
		}
	}
	if h, err := load.ParseHeader("X-A:b: c "); err != nil || h != [2]string{"X-A", "b: c"} {
		t.Errorf("%q, %v", h, err)
	}
	for _, text := range []string{"", "xff:", "header", "header:", "header:a b", "header:Host", "cookie:a;b", "xff,proxy1", "proxy1,proxy2", "header:a,header:b", "xff,xff", "none,xff"} {
		if id, err := load.ParseIdentity(text); err == nil {
			t.Errorf("ParseIdentity(%q) = %+v, want an error", text, id)
		}
	}
	if id, err := load.ParseIdentity("proxy2, cookie:connect.sid,header:x"); err != nil || id != (load.Identity{Proxy: 2, Cookie: "connect.sid", Header: "x"}) {
		t.Errorf("%+v, %v", id, err)
	}
	for _, networks := range []string{"192.0.2.0/30", "10.0.0.0/8 10.1.0.0/16", "::ffff:10.0.0.0/104", "2001:db8::/65"} {
		s := &load.Steady{Clients: 10, Look: load.Look{Method: "GET"}}
		for text := range strings.FieldsSeq(networks) {
			s.Networks = append(s.Networks, netip.MustParsePrefix(text))
		}
		if s.Check() == nil {
			t.Errorf("10 clients have addresses in %s", networks)
		}
	}
}

func TestProfiles(t *testing.T) {
	for _, test := range []struct {
		text string
		at   map[int]time.Duration // when the nth request is due, from 0
		last int                   // how many there are; 0 if endless
	}{
		{"100/s", map[int]time.Duration{0: 0, 1: 10 * time.Millisecond, 500: 5 * time.Second}, 0},
		{"60/m", map[int]time.Duration{1: time.Second}, 0},
		{"7200/h", map[int]time.Duration{4: 2 * time.Second}, 0},
		{"0/s,100/s@10s", map[int]time.Duration{0: 0, 5: time.Second, 500: 10 * time.Second, 600: 11 * time.Second}, 0},
		{"100/s,0/s@10s", map[int]time.Duration{0: 0, 375: 5 * time.Second}, 500},
		{"36_000_000/h", map[int]time.Duration{1: 100 * time.Microsecond}, 0},
		{"100/s,0.000000001/h@1s", map[int]time.Duration{0: 0}, 51}, // the last one as long as it falls
		{"10/s,10/s@1s,1_000/s@1001ms", map[int]time.Duration{10: time.Second}, 0},
	} {
		profile, err := load.ParseProfile(test.text)
		if err != nil {
			t.Fatal(err)
		}
		s := &load.Steady{Profile: profile}
		var r load.Request
		n, before := 0, time.Duration(0)
		for ; n < 1000 && s.Next(&r); n++ {
			if want, ok := test.at[n]; ok && (r.Due-want).Abs() > time.Microsecond {
				t.Errorf("%s: request %d is due after %v, want %v", test.text, n, r.Due, want)
			}
			if r.Due < before {
				t.Errorf("%s: request %d is due before the one before it", test.text, n)
			}
			before = r.Due
		}
		if test.last > 0 && n != test.last || test.last == 0 && n != 1000 {
			t.Errorf("%s has %d requests, want %d", test.text, n, test.last)
		}
	}
	for _, text := range []string{"", "fast", "-1/s", "10/x", "10@5s", "10,20", "10,20@5s,30@4s", "nan", "1e9"} {
		if p, err := load.ParseProfile(text); err == nil {
			t.Errorf("ParseProfile(%q) = %v, want an error", text, p)
		}
	}
}
