package pop_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/proxy/http2/http2test"
)

// No spelling of a host evades a rule for it and still reaches the site: nginx ignores what follows the name,
// and serves any host by default.
func TestHostsThatNginxServes(t *testing.T) {
	nginx := startNginx(t, "return 200 $host;")
	w := startWired(t, "rules: [{id: site, match: {hosts: [example.com]}, characteristics: [ip], limits: [{threshold: 5, period: 7d}]}]", nil, func(o *pop.Options) {
		o.Origin, o.OriginOptions.Dial = "http://nginx", nginx.DialContext
	})
	for _, host := range []string{
		"example.com:80:90", "example.com:::", "example.com,x", "example.com:x", "example.com:80x", "example.com:-1", "example.com:65536",
		"example.com:80,", ".example.com", "example..com", "example.com..", ":80", "example.com;x", "example.com=", "example.com&x", "example.com!",
		"(example.com)", "example.com*", "*", "example.com'", "example.com~", "[::1", "[::1]80", "[::1]:x", "[::1%25x]", "[1.2.3.4]", "[]", "[v1.x]", "::1", "a b",
	} {
		for _, text := range []string{get(host), strings.Replace(get("x"), "GET /", "GET http://"+host+"/", 1)} {
			if resp, body := w.ask(text); resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%.40q: %s %q, want 400", text, resp.Status, body)
			}
		}
	}
	for _, host := range []string{"localhost", "my_site", "a-b.example", "192.0.2.1:8080", "[::1]", "[::1]:80", "[::ffff:192.0.2.1]", "other.example.:80", "other.example:"} {
		if resp, body := w.ask(get(host)); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %q, want 200", host, resp.Status, body)
		}
	}
	passed := 0
	for _, host := range []string{"example.com", "EXAMPLE.com", "example.com:80", "example.com:", "example.com.", "Example.Com.:443"} {
		passed += w.refusedAfter(get(host), http.StatusOK)
	}
	if passed < 6 || passed > 100 {
		t.Errorf("%d requests with spellings of one host passed a limit of 5", passed)
	}
}

// A request that cannot be matched counts for the client's address if a rule counts by nothing else. Once the
// client is mitigated, all its requests are refused, whatever their kind.
func TestMalformedRequestsCount(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		status     int
	}{
		{"a bad host", get("example.com:80:90"), http.StatusBadRequest},
		{"a bad host in the target", "GET http://example.com,x/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", http.StatusBadRequest},
		{"an opaque target", "GET x:example.com HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", http.StatusBadRequest},
		{"no request", "x\r\n\r\n", http.StatusBadRequest},
		{"no host", "GET / HTTP/1.1\r\n\r\n", http.StatusBadRequest},
		{"two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", http.StatusBadRequest},
		{"a bad field", "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", http.StatusBadRequest},
		{"a long header", "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 8000) + "\r\n\r\n", http.StatusRequestHeaderFieldsTooLarge},
		{"an unknown coding", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: zip\r\n\r\n", http.StatusNotImplemented},
		{"an unknown expectation", "POST / HTTP/1.1\r\nHost: a\r\nExpect: wonders\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", http.StatusExpectationFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := startWired(t, fivePerClient, func(http.ResponseWriter, *http.Request) { t.Error("the request reached the origin") },
				func(o *pop.Options) { o.MaxHeaderBytes = 1000 })
			n := w.refusedAfter(tt.text, tt.status)
			if n < 6 {
				t.Errorf("refused after %d requests, want 6 or more", n)
			}
			if resp, _ := w.ask(get("example.com")); resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
				t.Errorf("then a well-formed request: %s, want 429", resp.Status)
			}
			if total, err := sum(w.Gatherer(), "edge_requests_total"); err != nil || int(total) != n+2 {
				t.Errorf("edge_requests_total is %v, %v; want %d", total, err, n+2)
			}
		})
	}
}

// Rules with a match, or that count by more than the address, do not apply to malformed requests.
func TestMalformedRequestsDoNotCountForOtherRules(t *testing.T) {
	const limits = "limits: [{threshold: 1, period: 7d}]"
	w := startWired(t, fmt.Sprintf(`rules:
  - {id: method, match: {methods: [GET]}, characteristics: [ip], %[1]s}
  - {id: path, match: {paths: [/*]}, characteristics: [ip], %[1]s}
  - {id: host, match: {hosts: [example.com]}, characteristics: [ip], %[1]s}
  - {id: agent, characteristics: [ip, "header:user-agent"], %[1]s}
  - {id: method-of-all, characteristics: [method], %[1]s}
  - {id: answer, count: {statuses: [400]}, characteristics: [ip], %[1]s}
`, limits), nil, func(o *pop.Options) { o.Origin = "http://127.0.0.1:1" })
	for range 50 {
		if resp, body := w.ask(get("example.com:80:90")); resp.StatusCode != http.StatusBadRequest || body != "malformed request\n" {
			t.Fatalf("%s %q, want 400 for a malformed request", resp.Status, body)
		}
	}
	if resp, _ := w.ask(get("example.com")); resp.StatusCode != http.StatusBadGateway {
		t.Errorf("a well-formed request: %s, want it to pass", resp.Status)
	}
}

// A malformed request also counts after a valid one on the same connection.
func TestMalformedRequestsCountOnUsedConnections(t *testing.T) {
	w := startWired(t, fivePerClient, func(http.ResponseWriter, *http.Request) {}, nil)
	for range 3 {
		_, r := w.dial("GET / HTTP/1.1\r\nHost: a\r\n\r\nx\r\n\r\n")
		for _, want := range []int{http.StatusOK, http.StatusBadRequest} {
			if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != want && resp.StatusCode != http.StatusTooManyRequests {
				t.Fatalf("%+v, %v; want %d", resp, err, want)
			}
		}
	}
	if n := w.metric("edge_requests_total"); n != 6 {
		t.Errorf("counted %v requests, want 6", n)
	}
}

// Mitigated and denied clients get no answer to garbage if the rule's action is close.
func TestGarbageFromRefusedClients(t *testing.T) {
	w := startWired(t, "rules: []\ndeny: [127.0.0.0/8]", nil, func(o *pop.Options) { o.Origin = "http://127.0.0.1:1" })
	_, r := w.dial("x\r\n\r\n")
	if answer, err := io.ReadAll(r); len(answer) > 0 || err != nil {
		t.Errorf("a denied client gets %q, %v; want EOF", answer, err)
	}
	w = startWired(t, strings.Replace(fivePerClient, "}]}]", "}], action: close}]", 1), nil, func(o *pop.Options) { o.Origin = "http://127.0.0.1:1" })
	await(t, "the client gets nothing", func() bool {
		_, r := w.dial("x\r\n\r\n")
		answer, err := io.ReadAll(r)
		if err != nil || len(answer) > 0 && !strings.HasPrefix(string(answer), "HTTP/1.1 400") {
			t.Fatalf("%q, %v; want 400 or EOF", answer, err)
		}
		return len(answer) == 0
	})
}

// Malformed requests from a trusted proxy are not the proxy's fault, and their client is unknown.
func TestGarbageFromTrustedProxies(t *testing.T) {
	w := startWired(t, fivePerClient, func(http.ResponseWriter, *http.Request) {}, func(o *pop.Options) {
		o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	for range 50 {
		if resp, _ := w.ask("x\r\n\r\n"); resp.StatusCode != http.StatusBadRequest {
			t.Fatalf("%s, want 400", resp.Status)
		}
	}
	w.passes("after other clients' garbage")
}

// field returns an HTTP/2 header field without compression, up to 64 KiB long.
func field(name, value string) string {
	var b []byte
	b = append(b, 0) // a literal that is not indexed
	for _, text := range []string{name, value} {
		if n := len(text); n < 127 {
			b = append(b, byte(n))
		} else {
			b = append(b, 127)
			for n -= 127; n >= 128; n >>= 7 {
				b = append(b, byte(n)|128)
			}
			b = append(b, byte(n))
		}
		b = append(b, text...)
	}
	return string(b)
}

// frame returns an HTTP/2 frame.
func frame(kind, flags byte, stream uint32, payload string) string {
	h := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return string(binary.BigEndian.AppendUint32(h, stream)) + payload
}

const (
	preface                    = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00" // with SETTINGS
	headers, continuation      = 1, 9
	endStream, endHeaders byte = 1, 4
)

// request has the pseudo-header fields of each HTTP/2 request.
var request = field(":method", "GET") + field(":scheme", "http") + field(":path", "/") + field(":authority", "a")

// HTTP/2 requests that net/http answers itself, with a status or a reset, count too, and end the connection.
func TestMalformedRequestsOfHTTP2Count(t *testing.T) {
	for name, block := range map[string]string{
		"reset": request + field("Upper", "x"),
		"400":   request + field("connection", "x"),
		"431":   request + field("x", strings.Repeat("x", 900)) + field("y", strings.Repeat("y", 900)),
	} {
		bubble.Test(t, func(t *testing.T) {
			p := startPiped(t, func(http.ResponseWriter, *http.Request) {}, func(o *pop.Options) {
				o.MaxHeaderBytes, o.Rules = 1500, parse(t, fivePerClient)
			})
			ask := func(want int) {
				t.Helper()
				conn, r := p.connect(t, get("a.example"))
				defer conn.Close()
				if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != want {
					t.Errorf("%s: a well-formed request: %+v, %v; want %d", name, resp, err, want)
				}
			}
			conn, r := p.connect(t, preface)
			end := make(chan time.Time, 1)
			go func() {
				_, _ = io.Copy(io.Discard, r)
				end <- time.Now()
			}()
			var last time.Time
			for n := range uint32(7) {
				if n == 6 {
					ask(http.StatusTooManyRequests)
				}
				last = time.Now()
				if _, err := io.WriteString(conn, frame(headers, endStream|endHeaders, 2*n+1, block)); err != nil {
					t.Fatalf("%s, request %d: %v", name, n, err)
				}
				time.Sleep(10 * time.Second)
			}
			select {
			case at := <-end:
				if at.Before(last) {
					t.Errorf("%s: the connection ends before the client is mitigated", name)
				}
			default:
				t.Errorf("%s: the connection of a mitigated client does not end", name)
			}
		})
	}
}

// Clients of other protocols get no answer, and count.
func TestOtherProtocols(t *testing.T) {
	for _, text := range []string{"INVALID CONNECTION PREFACE\r\n\r\n", "OPTIONS sip:a@b SIP/2.0\r\nVia: x\r\n\r\n", "OPTIONS * RTSP/1.0\r\n\r\n"} {
		w := startWired(t, fivePerClient, nil, func(o *pop.Options) { o.Origin = "http://127.0.0.1:1" })
		_, r := w.dial(text)
		if answer, err := io.ReadAll(r); len(answer) > 0 {
			t.Errorf("%q gets %q, %v; want EOF", text, answer, err)
		}
		if n := w.metric("edge_requests_total"); n != 1 {
			t.Errorf("%q: counted %v requests, want 1", text, n)
		}
	}
}

// A malformed request line of HTTP gets an answer, however many words it has.
func TestMalformedFirstLines(t *testing.T) {
	w := startWired(t, "rules: []", nil, func(o *pop.Options) { o.Origin = "http://127.0.0.1:1" })
	for _, line := range []string{"GET /", "GET / ", "GET  /", "GET  / ", " GET /", "GET /a b", "GET / HTTP/1.1 ", "GET  / HTTP/1.1", "GET", " ", "  ", "* ", "GET / HTTP"} {
		if resp, _ := w.ask(line + "\r\nHost: a\r\n\r\n"); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %s, want 400", line, resp.Status)
		}
	}
}

// A client that does not speak HTTP/2 after its preface is limited.
func TestBrokenConnectionsOfHTTP2Count(t *testing.T) {
	w := startWired(t, fivePerClient, nil, func(o *pop.Options) { o.Origin = "http://127.0.0.1:1" })
	for n := range 6 {
		conn, _ := w.dial(preface + frame(headers, endStream|endHeaders, 0, request))
		await(t, "it counts", func() bool { return w.metric("edge_requests_total") == float64(n+1) })
		_ = conn.Close()
	}
	w.mitigated()
}

// HTTP/2 requests that wait for their turn or are canceled do not count as malformed.
func TestWellFormedRequestsOfHTTP2(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPiped(t, func(http.ResponseWriter, *http.Request) { time.Sleep(10 * time.Second) }, func(o *pop.Options) {
			// Such requests continue when they are canceled, so others wait for their turn.
			o.Rules = parse(t, `rules: [{id: all, count: {statuses: [401]}, characteristics: ["header:x-n"], limits: [{threshold: 5, period: 7d}]}]`)
		})
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		tr := &http.Transport{Protocols: protocols, DialContext: http2test.Dial(p.front.Dial), HTTP2: &http.HTTP2Config{StrictMaxConcurrentRequests: true}}
		defer tr.CloseIdleConnections()
		var asking sync.WaitGroup
		for n := range 600 {
			asking.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n%2)*time.Hour+time.Second)
				defer cancel()
				r, _ := http.NewRequestWithContext(ctx, "GET", "http://a.example/", nil)
				r.Header.Set("X-N", fmt.Sprint(n))
				if resp, err := tr.RoundTrip(r); err == nil {
					resp.Body.Close()
				}
			})
			time.Sleep(10 * time.Millisecond)
		}
		asking.Wait()
		time.Sleep(time.Minute)
		if n, err := sum(p.Gatherer(), "edge_requests_total/malformed"); n != 0 || err != nil {
			t.Errorf("%v requests counted as malformed, %v; want none", n, err)
		}
	})
}

// A header must arrive in time, whatever it consists of. A complete one is answered immediately.
func TestHeaderTimeouts(t *testing.T) {
	const timeout = 7 * time.Second
	whole := frame(headers, endStream|endHeaders, 1, request)
	for _, tt := range []struct {
		name  string
		first string
		later string // sent after six seconds
		want  time.Duration
	}{
		{"nothing", "", "", timeout},
		{"a request that is too short", "x\r\n\r\n", "", 0},
		{"the first byte of a method", "P", "", timeout},
		{"a preface that does not end", preface[:20], "", timeout},
		{"a header that begins late", "P", "OST / HTTP/1.1\r\n", timeout},
		{"no END_HEADERS", preface + frame(headers, endStream, 1, request), "", timeout},
		{"no END_HEADERS, then CONTINUATION", preface + frame(headers, endStream, 1, request), frame(continuation, 0, 1, request), timeout},
		{"half a frame", preface + whole[:30], whole[30:40], timeout},
		{"three bytes of a frame", preface + whole[:3], "", timeout},
		{"two halves of a frame", preface + whole[:30], whole[30:], time.Hour},
		{"a request", preface + whole, "", time.Hour},
	} {
		bubble.Test(t, func(t *testing.T) {
			p := startPiped(t, func(http.ResponseWriter, *http.Request) {}, func(o *pop.Options) {
				o.ReadHeaderTimeout, o.IdleTimeout = timeout, time.Hour
			})
			start, end := time.Now(), make(chan time.Duration, 1)
			conn, r := p.connect(t, tt.first)
			go func() {
				if tt.later != "" {
					time.Sleep(6 * time.Second)
					_, _ = io.WriteString(conn, tt.later)
				}
			}()
			go func() {
				_, _ = io.Copy(io.Discard, r)
				end <- time.Since(start)
			}()
			time.AfterFunc(time.Minute, func() { _ = conn.Close() })
			took := <-end
			if tt.want == time.Hour && took != time.Minute || tt.want != time.Hour && took.Round(time.Second) != tt.want {
				t.Errorf("%s: the connection ends after %v, want %v", tt.name, took, tt.want)
			}
			time.Sleep(time.Minute) // until the timer has fired
		})
	}
}
