package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/proxy"
)

// cgi returns the names of a header as CGI reads them,
// sorted.
func cgi(header http.Header) (names []string) {
	for name := range header {
		names = append(names, strings.ToUpper(strings.Map(func(c rune) rune {
			if strings.ContainsRune("-.!~'", c) {
				return '_'
			}
			return c
		}, name)))
	}
	slices.Sort(names)
	return names
}

// The origin receives no name that CGI or a similar interface reads as one that the node sets,
// strips, trusts or counts by. It receives other names with underscores.
func TestNamesThatShadow(t *testing.T) {
	const rules = `rules:
  - {id: key, characteristics: ["header:x-api-key"], limits: [{threshold: 900, period: 7d}]}
  - {id: token, characteristics: ["header:x_token"], limits: [{threshold: 900, period: 7d}]}`
	const sent = "X_Forwarded_For: 6.6.6.6\r\nX-Forwarded_For: 6.6.6.6\r\nx_forwarded-for: 6.6.6.6\r\nX.Forwarded.For: 6.6.6.6\r\nX~Forwarded!For: 6.6.6.6\r\n" +
		"X_Forwarded_Host: evil\r\nX_Forwarded_Proto: evil\r\nTransfer_Encoding: chunked\r\nContent_Length: 7\r\nKeep_Alive: 1\r\n" +
		"Proxy_Connection: 1\r\nProxy_Authorization: 1\r\nProxy_Authenticate: 1\r\nHTTP2_Settings: 1\r\nX_Hop: 1\r\nX_Api_Key: 1\r\n" +
		"X_Custom: kept\r\nX_Token: kept\r\nX_Forwarded_For_: kept\r\n"
	want := []string{"X_CUSTOM", "X_FORWARDED_FOR", "X_FORWARDED_FOR_", "X_FORWARDED_HOST", "X_FORWARDED_PROTO", "X_TOKEN"}
	for name, trusted := range map[string][]netip.Prefix{"from a client": nil, "from a trusted proxy": {localhost}} {
		got := make(chan http.Header, 1)
		conn := dialRaw(t, front(t, rules, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header },
			func(o *proxy.Options) { o.Trusted = trusted }))
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close, X-Hop\r\n%s\r\n", sent)
		if _, err := io.ReadAll(conn); err != nil {
			t.Fatal(err)
		}
		header := <-got
		if diff := cmp.Diff(want, cgi(header)); diff != "" {
			t.Errorf("%s: names as CGI reads them (-want +got):\n%s", name, diff)
		}
		if v := header.Get("X-Forwarded-For"); v != "127.0.0.1" {
			t.Errorf("%s: X-Forwarded-For %q, want 127.0.0.1", name, v)
		}
	}
}

// The origin receives no trailer that is invalid as one, that the node or a rule uses, or that CGI reads as one of
// these: some origins merge trailers into the header.
func TestTrailersThatShadow(t *testing.T) {
	const rules = `rules:
  - {id: key, characteristics: ["header:x-api-key"], limits: [{threshold: 900, period: 7d}]}
  - {id: token, characteristics: ["header:x_token"], limits: [{threshold: 900, period: 7d}]}`
	got := make(chan *http.Request, 1)
	url := front(t, rules, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got <- r
	}, func(o *proxy.Options) { o.Trusted = []netip.Prefix{localhost} })
	r := newRequest(t, "POST", url, struct{ io.Reader }{strings.NewReader("body")})
	want := []string{"GRPC_BIN", "X_CUSTOM", "X_SUM"}
	r.Trailer = http.Header{"X-Sum": {"1"}, "X_Custom": {"1"}, "Grpc-Bin": {"1"}}
	for _, name := range []string{"X-Forwarded-For", "X_Forwarded_For", "X_Forwarded_Proto", "Forwarded", "Content_Length", "Transfer_Encoding",
		"Host", "X-Api-Key", "X_Api_Key", "X_Token", "X-Token", "Authorization", "Proxy_Authorization", "Cookie", "HTTP2-Settings", "HTTP2_Settings",
		"Content-Type", "Content_Encoding", "Range", "If_Match", "Max-Forwards"} {
		r.Trailer[name] = []string{"1"}
	}
	if resp, body := do(t, client(t), r); resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s", resp.Status, body)
	}
	received := (<-got).Trailer
	maps.DeleteFunc(received, func(_ string, values []string) bool { return values == nil }) // announced, but not sent
	if diff := cmp.Diff(want, cgi(received)); diff != "" {
		t.Errorf("trailers as CGI reads them (-want +got):\n%s", diff)
	}
}

// HTTP2-Settings is not forwarded, whether Connection names it or not.
func TestHTTP2SettingsIsNotForwarded(t *testing.T) {
	got := make(chan http.Header, 1)
	url := front(t, noRules, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }, nil)
	do(t, client(t), newRequest(t, "GET", url, nil, "HTTP2-Settings", "AAMAAABk"))
	if v := (<-got)["Http2-Settings"]; v != nil {
		t.Errorf("the origin gets HTTP2-Settings: %q", v)
	}
}

// The node adds no Content-Type to an answer: the origin alone says whether browsers may guess one.
func TestNoContentTypeIsGuessed(t *testing.T) {
	origin := func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = nil
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if r.URL.Path == "/hints" {
			w.WriteHeader(http.StatusEarlyHints)
			w.Header()["Content-Type"] = nil
		}
		if r.URL.Path == "/500" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		if r.Method != http.MethodHead {
			_, _ = io.WriteString(w, "<html><script>alert(1)</script>")
		}
		if r.URL.Path == "/chunked" {
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, "<html><script>alert(1)</script>")
		}
	}
	for protocol, front := range map[string]func(*proxy.Proxy) string{
		"HTTP/1.1": func(p *proxy.Proxy) string { return serveProxy(t, p) },
		"HTTP/2.0": func(p *proxy.Proxy) string { return serveHTTP2(t, p, true) },
	} {
		p, _ := newProxy(t, noRules, serve(t, http.HandlerFunc(origin)).URL, nil)
		url := front(p)
		if byHTTP2 {
			protocol = "HTTP/2.0"
		}
		if byHTTP3 {
			protocol = "HTTP/3.0"
		}
		for _, tt := range [][2]string{{"GET", "/"}, {"GET", "/500"}, {"GET", "/chunked"}, {"GET", "/hints"}, {"HEAD", "/"}, {"POST", "/"}} {
			resp, body := do(t, client(t), newRequest(t, tt[0], url+tt[1], nil))
			if v, ok := resp.Header["Content-Type"]; ok || resp.Proto != protocol || tt[0] != "HEAD" && !strings.HasPrefix(body, "<html>") {
				t.Errorf("%s %s %s by %s: Content-Type %q, %q; want none", protocol, tt[0], tt[1], resp.Proto, v, body)
			}
		}
	}
}

// The same holds for an answer that switches to another protocol.
func TestNoContentTypeOfAnUpgrade(t *testing.T) {
	conn := dialRaw(t, front(t, noRules, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n<html>")
	}, nil))
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := resp.Header["Content-Type"]; ok || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Errorf("%s with Content-Type %q, want 101 with none", resp.Status, v)
	}
}
