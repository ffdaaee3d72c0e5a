package proxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/proxy"
)

// block returns a rule with an action and more settings.
func block(action, more string) string {
	return "rules: [{id: all, characteristics: [ip], limits: [{threshold: 3, period: 1h}, {threshold: 900000, period: 7d}], action: " + action + more + "}]"
}

func TestBlock(t *testing.T) {
	for _, tt := range []struct {
		name, more, method    string
		status                int
		body, contentType     string
		policy, remaining     string
		retryAfter, cacheable bool
	}{
		{"by default", "", "GET", 429, "too many requests\n", "text/plain; charset=utf-8", "", "", true, false},
		{"as the rule says", `, response: {status: 503, content_type: application/json, body: '{"slow": "down"}'}`, "GET", 503, `{"slow": "down"}`, "application/json", "", "", true, false},
		{"HEAD", "", "HEAD", 429, "", "text/plain; charset=utf-8", "", "", true, false},
		{"without a body", ", response: {status: 204}", "GET", 204, "", "text/plain; charset=utf-8", "", "", true, false},
	} {
		url := front(t, block("block", tt.more), ok, nil)
		resp, body := exceed(t, client(t), func() *http.Request { return newRequest(t, tt.method, url, nil) })
		if resp.StatusCode != tt.status || body != tt.body || resp.Header.Get("Content-Type") != tt.contentType {
			t.Errorf("%s: %d %q %q, want %d %q %q", tt.name, resp.StatusCode, resp.Header.Get("Content-Type"), body, tt.status, tt.contentType, tt.body)
		}
		if got := resp.Header.Get("Retry-After"); !regexp.MustCompile(`^[1-9][0-9]*$`).MatchString(got) {
			t.Errorf("%s: Retry-After %q, want whole seconds", tt.name, got)
		}
		if got, want := resp.Header.Get("RateLimit-Policy"), `"all/1h";q=3;w=3600, "all/7d";q=900000;w=604800`; got != want {
			t.Errorf("%s: RateLimit-Policy %s, want %s", tt.name, got, want)
		}
		// The estimate of the exceeded limit is known.
		if got, want := resp.Header.Get("RateLimit"), `"all/1h";r=0;t=`+resp.Header.Get("Retry-After"); got != want {
			t.Errorf("%s: RateLimit %s, want %s", tt.name, got, want)
		}
		if got := resp.Header.Get("Cache-Control"); got != "no-store" {
			t.Errorf("%s: Cache-Control %q", tt.name, got)
		}
	}
}

// A refusal has the ID of its key: in its header, in the access log, and in the body if the rule asks for
// it. The body is as long as its head says, however long the values are.
func TestRefusalID(t *testing.T) {
	p, log := newProxy(t, block("block", `, response: {content_type: text/html, body: '<p>{id} {retry_after} {{other}} {other}'}`),
		serve(t, http.HandlerFunc(ok)).URL, func(o *proxy.Options) { o.AccessLog, o.Trusted = o.Logger, []netip.Prefix{localhost} })
	url := serveProxy(t, p)
	c := client(t)
	for addr, wantID := range map[string]string{"203.0.113.9": "hbe4-mxcj", "2001:db8::9": "xmfp-nmjc"} {
		resp, body := exceed(t, c, func() *http.Request { return newRequest(t, "GET", url, nil, "X-Forwarded-For", addr) })
		id := resp.Header.Get("Refusal-Id")
		if want := "<p>" + id + " " + resp.Header.Get("Retry-After") + " {{other}} {other}"; body != want || resp.ContentLength != int64(len(want)) {
			t.Errorf("%s: body %q of %d bytes, want %q", addr, body, resp.ContentLength, want)
		}
		if id != wantID {
			t.Errorf("%s: Refusal-Id %q, want %s", addr, id, wantID)
		}
		line := regexp.MustCompile("client=" + addr + " .* verdict=blocked rule=all refusal_id=" + id + "\n")
		harness.Until(t, "the access log has "+line.String(), patience, time.Millisecond, func() bool { return line.MatchString(log.String()) })
	}
	if strings.Contains(strings.Join(regexp.MustCompile("(?m)^.*verdict=passed.*$").FindAllString(log.String(), -1), "\n"), "refusal_id") {
		t.Errorf("a line of a request that passed has an ID:\n%s", log)
	}
	head, body := do(t, c, newRequest(t, "HEAD", url, nil, "X-Forwarded-For", "203.0.113.9"))
	if want := int64(len("<p>7kq2-m9xd " + head.Header.Get("Retry-After") + " {{other}} {other}")); body != "" || head.ContentLength != want {
		t.Errorf("HEAD: body %q of %d bytes, want none of %d", body, head.ContentLength, want)
	}
}

func TestShadowBanIsNotSeen(t *testing.T) {
	var reached atomic.Int64
	url := front(t, block("shadow_ban", ", response: {body: banned}"), func(w http.ResponseWriter, r *http.Request) {
		reached.Add(1)
		ok(w, r)
	}, nil)
	// Neither a banned client nor one that is about to be banned sees quotas: the node knows the count before it
	// answers some of the requests that pass.
	c := client(t)
	for body := ""; body != "banned"; {
		var resp *http.Response
		resp, body = do(t, c, newRequest(t, "GET", url, nil))
		if resp.StatusCode != http.StatusOK || body != "ok" && body != "banned" || reached.Load() > 1000 {
			t.Fatalf("answer %d %q after %d, want 200, and before long the body of the ban", resp.StatusCode, body, reached.Load())
		}
		for name := range resp.Header {
			if strings.HasPrefix(strings.ToLower(name), "ratelimit") || name == "Retry-After" || name == "Cache-Control" || name == "Refusal-Id" {
				t.Errorf("the answer %q has %s", body, name)
			}
		}
	}
	before := reached.Load()
	do(t, client(t), newRequest(t, "GET", url, nil))
	if reached.Load() != before {
		t.Error("a banned request reached the origin")
	}
}

// Retry-After and the quota fields agree, because the clock is read only once for them: here
// a second passes with each read.
func TestRefusalUsesOneSnapshot(t *testing.T) {
	var reads atomic.Int64
	url := front(t, block("block", ", mitigation_timeout: 2h"), ok, func(o *proxy.Options) {
		o.Headers = proxy.BothHeaders
		o.Now = func() time.Time { return time.Now().Add(time.Duration(reads.Add(1)) * time.Second) }
	})
	resp, _ := exceed(t, client(t), func() *http.Request { return newRequest(t, "GET", url, nil) })
	wait := resp.Header.Get("Retry-After")
	if got, want := resp.Header.Get("RateLimit"), `"all/1h";r=0;t=`+wait; got != want || resp.Header.Get("X-RateLimit-Reset") != wait {
		t.Errorf("Retry-After %s, RateLimit %s, X-RateLimit-Reset %s; want the same time", wait, got, resp.Header.Get("X-RateLimit-Reset"))
	}
}

func TestLogOnlyChangesNothingThatClientsSee(t *testing.T) {
	url := front(t, block("log", ""), ok, nil)
	for i := range 20 {
		resp, body := do(t, client(t), newRequest(t, "GET", url, nil))
		if resp.StatusCode != http.StatusOK || body != "ok" || resp.Header.Get("RateLimit-Policy") != "" {
			t.Fatalf("request %d: %d %q %v", i, resp.StatusCode, body, resp.Header)
		}
	}
}

func TestDenied(t *testing.T) {
	url := front(t, "rules: []\ndeny: [127.0.0.0/8]", ok, nil)
	resp, body := do(t, client(t), newRequest(t, "GET", url, nil))
	if resp.StatusCode != http.StatusForbidden || body != "forbidden\n" || resp.Header.Get("Retry-After") != "" {
		t.Errorf("answer %d %q, Retry-After %q, want 403 without one", resp.StatusCode, body, resp.Header.Get("Retry-After"))
	}
	if _, ok := counter.ParseID(resp.Header.Get("Refusal-Id")); !ok {
		t.Errorf("Refusal-Id %q", resp.Header.Get("Refusal-Id"))
	}
}

// Without shards, a rule that fails closed lets nothing pass. Its answer says when to retry, and nothing about a limit,
// because the client has not exceeded one.
func TestUnavailable(t *testing.T) {
	p, log := newProxy(t, block("close", ", on_failure: closed, response: {status: 418, body: teapot}"), serve(t, http.HandlerFunc(ok)).URL,
		func(o *proxy.Options) { o.AccessLog = o.Logger })
	url := serveProxy(t, p)
	for method, want := range map[string]string{"GET": "temporarily unavailable\n", "HEAD": ""} {
		resp, body := do(t, client(t), newRequest(t, method, url, nil))
		h := resp.Header
		if h.Get("Refusal-Id") != "" {
			t.Errorf("%s: Refusal-Id %s: nothing is known about the client", method, h.Get("Refusal-Id"))
		}
		if resp.StatusCode != http.StatusServiceUnavailable || body != want || h.Get("Retry-After") != "1" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %q %v, want 503 and Retry-After: 1", method, resp.StatusCode, body, h)
		}
		for name := range h {
			if strings.HasPrefix(strings.ToLower(name), "ratelimit") {
				t.Errorf("%s: the answer has %s", method, name)
			}
		}
	}
	harness.Until(t, "the access log has both requests as unavailable", patience, time.Millisecond, func() bool {
		return strings.Count(log.String(), "verdict=unavailable") == 2
	})
}

func TestCloseEndsTheConnection(t *testing.T) {
	url := front(t, block("close", ""), ok, nil)
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	one := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }, MaxConnsPerHost: 1}
	defer one.CloseIdleConnections()
	c := &http.Client{Transport: one}
	for range 1000 {
		resp, err := c.Do(newRequest(t, "POST", url, strings.NewReader("x")))
		if err != nil {
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				t.Errorf("the connection is not closed: %v", err)
			}
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("answer %d, want none", resp.StatusCode)
		}
	}
	t.Fatal("1000 requests passed")
}

// In HTTP/2 only the stream ends; the connection carries the next request.
func TestCloseResetsTheStream(t *testing.T) {
	if byHTTP3 {
		return // the connection ends
	}
	p, _ := newProxy(t, block("close", ""), serve(t, http.HandlerFunc(ok)).URL, nil)
	url := serveHTTP2(t, p, true)
	c := client(t)
	reused := false
	request := func() (*http.Response, error) {
		r := newRequest(t, "GET", url, nil)
		return c.Do(r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
			GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused },
		})))
	}
	for range 1000 {
		resp, err := request()
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.ProtoMajor != 2 || resp.StatusCode != http.StatusOK {
				t.Fatalf("answer %d by %s", resp.StatusCode, resp.Proto)
			}
			continue
		}
		if !strings.Contains(err.Error(), "stream error") {
			t.Errorf("error %v, want a reset stream", err)
		}
		if _, err := request(); err == nil || !strings.Contains(err.Error(), "stream error") || !reused {
			t.Errorf("the next request: %v, on the same connection: %t", err, reused)
		}
		return
	}
	t.Fatal("1000 requests passed")
}

func TestCloseBehindATrustedProxyBlocks(t *testing.T) {
	url := front(t, block("close", ""), ok, func(o *proxy.Options) { o.Trusted = []netip.Prefix{localhost} })
	resp, _ := exceed(t, client(t), func() *http.Request {
		return newRequest(t, "GET", url, nil, "X-Forwarded-For", "203.0.113.9")
	})
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Errorf("answer %d, Retry-After %q, want 429 with one", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
}

func TestHeaderStyles(t *testing.T) {
	for _, tt := range []struct {
		style proxy.HeaderStyle
		want  []string
	}{
		{proxy.Draft10, []string{"RateLimit", "RateLimit-Policy"}},
		{proxy.XRateLimit, []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}},
		{proxy.BothHeaders, []string{"RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}},
		{proxy.NoHeaders, nil},
	} {
		if parsed, err := proxy.ParseHeaderStyle(tt.style.String()); err != nil || parsed != tt.style {
			t.Errorf("ParseHeaderStyle(%q) = %v, %v", tt.style, parsed, err)
		}
		url := front(t, block("block", ""), ok, func(o *proxy.Options) { o.Headers = tt.style })
		resp, _ := exceed(t, client(t), func() *http.Request { return newRequest(t, "GET", url, nil) })
		for _, name := range []string{"RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
			want := false
			for _, w := range tt.want {
				want = want || w == name
			}
			if got := resp.Header.Get(name) != ""; got != want {
				t.Errorf("%v: %s present = %t, want %t", tt.style, name, got, want)
			}
		}
		if tt.style == proxy.XRateLimit && (resp.Header.Get("X-RateLimit-Limit") != "3" || resp.Header.Get("X-RateLimit-Remaining") != "0" || resp.Header.Get("X-RateLimit-Reset") != resp.Header.Get("Retry-After")) {
			t.Errorf("%v: %v", tt.style, resp.Header)
		}
	}
	if _, err := proxy.ParseHeaderStyle("draft7"); err == nil {
		t.Error("ParseHeaderStyle(draft7) returns no error")
	}
}

// Answers to requests that pass have the policy, and the remaining requests if the node knows them.
func TestQuotaOfPassedRequests(t *testing.T) {
	url := front(t, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 100, period: 7d}]}]", ok, nil)
	c := client(t)
	resp, _ := do(t, c, newRequest(t, "GET", url, nil))
	if got, want := resp.Header.Get("RateLimit-Policy"), `"all";q=100;w=604800`; got != want {
		t.Errorf("RateLimit-Policy %s, want %s", got, want)
	}
	for range 1000 {
		resp, _ := do(t, c, newRequest(t, "GET", url, nil))
		if m := regexp.MustCompile(`^"all";r=([0-9]+);t=[0-9]+$`).FindStringSubmatch(resp.Header.Get("RateLimit")); m != nil {
			return
		} else if resp.StatusCode != http.StatusOK {
			break
		}
	}
	t.Error("no answer says what remains")
}
