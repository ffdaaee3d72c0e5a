package proxy_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"

	"github.com/edgelimit/edge/proxy"
)

// A wayIn is how a request reaches a node. It reports whether the request may pass.
type wayIn struct {
	name string
	pass func(method, host, target string) bool
}

// waysIn returns all ways to reach a node with these rules.
func waysIn(t *testing.T, rules string) []wayIn {
	p, _ := newProxy(t, rules, serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).URL, trustLocal)
	engine := serveProxy(t, p)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveCheck(t, p, ln, proxy.CheckOptions{})
	check := "http://" + ln.Addr().String()
	const from = "\r\nX-Forwarded-For: 192.0.2.1\r\n"
	// head sends a head and returns whether the answer is a 200.
	head := func(to, format string, args ...any) bool {
		conn := dialRaw(t, to)
		defer conn.Close()
		if _, err := fmt.Fprintf(conn, format+"Content-Length: 0\r\nConnection: close\r\n\r\n", args...); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf(format+": %v", append(args, err)...)
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}
	agent := p.NewAgent()
	return []wayIn{
		{"HTTP/1.1", func(method, host, target string) bool {
			return head(engine, "%s %s HTTP/1.1\r\nHost: %s"+from, method, target, host)
		}},
		{"HTTP/2", func(method, host, target string) bool {
			conn := dialRaw(t, engine)
			defer conn.Close()
			if _, err := io.WriteString(conn, h2Request([2]string{":method", method}, [2]string{":scheme", "http"},
				[2]string{":authority", host}, [2]string{":path", target}, [2]string{"x-forwarded-for", "192.0.2.1"})); err != nil {
				t.Fatal(err)
			}
			for {
				var h [9]byte
				if _, err := io.ReadFull(conn, h[:]); err != nil {
					return false // refused with the connection
				}
				frame := make([]byte, int(h[0])<<16|int(h[1])<<8|int(h[2]))
				_, _ = io.ReadFull(conn, frame)
				if binary.BigEndian.Uint32(h[5:]) == 1 {
					fields, err := hpack.NewDecoder(4096, nil).DecodeFull(frame)
					return h[3] == 1 && err == nil && fields[0].Value == "200" // HEADERS that begins with :status
				}
			}
		}},
		{"/check", func(method, host, target string) bool {
			return head(check, "GET /check HTTP/1.1\r\nHost: edge\r\nX-Forwarded-Method: %s\r\nX-Forwarded-Host: %s\r\nX-Forwarded-Uri: %s"+from, method, host, target)
		}},
		{"/check/original", func(method, host, target string) bool {
			return head(check, "GET /check/original HTTP/1.1\r\nHost: %s\r\nX-Original-Method: %s\r\nX-Original-URL: %s"+from, host, method, target)
		}},
		{"/check/original with the host", func(method, host, target string) bool {
			if strings.ContainsAny(host, "/?") {
				return false // the URL has another host
			}
			if strings.HasPrefix(target, "/") {
				target = "https://" + host + target
			}
			return head(check, "GET /check/original HTTP/1.1\r\nHost: edge\r\nX-Original-Method: %s\r\nX-Original-URL: %s"+from, method, target)
		}},
		{"/check/request", func(method, host, target string) bool {
			return strings.HasPrefix(target, "/") && head(check, "%s /check/request%s HTTP/1.1\r\nHost: %s"+from, method, target, host)
		}},
		{"SPOP", func(method, host, target string) bool {
			var v variables
			agent.Handle(message("edge-check", "method", method, "host", host, "path", target, "src", "192.0.2.1"), &v)
			return strings.HasPrefix(v.String(), ` verdict="passed"`)
		}},
		{"middleware", func(method, host, target string) bool {
			r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s"+from+"\r\n", method, target, host))))
			if err != nil {
				return false // net/http refuses it
			}
			r.RemoteAddr = "127.0.0.1:1"
			a := p.Admit(r)
			if a.Refused() {
				a.Refuse(httptest.NewRecorder(), r)
			}
			return !a.Refused()
		}},
	}
}

// Once a client has exceeded the limit for a request, every spelling of the request is refused, on every way in: it is
// counted with the plain spelling, or it is malformed. Other requests pass.
func TestEveryWayInAdmitsAlike(t *testing.T) {
	ways := waysIn(t, "rules: [{id: login, match: {hosts: [shop.example], methods: [POST], paths: [/login]}, characteristics: [ip], limits: [{threshold: 3, period: 1h}], mitigation_timeout: 1h}]")
	for n := 0; ways[0].pass("POST", "shop.example", "/login"); n++ {
		if n == 10_000 {
			t.Fatal("the client is never refused")
		}
	}
	type request struct{ method, host, target string }
	login := []request{
		{"post", "shop.example", "/login"}, {"POST", "SHOP.example.:443", "/login"}, {"POST", "other.example", "http://shop.example/login"},
		{"POST", "other.example", "HTTPS://shop.example:80/login?a=b"},
	}
	for _, target := range []string{"/login?a", "/LOGIN", "/login/", "//login", "/./login", "/a/../login", "/a/..;b/login", "/login;a=b", "/%6cogin", "/%2flogin", `/\login`, `/a%5c..%5clogin`,
		"/login#1", "/login?#1", "/login#", "/login%", "/login%2", "/login%zz", "/login%u0041", "/login\x7f", "/login\x01", "/login?\x01", "/login\x0b?a", strings.Repeat("/.", 300) + "/login"} {
		login = append(login, request{"POST", "shop.example", target})
	}
	for _, host := range []string{"shop.example,x", "shop.example@x", "x@shop.example", "shop.example/x", "shop.example:80:90", "shop.example:x", "shop..example", ".shop.example", "shop.example\x01", "shop.\xe4xample",
		"[shop.example]", "[::1%25x]", "shop%2eexample", "shop.example#", "shop.example?x", `shop.example\x`, "shop.example:99999"} {
		login = append(login, request{"POST", host, "/login"})
	}
	for _, method := range []string{"CONNECT", "connect", "TRACE", "P@ST", "PO/ST", "POST\x01", "P\xe4ST"} {
		login = append(login, request{method, "shop.example", "/login"})
	}
	login = append(login, request{"POST", "shop.example", "*"}, request{"POST", "shop.example", "login"}, request{"POST", "shop.example", "ftp://shop.example/login"}, request{"POST", "shop.example", "mailto:login"})
	others := []request{{"GET", "shop.example", "/login"}, {"POST", "shop.example", "/"}, {"POST", "other.example", "/login"}, {"OPTIONS", "shop.example", "/a%20b?%zz=%"},
		{"PURGE", "[::1]:80", "/\xc3\xa4"}, {"POST", "192.0.2.1", "/a\"<>^`{|}"}, {"M-SEARCH", "a_b.example", "/login/x"}}
	for _, way := range ways {
		for _, r := range login {
			if way.pass(r.method, r.host, r.target) {
				t.Errorf("%s: %q passes", way.name, r)
			}
		}
		for _, r := range others {
			if !way.pass(r.method, r.host, r.target) {
				t.Errorf("%s: %q is refused", way.name, r)
			}
		}
	}
}
