package load_test

import (
	stdcmp "cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
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
	"github.com/quic-go/quic-go/http3"

	"github.com/edgelimit/edge/load"
)

// seen records the requests that a server received.
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

// serve starts a server that speaks HTTP/1.1 and HTTP/2, and returns it and its targets.
func serve(t *testing.T, secure bool, handler http.HandlerFunc) (*httptest.Server, []load.Target) {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetHTTP2(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s, []load.Target{target(t, s.URL)}
}

// serveHTTP3 makes s speak HTTP/3, too.
func serveHTTP3(t *testing.T, s *httptest.Server) {
	t.Helper()
	socket, err := net.ListenPacket("udp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	also := &http3.Server{Handler: s.Config.Handler, TLSConfig: s.TLS}
	go func() { _ = also.Serve(socket) }()
	t.Cleanup(func() { _ = also.Close(); _ = socket.Close() })
}

// listen returns a target whose connections are passed to serve, and then closed.
func listen(t *testing.T, serve func(net.Conn)) load.Target {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return target(t, "http://"+ln.Addr().String())
}

// run runs o, with a hundred requests by default.
func run(t *testing.T, o load.Options) *load.Report {
	t.Helper()
	o.Requests = max(o.Requests, 100)
	if o.Duration == 0 {
		o.Duration = 10 * time.Minute // the run ends with its requests
	}
	o.Timeout = stdcmp.Or(o.Timeout, time.Minute) // longer than anything takes
	log, err := load.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return log.Report()
}

// fast is a schedule that takes almost no time.
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
				t.Errorf("requests by remote address, X-Forwarded-For and keys (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]uint64{"200": 100}, r.Statuses); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestProtocols(t *testing.T) {
	for _, test := range []struct {
		name                 string
		secure, http2, http3 bool
		want                 string
	}{
		{"HTTP/1.1", false, false, false, "POST //a?b=c#d HTTP/1.1 example.com probe/1"},
		{"HTTP/1.1 over TLS", true, false, false, "POST //a?b=c#d HTTP/1.1 example.com probe/1"},
		{"HTTP/2", false, true, false, "POST //a?b=c#d HTTP/2.0 example.com probe/1"},
		{"HTTP/2 over TLS", true, true, false, "POST //a?b=c#d HTTP/2.0 example.com probe/1"},
		{"HTTP/3", true, false, true, "POST //a?b=c#d HTTP/3.0 example.com probe/1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var saw seen
			s, targets := serve(t, test.secure, func(w http.ResponseWriter, r *http.Request) {
				saw.add("%s %s %s %s %s", r.Method, r.RequestURI, r.Proto, r.Host, r.UserAgent())
				w.WriteHeader(http.StatusTeapot)
				_, _ = io.WriteString(w, strings.Repeat("tea", 10_000))
			})
			if test.http3 {
				serveHTTP3(t, s)
			}
			o := load.Options{
				Targets: targets, HTTP2: test.http2, HTTP3: test.http3, Streams: 4, Connections: 2,
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

// Requests have the body and its length if their method allows one.
func TestBodies(t *testing.T) {
	for _, test := range []struct {
		method, body, want string
	}{
		{"POST", "name=x", "POST 6 name=x"},
		{"DELETE", "name=x", "DELETE 6 name=x"},
		{"POST", "", "POST 0 "},
		{"DELETE", "", "DELETE 0 "},
		{"GET", "name=x", "GET 0 "},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %q, HTTP2=%t", test.method, test.body, http2), func(t *testing.T) {
				var saw seen
				_, targets := serve(t, false, func(_ http.ResponseWriter, r *http.Request) {
					body, err := io.ReadAll(r.Body)
					if err != nil {
						t.Error(err)
					}
					saw.add("%s %d %s", r.Method, r.ContentLength, body)
				})
				run(t, load.Options{
					Targets: targets, HTTP2: http2, Body: []byte(test.body), Connections: 2,
					Source: &load.Steady{Profile: fast, Look: load.Look{Method: test.method}},
				})
				if diff := cmp.Diff(map[string]int{test.want: 100}, saw.lines); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}

// An answer may come before the whole body is read.
func TestAnswerBeforeBody(t *testing.T) {
	_, targets := serve(t, false, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	r := run(t, load.Options{
		Targets: targets, Body: make([]byte, 1<<16), Connections: 2,
		Source: &load.Steady{Profile: fast, Look: load.Look{Method: "POST"}},
	})
	if r.Statuses["429"] != 100 {
		t.Errorf("answers %v, failures %v; want 100 × 429", r.Statuses, r.Failures)
	}
}

// Connections end after the given number of requests, and each goes to one target.
func TestConnections(t *testing.T) {
	var opened [2]atomic.Int32
	var used sync.Map // connections with requests; others only probe the target
	var byClient seen
	var targets []load.Target
	for i := range 2 {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			byClient.add("%s at %d", r.Header.Get("X-Forwarded-For"), i)
		}))
		s.Config.ConnState = func(c net.Conn, state http.ConnState) {
			if state != http.StateActive {
				return
			}
			if _, before := used.LoadOrStore(c, true); !before {
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
		t.Errorf("%d pairs of client and target, want 20: %v", len(byClient.lines), byClient.lines)
	}
	if total := opened[0].Load() + opened[1].Load(); total < 40 || total > 44 || uint64(total) != r.Sending.Connections {
		t.Errorf("400 requests over %d connections, %d reported; want 40 to 44", total, r.Sending.Connections)
	}
	t.Run("a connection for each client", func(t *testing.T) {
		clear(byClient.lines)
		o := o
		o.Identity, o.Source = load.Identity{Proxy: 1, Header: "X-Forwarded-For"}, &load.Steady{Profile: fast, Clients: 20, Look: load.Look{Method: "GET"}}
		// The servers reject the first line; only the receiver of the request matters.
		o.Dial = func(ctx context.Context, t *load.Target) (net.Conn, error) {
			nc, err := new(net.Dialer).DialContext(ctx, "tcp", t.Addr.String())
			return &headlessConn{Conn: nc}, err
		}
		if run(t, o); len(byClient.lines) != 20 {
			t.Errorf("%d pairs of client and target, want 20: %v", len(byClient.lines), byClient.lines)
		}
	})
	o.Hashed, o.Source = false, &load.Steady{Profile: fast, Clients: 20, Look: load.Look{Method: "GET"}}
	run(t, o)
	if len(byClient.lines) < 30 {
		t.Errorf("%d pairs of client and target, want most of 20 clients at both", len(byClient.lines))
	}
}

// A headlessConn is a connection that drops the first write.
type headlessConn struct {
	net.Conn
	begun bool
}

func (c *headlessConn) Write(b []byte) (int, error) {
	if !c.begun {
		c.begun = true
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// A latency is measured from the time when the request was due, not from when a connection was free.
func TestNoCoordinatedOmission(t *testing.T) {
	first := make(chan struct{}, 1)
	first <- struct{}{}
	_, targets := serve(t, false, func(http.ResponseWriter, *http.Request) {
		select {
		case <-first:
			time.Sleep(300 * time.Millisecond)
		default:
		}
	})
	r := run(t, load.Options{
		Targets: targets, Connections: 1,
		Source: &load.Steady{Profile: []load.Point{{Rate: 1000}}, Look: load.Look{Method: "GET"}},
	})
	// While the first request took 300 ms, the 99 others became due within 99 ms.
	if r.Latency.P50MS < 200 || r.Service.P50MS > r.Latency.P50MS/2 {
		t.Errorf("median latency %v ms, %v of it after sending; want at least 200, most of it before", r.Latency.P50MS, r.Service.P50MS)
	}
	if r.Sending.Kept || r.Sending.Late < 90 {
		t.Errorf("sending %+v, want most requests late", r.Sending)
	}
}

// A startSource is a source that records when the run begins.
type startSource struct {
	load.Steady
	at time.Time
}

func (s *startSource) Begin(now time.Time) { s.at = now }

// A source is told when the run begins, for example to meet the boundaries of windows.
func TestBegin(t *testing.T) {
	_, targets := serve(t, false, func(http.ResponseWriter, *http.Request) {})
	source := &startSource{Steady: load.Steady{Profile: fast, Look: load.Look{Method: "GET"}}}
	if r := run(t, load.Options{Targets: targets, Source: source}); !r.Began.Equal(source.at) {
		t.Errorf("the run began at %v, its source got %v", r.Began, source.at)
	}
}

// Options that would change the meaning of a request are rejected.
func TestUnsendable(t *testing.T) {
	for _, look := range []load.Look{
		{Method: ""}, {Method: "GET /x"}, {Method: "GET\r\nX: y"}, {Method: "CONNECT"},
		{Method: "GET", Host: "a b"}, {Method: "GET", Host: "a\nX: y"}, {Method: "GET", Host: "a/b"}, {Method: "GET", Host: "me@a"},
		{Method: "GET", Target: "x"}, {Method: "GET", Target: "/ HTTP/1.1\r\nX: y"}, {Method: "GET", Target: "/a\tb"}, {Method: "GET", Target: "/\x7f"},
	} {
		if s := (&load.Steady{Look: look}); s.Check() == nil {
			t.Errorf("Check() succeeded for %+v, want an error", look)
		}
	}
	for _, look := range []load.Look{{Method: "GET"}, {Method: "M-SEARCH", Host: "[::1]:80", Target: "//a?b=%zz#c"}} {
		if err := look.Check(); err != nil {
			t.Error(err)
		}
	}
	for _, line := range []string{"", ":", ": x", "a b: c", "a", "a: b\r\nc: d", "a: b\x00", "Host: x y", "content-length: 5", "Transfer-Encoding: chunked", "Connection: close"} {
		if h, err := load.ParseHeader(line); err == nil {
			t.Errorf("ParseHeader(%q) = %q, want an error", line, h)
		}
	}
	if h, err := load.ParseHeader("X-A:b: c "); err != nil || h != [2]string{"X-A", "b: c"} {
		t.Errorf("%q, %v", h, err)
	}
	for _, text := range []string{"", "xff:", "header", "header:", "header:a b", "header:Host", "cookie:a;b", "xff,proxy1", "proxy1,proxy2", "header:a,header:b", "none,xff"} {
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
			t.Errorf("no error for 10 clients in %s", networks)
		}
	}
	many := &load.Steady{Clients: 1<<64 - 1, Look: load.Look{Method: "GET"}, Networks: []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("11.0.0.0/8"),
	}}
	if many.Check() == nil {
		t.Errorf("no error for %d clients in %v", many.Clients, many.Networks)
	}
}

func TestProfiles(t *testing.T) {
	for _, test := range []struct {
		text string
		at   map[int]time.Duration // time at which the nth request is due, from 0
		last int                   // number of requests; 0 if endless
	}{
		{"100/s", map[int]time.Duration{0: 0, 1: 10 * time.Millisecond, 500: 5 * time.Second}, 0},
		{"60/m", map[int]time.Duration{1: time.Second}, 0},
		{"7200/h", map[int]time.Duration{4: 2 * time.Second}, 0},
		{"0/s,100/s@10s", map[int]time.Duration{0: 0, 5: time.Second, 500: 10 * time.Second, 600: 11 * time.Second}, 0},
		{"100/s,0/s@10s", map[int]time.Duration{0: 0, 375: 5 * time.Second}, 500},
		{"36_000_000/h", map[int]time.Duration{1: 100 * time.Microsecond}, 0},
		{"86400/h,0/s@1d", map[int]time.Duration{0: 0}, 0},
		{"100/s,0.000000001/h@1s", map[int]time.Duration{0: 0}, 51}, // the last one while the rate falls
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
				t.Errorf("%s: request %d is due at %v, want %v", test.text, n, r.Due, want)
			}
			if r.Due < before {
				t.Errorf("%s: request %d is due before its predecessor", test.text, n)
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
