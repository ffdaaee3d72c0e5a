package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/proxy"
	"github.com/edgelimit/edge/proxy/http1"
)

// serveCheck serves a Check of p to clients of ln.
func serveCheck(t testing.TB, p *proxy.Proxy, ln net.Listener, o proxy.CheckOptions) {
	t.Helper()
	check := p.NewCheck(o)
	runFront(t, p, ln, http1.Options{Handler: check, Limits: http1.Limits{MaxHeaderBytes: 1 << 16}})
}

// newCheck serves a Check with these rules on a TCP port, and returns its URL.
func newCheck(t testing.TB, rules string, o proxy.CheckOptions, set func(*proxy.Options)) string {
	t.Helper()
	p, _ := newProxy(t, rules, "http://127.0.0.1:1", set)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveCheck(t, p, ln, o)
	return "http://" + ln.Addr().String()
}

func trustLocal(o *proxy.Options) { o.Trusted = append(o.Trusted, localhost) }

// The node reads the same request from each kind of description, and ignores the other kinds, which
// come from the proxy's client.
func TestCheckReadsOneDescription(t *testing.T) {
	const forged = "203.0.113.66"
	for _, test := range []struct {
		name, method, path string
		headers            []string
	}{
		{"forwarded", "GET", "/check", []string{"X-Forwarded-Method", "POST", "X-Forwarded-Uri", "/login?a=b", "X-Forwarded-Host", "example.com", "X-Forwarded-For", forged + ", 192.0.2.1",
			"X-Original-Method", "PUT", "X-Original-URL", "http://other/forged", "X-Api-Key", "k"}},
		{"original", "GET", "/check/original", []string{"X-Original-Method", "POST", "X-Original-URL", "https://example.com/login?a=b", "X-Forwarded-For", "192.0.2.1",
			"X-Forwarded-Method", "PUT", "X-Forwarded-Uri", "/forged", "X-Forwarded-Host", "other", "X-Api-Key", "k"}},
		{"original without host", "GET", "/check/original", []string{"X-Original-Method", "POST", "X-Original-URL", "/login?a=b", "Host", "example.com", "X-Forwarded-For", "192.0.2.1", "X-Api-Key", "k"}},
		{"the question itself", "POST", "/check/request/login?a=b", []string{"Host", "example.com", "X-Forwarded-For", forged, "X-Forwarded-For", "192.0.2.1",
			"X-Forwarded-Method", "PUT", "X-Forwarded-Uri", "/forged", "X-Original-URL", "/forged", "X-Original-Method", "PUT", "X-Api-Key", "k"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			url := newCheck(t, `rules:
  - id: login
    match: {hosts: [example.com], methods: [POST], paths: [/login]}
    characteristics: [ip, {header: x-api-key, missing: skip}, {query: a, missing: skip}]
    limits: [{threshold: 3, period: 1m}]
    mitigation_timeout: 1m
deny: [`+forged+`]`, proxy.CheckOptions{}, trustLocal)
			c := client(t)
			ask := func() *http.Request {
				r := newRequest(t, test.method, url+test.path, nil, test.headers...)
				r.Host = r.Header.Get("Host")
				r.Header.Del("Host")
				return r
			}
			resp, _ := exceed(t, c, ask)
			if resp.Header.Get("X-Edge-Rule") != "login" || resp.Header.Get("X-Edge-Status") != "429" || resp.Header.Get("X-Edge-Verdict") != "blocked" {
				t.Errorf("refused with %v", resp.Header)
			}
			other := ask()
			other.Header.Set("X-Forwarded-For", "192.0.2.2")
			if resp, _ := do(t, c, other); resp.StatusCode != http.StatusOK {
				t.Errorf("another client gets %d", resp.StatusCode)
			}
		})
	}
}

// A refusal is as the rule says, except for statuses and bodies that the asking proxy would misunderstand.
func TestCheckAnswers(t *testing.T) {
	for _, test := range []struct {
		name, action string
		path         string
		deny         int
		status       int
		want         []string // verdict, status that clients should get, Retry-After
		body         string
	}{
		{"block", "action: block", "/check", 0, 429, []string{"blocked", "429", "70"}, "no"},
		{"block, for nginx", "action: block", "/check/original", 0, 403, []string{"blocked", "429", "70"}, ""},
		{"block, with a status", "action: block", "/check", 401, 401, []string{"blocked", "429", "70"}, "no"},
		{"close", "action: close", "/check", 0, 429, []string{"closed", "429", "70"}, ""},
		{"shadow_ban", "action: shadow_ban", "/check", 0, 403, []string{"shadow_banned", "200", ""}, "no"},
		{"log", "action: log", "/check", 0, 200, []string{"logged", "", ""}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			response := ""
			if test.body != "" {
				response = `, response: {body: "no"}`
			}
			now := func() time.Time { return time.Unix(1_800_000_000, 0) } // a minute begins
			url := newCheck(t, "rules: [{id: r, characteristics: [ip], limits: [{threshold: 1, period: 1m}], mitigation_timeout: 70s, "+test.action+response+"}]",
				proxy.CheckOptions{DenyStatus: test.deny}, func(o *proxy.Options) { trustLocal(o); o.Now = now })
			c := client(t)
			var resp *http.Response
			var body string
			for range 1000 {
				resp, body = do(t, c, newRequest(t, "GET", url+test.path, nil, "X-Forwarded-For", "192.0.2.1",
					"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/", "X-Original-Method", "GET", "X-Original-URL", "/"))
				if resp.Header.Get("X-Edge-Verdict") != "passed" {
					break
				}
			}
			got := []string{resp.Header.Get("X-Edge-Verdict"), resp.Header.Get("X-Edge-Status"), resp.Header.Get("Retry-After")}
			if test.want[2] != "" && got[2] != "" { // the test does not control when the record is made
				got[2] = test.want[2]
			}
			if diff := cmp.Diff(test.want, got); diff != "" || resp.StatusCode != test.status || test.body != "" && test.status != 200 && body != test.body || test.path == "/check/original" && body != "" {
				t.Errorf("%d %q, want %d %q\n%s", resp.StatusCode, body, test.status, test.body, diff)
			}
			if has := resp.Header.Get("Refusal-Id") != ""; has != (test.want[2] != "") {
				t.Errorf("has Refusal-Id: %t", has)
			}
			if limited := resp.Header.Get("Ratelimit") != ""; limited != (test.want[2] != "") {
				t.Errorf("has RateLimit: %t", limited)
			}
		})
	}
}

// Another proxy may remember a refusal only if it applies to all requests of the client.
func TestRemembered(t *testing.T) {
	for _, test := range []struct {
		name, rule string // with an ID and a limit
		want       bool
	}{
		{"block", "characteristics: [ip]", true},
		{"another action", "characteristics: [ip], action: shadow_ban", false},
		{"some paths", "characteristics: [ip], match: {paths: [/]}", false},
		{"all but some paths", "characteristics: [ip], except: [{paths: [/other]}]", false},
		{"also by host", "characteristics: [ip, host]", false},
		{"by network", "characteristics: [network:24/48]", false},
		{"refused requests count", "characteristics: [ip], count_while_mitigated: true", false},
		{"almost over", "characteristics: [ip], mitigation_timeout: 1s", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if !strings.Contains(test.rule, "mitigation_timeout") {
				test.rule += ", mitigation_timeout: 1h"
			}
			rules := "rules: [{id: r, limits: [{threshold: 1, period: 1s}], " + test.rule + "}]"
			p, _ := newProxy(t, rules, "http://127.0.0.1:1", trustLocal)
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			serveCheck(t, p, ln, proxy.CheckOptions{})
			ask := func(path string) *http.Response {
				resp, _ := do(t, client(t), newRequest(t, "GET", "http://"+ln.Addr().String()+path, nil, "X-Forwarded-For", "192.0.2.1",
					"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/", "X-Original-Method", "GET", "X-Original-URL", "/"))
				return resp
			}
			var resp *http.Response
			harness.Until(t, "a refusal", time.Minute, time.Millisecond, func() bool {
				resp = ask("/check/original")
				return resp.StatusCode == http.StatusForbidden
			})
			if got := resp.Header.Get("X-Accel-Expires"); got == "1" != test.want {
				t.Errorf("X-Accel-Expires: %q", got)
			}
			if got := ask("/check").Header.Get("X-Accel-Expires"); got != "" {
				t.Errorf("X-Accel-Expires for another proxy than nginx: %q", got)
			}
			var v variables
			p.NewAgent().Handle(message("edge-check", "method", "GET", "path", "/", "src", "192.0.2.1"), &v)
			if got := v.String(); strings.Contains(got, "remember=true") != test.want {
				t.Error(got)
			}
		})
	}
}

// A question that does not describe a request gets no decision, and an error that says what is missing.
func TestCheckWithoutDescription(t *testing.T) {
	reg := prometheus.NewRegistry()
	url := newCheck(t, "rules: [{id: r, characteristics: [ip], limits: [{threshold: 1, period: 1m}], mitigation_timeout: 1m}]",
		proxy.CheckOptions{}, func(o *proxy.Options) { trustLocal(o); o.Registerer = reg })
	c := client(t)
	whole := []string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/", "X-Forwarded-For", "192.0.2.1"}
	for _, test := range []struct {
		method, path string
		headers      []string
		status       int
		text         string
	}{
		{"GET", "/check", whole[2:], 400, "X-Forwarded-Method is missing"},
		{"GET", "/check", append([]string{"X-Forwarded-Method", "PUT"}, whole...), 400, "X-Forwarded-Method is repeated"},
		{"GET", "/check", append([]string{"X-Original-URL", "/"}, whole[:2]...), 400, "X-Forwarded-Uri is missing"},
		{"GET", "/check", whole[:4], 400, "X-Forwarded-For is missing"},
		{"GET", "/check", append([]string{"X-Forwarded-For", "unix:"}, whole[:4]...), 400, "X-Forwarded-For does not end in the client's address"},
		{"GET", "/check/original", whole, 400, "X-Original-Method is missing"},
		{"GET", "/check/else", whole, 404, "ask /check, /check/original or /check/request/…, or POST to /report"},
		{"GET", "/", whole, 404, "ask /check, /check/original or /check/request/…, or POST to /report"},
		{"GET", "/report", whole, 405, "reports must use POST"},
		{"POST", "/report", whole, 400, "X-Origin-Status is not the status of a response"},
	} {
		for range 5 {
			resp, body := do(t, c, newRequest(t, test.method, url+test.path, nil, test.headers...))
			if resp.StatusCode != test.status || body != test.text+"\n" {
				t.Errorf("%s %s %q: %d %q, want %d %q", test.method, test.path, test.headers, resp.StatusCode, body, test.status, test.text)
			}
		}
	}
	if got := sum(t, reg, "edge_requests_total"); got != 0 {
		t.Errorf("%v requests were decided", got)
	}
	if got := sum(t, reg, "edge_check_undecided_total"); got != 7*5 {
		t.Errorf("edge_check_undecided_total = %v, want 35", got)
	}
}

// Addresses that are not trusted get no decision: they could make the node refuse others.
func TestCheckOfUntrustedPeers(t *testing.T) {
	reg := prometheus.NewRegistry()
	p, log := newProxy(t, "rules: [{id: r, characteristics: [ip], limits: [{threshold: 1, period: 1m}], mitigation_timeout: 1m}]", "http://127.0.0.1:1",
		func(o *proxy.Options) {
			o.Trusted, o.Registerer = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, reg
		})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveCheck(t, p, ln, proxy.CheckOptions{})
	c := client(t)
	for range 5 {
		resp, body := do(t, c, newRequest(t, "GET", "http://"+ln.Addr().String()+"/check", nil, "X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/", "X-Forwarded-For", "192.0.2.1"))
		if resp.StatusCode != http.StatusForbidden || body != "this address is not a trusted proxy: add it to the node's trusted_proxy\n" {
			t.Errorf("an address that is not trusted gets %d %q", resp.StatusCode, body)
		}
	}
	if got := sum(t, reg, "edge_requests_total"); got != 0 {
		t.Errorf("%v requests were decided", got)
	}
	if text := log.String(); !strings.Contains(text, "not a trusted proxy") || !strings.Contains(text, "peer=127.0.0.1") || strings.Count(text, "\n") > 5 {
		t.Errorf("log: %s", text)
	}
}

// On a Unix socket everybody is trusted, so no connection counts as a client's.
func TestCheckByUnixSocket(t *testing.T) {
	p, _ := newProxy(t, "rules: [{id: r, characteristics: [ip], limits: [{threshold: 1, period: 1m}], mitigation_timeout: 1m}]", "http://127.0.0.1:1", func(o *proxy.Options) {
		o.ClientConnections = 1
	})
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	serveCheck(t, p, ln, proxy.CheckOptions{Local: true})
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	if byHTTP2 {
		tr.Protocols = new(http.Protocols)
		tr.Protocols.SetUnencryptedHTTP2(true)
	}
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr}
	for i := range 3 {
		held, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
		_, _ = io.WriteString(held, "GET /unknown HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, err := http.ReadResponse(bufio.NewReader(held), nil); err != nil || resp.StatusCode != http.StatusNotFound {
			t.Fatalf("connection %d: %v, %v", i, resp, err)
		}
		resp, _ := exceed(t, c, func() *http.Request {
			return newRequest(t, "GET", "http://edge/check", nil, "X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/", "X-Forwarded-For", fmt.Sprintf("192.0.2.%d", i))
		})
		if resp.StatusCode != http.StatusTooManyRequests {
			t.Errorf("refused with %d", resp.StatusCode)
		}
	}
}

// Questions that are too long get an answer, however long they are: if one failed, its request would pass.
func TestCheckLongQuestions(t *testing.T) {
	p, _ := newProxy(t, noRules, "http://127.0.0.1:1", nil)
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	serveCheck(t, p, ln, proxy.CheckOptions{Local: true})
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	defer c.CloseIdleConnections()
	target := "/?" + strings.Repeat("a", http.DefaultMaxHeaderBytes)
	for range 100 {
		resp, err := c.Do(newRequest(t, "GET", "http://edge/check"+target[1:], nil, "X-Forwarded-Method", "GET", "X-Forwarded-Uri", target, "X-Forwarded-For", "192.0.2.1"))
		if err != nil {
			t.Fatal("a question of 2 MB fails:", errors.Unwrap(err))
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Fatalf("a question of 2 MB gets %s", resp.Status)
		}
	}
}

// An asker is a proxy that asks a Check about requests for a path.
type asker struct {
	t         *testing.T
	c         *http.Client
	url, path string
}

func newAsker(t *testing.T, rules, path string) *asker {
	return &asker{t, client(t), newCheck(t, rules, proxy.CheckOptions{}, trustLocal), path}
}

func (a *asker) ask(method, to, client string, more ...string) (status int) {
	a.t.Helper()
	header := append([]string{"X-Forwarded-Method", "POST", "X-Forwarded-Uri", a.path, "X-Forwarded-For", client}, more...)
	resp, _ := do(a.t, a.c, newRequest(a.t, method, a.url+to, nil, header...))
	return resp.StatusCode
}

func (a *asker) refused(client string) bool {
	a.t.Helper()
	return a.ask("GET", "/check", client) == http.StatusTooManyRequests
}

// await waits until a client is refused.
func (a *asker) await(client string) {
	a.t.Helper()
	harness.Until(a.t, client+" is refused", patience, time.Millisecond, func() bool { return a.refused(client) })
}

// report reports an answer to a client.
func (a *asker) report(client, status string, more ...string) {
	a.t.Helper()
	if got := a.ask("POST", "/report", client, append(more, "X-Origin-Status", status)...); got != http.StatusNoContent {
		a.t.Fatalf("report: %d", got)
	}
}

// Rules that count answers count reported answers, but not those to requests that the node has refused.
func TestReport(t *testing.T) {
	a := newAsker(t, "rules: [{id: login, match: {paths: [/login]}, count: {statuses: [401]}, characteristics: [ip], limits: [{threshold: 3, period: 1m}], mitigation_timeout: 1m}]", "/login")
	for range 20 {
		a.report("192.0.2.1", "200")
		a.report("192.0.2.2", "401", "X-Edge-Verdict", "blocked")
		a.report("192.0.2.3", "401", "X-Edge-Verdict", "passed")
		a.report("192.0.2.4", "401")
	}
	a.await("192.0.2.3")
	a.await("192.0.2.4")
	for _, innocent := range []string{"192.0.2.1", "192.0.2.2"} {
		if got := a.ask("GET", "/check", innocent); got != 200 {
			t.Errorf("%s gets %d", innocent, got)
		}
	}
}

// The access log of a node that answers questions has no status of the origin until the proxy reports it.
func TestReportedStatusIsLogged(t *testing.T) {
	p, log := newProxy(t, noRules, "http://127.0.0.1:1", func(o *proxy.Options) {
		trustLocal(o)
		o.AccessLog = o.Logger
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveCheck(t, p, ln, proxy.CheckOptions{})
	a := &asker{t, client(t), "http://" + ln.Addr().String(), "/login"}
	a.ask("GET", "/check", "192.0.2.1")
	a.report("192.0.2.1", "401")
	for _, want := range []string{
		`msg=request client=192.0.2.1 method=POST host=\S+ uri=/login proto=\S+ status=0 `,
		`msg="response reported" client=192.0.2.1 method=POST host=\S+ uri=/login status=401`,
	} {
		harness.Until(t, "the log has "+want, patience, time.Millisecond, func() bool { return regexp.MustCompile(want).MatchString(log.String()) })
	}
}

// Reports about clients on the access lists count for nobody, so no other client is refused because of them.
func TestReportAboutListedClient(t *testing.T) {
	a := newAsker(t, `rules: [{id: login, count: {statuses: [401]}, characteristics: [path], limits: [{threshold: 3, period: 1m}], mitigation_timeout: 1m}]
allow: [192.0.2.1]
deny: [192.0.2.2]`, "/login")
	for range 20 {
		a.report("192.0.2.1", "401")
		a.report("192.0.2.2", "401")
	}
	a.path = "/other"
	for range 20 {
		a.report("192.0.2.3", "401")
	}
	a.await("192.0.2.4") // the earlier reports have been counted, too
	a.path = "/login"
	if a.refused("192.0.2.4") {
		t.Error("a client is refused because of reports about others, which are on the access lists")
	}
}

// A report has the cost of a request, for rules that read it from the answer.
func TestReportedCost(t *testing.T) {
	a := newAsker(t, "rules: [{id: all, count: {cost: 2, cost_header: X-Points}, characteristics: [ip], limits: [{threshold: 100, period: 168h}]}]", "/")
	for i, test := range []struct {
		cost []string
		pass int
	}{
		{[]string{"X-Origin-Cost", "100"}, 1},
		{[]string{"X-Origin-Cost", "50"}, 2},
		{[]string{"X-Points", "40"}, 50}, // of the client's request, which proxies pass on
		{nil, 50},
		{[]string{"X-Origin-Cost", ""}, 50},
		{[]string{"X-Origin-Cost", "40", "X-Origin-Cost", "40"}, 50},
	} {
		client, other := fmt.Sprintf("192.0.2.%d", i), fmt.Sprintf("198.51.100.%d", i)
		for range test.pass {
			a.report(client, "200", test.cost...)
		}
		a.report(other, "200", "X-Origin-Cost", "101")
		a.await(other)
		if a.refused(client) {
			t.Errorf("the client is refused after %d reports with %q", test.pass, test.cost)
		}
		a.report(client, "200", test.cost...)
		a.await(client)
	}
}

// A question that cannot be read is refused: otherwise a client could pass by sending a field that its
// proxy forwards and the node cannot read.
func TestMalformedQuestion(t *testing.T) {
	url := newCheck(t, noRules, proxy.CheckOptions{}, trustLocal)
	conn := dialRaw(t, url)
	defer conn.Close()
	if got := send(t, url, "GET /check/original HTTP/1.1\r\nHost: a\r\nX-Original-Method: GET\r\nX-Original-URL: /\r\nX-Forwarded-For: 192.0.2.1\r\nX: \x01"); got != http.StatusForbidden {
		t.Errorf("a question with a control byte gets %d, want 403", got)
	}
}

// Over HTTP/2, such a question gets the same answer: its stream is not reset, and the status is that of a refusal.
func TestMalformedQuestionOverHTTP2(t *testing.T) {
	many := make([][2]string, 101)
	for i := range many {
		many[i] = [2]string{"x", "1"}
	}
	for name, fields := range map[string][][2]string{
		"a control byte":                {{"x", "\x01"}},
		"a field of HTTP/1.1":           {{"connection", "close"}},
		"too many fields":               many,
		"an Expect that is unsupported": {{"expect", "x"}},
	} {
		conn := dialRaw(t, newCheck(t, noRules, proxy.CheckOptions{}, trustLocal))
		fields = append([][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", "/check/original"}, {":authority", "a"}, {"x-forwarded-for", "192.0.2.1"},
			{"x-original-method", "GET"}, {"x-original-url", "/"}}, fields...)
		if _, err := io.WriteString(conn, h2Request(fields...)); err != nil {
			t.Fatal(err)
		}
		frames := http2.NewFramer(io.Discard, conn)
		frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		for {
			f, err := frames.ReadFrame()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if f.Header().StreamID == 0 {
				continue
			}
			if head, ok := f.(*http2.MetaHeadersFrame); !ok || head.PseudoValue("status") != "403" {
				t.Errorf("a question with %s gets %v, want 403", name, f)
			}
			break
		}
	}
}
