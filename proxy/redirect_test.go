package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/edgelimit/edge/proxy"
)

// redirecting makes a proxy redirect to a port of https.
func redirecting(port int) func(*proxy.Options) {
	return func(o *proxy.Options) { o.Redirect = port }
}

// Requests without TLS are redirected to the same URL with https.
func TestRedirect(t *testing.T) {
	asked := func(http.ResponseWriter, *http.Request) { t.Error("the origin got a request") }
	usual, other := front(t, noRules, asked, redirecting(443)), front(t, noRules, asked, redirecting(8443))
	c := overTCP(t)
	for _, row := range []struct {
		at, method, host, target string
		status                   int
		want                     string
	}{
		{usual, "GET", "a.example", "/x?y=1&z", 301, "https://a.example/x?y=1&z"},
		{usual, "HEAD", "a.example", "/", 301, "https://a.example/"},
		{usual, "POST", "a.example", "/login", 308, "https://a.example/login"},
		{usual, "DELETE", "a.example", "/x", 308, "https://a.example/x"},
		{usual, "GET", "A.example.:8080", "/", 301, "https://a.example/"},
		{usual, "GET", "[2001:db8::1]:8080", "/", 301, "https://[2001:db8::1]/"},
		{usual, "GET", "[2001:db8::1]", "/", 301, "https://[2001:db8::1]/"},
		{usual, "GET", "192.0.2.1", "/%2e%2e//%0d%0aX:y", 301, "https://192.0.2.1/%2e%2e//%0d%0aX:y"},
		{other, "GET", "a.example:80", "/", 301, "https://a.example:8443/"},
		{other, "PUT", "[2001:db8::1]", "/?", 308, "https://[2001:db8::1]:8443/?"},
	} {
		r := newRequest(t, row.method, row.at+row.target, nil)
		r.Host = row.host
		resp, body := do(t, c, r)
		if got := resp.Header.Get("Location"); resp.StatusCode != row.status || got != row.want {
			t.Errorf("%s %s%s: %s to %q, want %d to %q", row.method, row.host, row.target, resp.Status, got, row.status, row.want)
		}
		if want := map[bool]string{true: "", false: "use https\n"}[row.method == "HEAD"]; body != want {
			t.Errorf("%s: body %q, want %q", row.method, body, want)
		}
	}
}

// exchangeRaw sends text and returns the response, which is nil if the proxy closes the connection.
func exchangeRaw(t *testing.T, url, text string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil
	}
	return resp
}

// Unusual requests of HTTP/1, valid or not, are refused or redirected to the host that they name.
func TestRedirectOddRequests(t *testing.T) {
	at := front(t, noRules, ok, redirecting(443))
	for _, row := range []struct {
		text   string
		status int
		want   string
	}{
		{"GET http://b.example:81/p?q HTTP/1.1\r\nHost: a.example\r\n\r\n", 301, "https://b.example/p?q"},
		{"GET http://b.example HTTP/1.1\r\nHost: a.example\r\n\r\n", 301, "https://b.example/"},
		{"GET https://b.example?q HTTP/1.1\r\nHost: a.example\r\n\r\n", 301, "https://b.example/?q"},
		{"GET //evil.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", 301, "https://a.example//evil.example/"},
		{"GET /\\evil.example HTTP/1.1\r\nHost: a.example\r\n\r\n", 301, "https://a.example/\\evil.example"},
		{"OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n", 308, "https://a.example"},
		{"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1000000\r\n\r\n", 308, "https://a.example/"},
		{"GET / HTTP/1.0\r\nHost: a.example\r\n\r\n", 301, "https://a.example/"},
		{"GET / HTTP/1.0\r\n\r\n", 400, ""},
		{"GET / HTTP/1.1\r\nHost:\r\n\r\n", 400, ""},
		{"GET / HTTP/1.1\r\n\r\n", 400, ""},
		{"GET / HTTP/1.1\r\nHost: :80\r\n\r\n", 400, ""},
		{"GET / HTTP/1.1\r\nHost: a.example\r\nHost: evil.example\r\n\r\n", 400, ""},
		{"GET / HTTP/1.1\r\nHost: user@evil.example\r\n\r\n", 400, ""},
		{"GET / HTTP/1.1\r\nHost: evil.example/a.example\r\n\r\n", 400, ""},
		{"GET http://user@evil.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", 400, ""},
		{"GET evil.example HTTP/1.1\r\nHost: a.example\r\n\r\n", 400, ""},
		{"CONNECT evil.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n", 405, ""},
	} {
		resp := exchangeRaw(t, at, row.text)
		if resp == nil {
			t.Fatalf("%q: no response", row.text)
		}
		if got := resp.Header.Get("Location"); resp.StatusCode != row.status || got != row.want {
			t.Errorf("%q: %s to %q, want %d to %q", row.text, resp.Status, got, row.status, row.want)
		}
	}
}

// No byte in the host or the target makes a redirect to another host, or another field.
func TestRedirectBytes(t *testing.T) {
	at := front(t, noRules, ok, redirecting(443))
	for b := range 256 {
		for i, form := range []string{
			"GET / HTTP/1.1\r\nHost: a.example%sevil.example\r\n\r\n", "GET /a%sevil.example HTTP/1.1\r\nHost: a.example\r\n\r\n",
			"GET %sevil.example HTTP/1.1\r\nHost: a.example\r\n\r\n", "GET /?%sX-Evil:1 HTTP/1.1\r\nHost: a.example\r\n\r\n",
		} {
			text := fmt.Sprintf(form, string([]byte{byte(b)}))
			resp := exchangeRaw(t, at, text)
			if resp == nil || resp.StatusCode == http.StatusBadRequest {
				continue
			}
			host := "a.example"
			if i == 0 {
				host += strings.ToLower(string([]byte{byte(b)})) + "evil.example" // the host that the request names
			}
			to, err := url.Parse(resp.Header.Get("Location"))
			if err != nil && b < 0x80 || resp.StatusCode != http.StatusMovedPermanently || err == nil && to.Hostname() != host {
				t.Errorf("%q: %s to %q", text, resp.Status, resp.Header.Get("Location"))
			}
			if len(resp.Header) != 4 { // Content-Length, Content-Type, Date, Location
				t.Errorf("%q: fields %v", text, resp.Header)
			}
		}
	}
}

// A client that exceeds a limit gets its refusal, not a redirect.
func TestRedirectAfterLimit(t *testing.T) {
	at := front(t, "rules: [{id: r, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}]", ok, redirecting(443))
	c := overTCP(t)
	for n := range 1000 {
		resp, _ := do(t, c, newRequest(t, "GET", at, nil))
		switch {
		case resp.StatusCode == http.StatusMovedPermanently:
		case n < 5 || resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Refusal-Id") == "" || resp.Header.Get("Location") != "":
			t.Fatalf("request %d: %s, %v", n, resp.Status, resp.Header)
		default:
			return
		}
	}
	t.Error("1000 requests were redirected")
}

// Clients that use TLS to the node, or to a trusted proxy in front of it, are not redirected. Neither are health checks
// of that proxy.
func TestNoRedirect(t *testing.T) {
	p, _ := newProxy(t, noRules, serve(t, http.HandlerFunc(ok)).URL, redirecting(443))
	secure := serveHTTP2(t, p, true)
	untrusted := serveProxy(t, p)
	trusted := front(t, noRules, ok, func(o *proxy.Options) { o.Redirect, o.Trusted = 443, []netip.Prefix{localhost} })
	c := overTCP(t)
	for _, row := range []struct {
		name, url string
		fields    []string
		want      int
	}{
		{"over TLS", secure, nil, 200},
		{"over TLS, with a field", secure, []string{"X-Forwarded-Proto", "http"}, 200},
		{"an invented field", untrusted, []string{"X-Forwarded-Proto", "https"}, 301},
		{"TLS to the proxy in front", trusted, []string{"X-Forwarded-For", "192.0.2.1", "X-Forwarded-Proto", "HTTPS"}, 200},
		{"TLS to the first of two", trusted, []string{"X-Forwarded-For", "192.0.2.1", "X-Forwarded-Proto", "https, http"}, 200},
		{"no TLS to the proxy in front", trusted, []string{"X-Forwarded-For", "192.0.2.1", "X-Forwarded-Proto", "http"}, 301},
		{"unknown", trusted, []string{"X-Forwarded-For", "192.0.2.1"}, 301},
		{"a health check", trusted, nil, 200},
	} {
		if resp, _ := do(t, c, newRequest(t, "GET", row.url, nil, row.fields...)); resp.StatusCode != row.want {
			t.Errorf("%s: %s, want %d", row.name, resp.Status, row.want)
		}
	}
}

// Hosts that the node does not serve get 421 rather than a redirect.
func TestRedirectUnknownHosts(t *testing.T) {
	at := front(t, noRules, ok, func(o *proxy.Options) {
		o.Redirect, o.StrictHosts, o.Origins.ByHost = 443, true, map[string]*proxy.Origin{"a.example": o.Origins.Default}
	})
	for host, want := range map[string]int{"a.example": 301, "b.example": 421} {
		r := newRequest(t, "GET", at, nil)
		r.Host = host
		if resp, _ := do(t, overTCP(t), r); resp.StatusCode != want {
			t.Errorf("%s: %s, want %d", host, resp.Status, want)
		}
	}
}

// Challenges of ACME go to their own origin, with and without TLS, and nothing else does.
func TestChallenges(t *testing.T) {
	acme := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "acme: "+r.Host+r.URL.Path)
	})).URL
	p, _ := newProxy(t, noRules, serve(t, http.HandlerFunc(ok)).URL, func(o *proxy.Options) {
		var err error
		if o.Origins.ACME, err = proxy.NewOrigin(acme, proxy.OriginOptions{}); err != nil {
			t.Fatal(err)
		}
		o.Redirect = 443
	})
	plain, secure := serveProxy(t, p), serveHTTP2(t, p, true)
	const challenge = "/.well-known/acme-challenge/"
	for _, row := range []struct {
		url, path string
		status    int
		want      string
	}{
		{plain, challenge + "To-ken_1", 200, "acme: a.example" + challenge + "To-ken_1"},
		{secure, challenge + "To-ken_1", 200, "acme: a.example" + challenge + "To-ken_1"},
		{plain, challenge + "a/b", 301, "use https\n"},
		{plain, challenge + "../x", 301, "use https\n"},
		{plain, challenge + "%2e%2e", 301, "use https\n"},
		{plain, challenge + "a?b", 301, "use https\n"},
		{plain, "/x" + challenge + "a", 301, "use https\n"},
		{plain, "/.well-known/acme-challenge", 301, "use https\n"},
		{secure, challenge + "../x", 200, "ok"},
		{secure, "/", 200, "ok"},
	} {
		r := newRequest(t, "GET", row.url+row.path, nil)
		r.Host = "a.example"
		if resp, body := do(t, overTCP(t), r); resp.StatusCode != row.status || body != row.want {
			t.Errorf("%s: %s, %q; want %d, %q", row.path, resp.Status, body, row.status, row.want)
		}
	}
}
