package proxy_test

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/proxy"
)

// cors is the response of a rule for scripts in browsers.
const cors = `, mitigation_timeout: 2h, response: {status: 429, max_retry_after: 90s, origins: [https://app.example.com, "https://*.example.net"], headers: {
	access-control-allow-origin: "{origin}", Access-Control-Expose-Headers: "Retry-After, Refusal-Id, RateLimit", Vary: Origin, X-Support: "/help?{id}&{retry_after}"}}`

// On every way in, refusals have the fields of the rule's response, and {origin} only for a listed origin.
func TestHeadersOfAResponse(t *testing.T) {
	p, _ := newProxy(t, block("block", cors), serve(t, http.HandlerFunc(ok)).URL, trustLocal)
	url := serveProxy(t, p)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveCheck(t, p, ln, proxy.CheckOptions{})
	const addr = "203.0.113.9"
	c := client(t)
	exceed(t, c, func() *http.Request { return newRequest(t, "GET", url, nil, "X-Forwarded-For", addr) })
	ask := func(to string, origins []string, more ...string) http.Header {
		r := newRequest(t, "GET", to, nil, append(more, "X-Forwarded-For", addr)...)
		r.Header["Origin"] = origins
		resp, _ := do(t, c, r)
		return resp.Header
	}
	ways := map[string]func(origins []string) http.Header{
		"proxy": func(origins []string) http.Header { return ask(url, origins) },
		"check": func(origins []string) http.Header {
			return ask("http://"+ln.Addr().String()+"/check", origins, "X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/", "X-Forwarded-Host", "a")
		},
		"check of nginx": func(origins []string) http.Header {
			return ask("http://"+ln.Addr().String()+"/check/original", origins, "X-Original-Method", "GET", "X-Original-Url", "http://a/")
		},
		"middleware": func(origins []string) http.Header {
			w, r := httptest.NewRecorder(), newRequest(t, "GET", url, nil, "X-Forwarded-For", addr)
			r.RemoteAddr, r.RequestURI, r.Header["Origin"] = "127.0.0.1:1", "/", origins
			p.Admit(r).Refuse(w, r)
			return w.Header()
		},
		"SPOP": func(origins []string) http.Header {
			var bin strings.Builder
			for _, o := range origins {
				fmt.Fprintf(&bin, "\x06origin%c%s", len(o), o)
			}
			v, h := variables{}, http.Header{}
			p.NewAgent().Handle(message("edge-check", "method", "GET", "host", "a", "path", "/", "src", addr, "headers", bin.String()+"\x00\x00"), &v)
			for _, m := range regexp.MustCompile(` (?:header_)?(\w+)="([^"]*)"`).FindAllStringSubmatch(v.String(), -1) {
				h.Set(strings.ReplaceAll(m[1], "_", "-"), m[2])
			}
			return h
		},
	}
	for name, way := range ways {
		for _, test := range []struct{ origins, want []string }{
			{[]string{"https://app.example.com"}, []string{"https://app.example.com"}},
			{[]string{"https://a.b.example.net"}, []string{"https://a.b.example.net"}},
			{nil, nil},
			{[]string{"https://evil.example"}, nil},
			{[]string{"null"}, nil},
			{[]string{"https://app.example.com", "https://app.example.com"}, nil},
		} {
			h := way(test.origins)
			if got := h["Access-Control-Allow-Origin"]; !slices.Equal(got, test.want) {
				t.Errorf("%s: %q: Access-Control-Allow-Origin %q, want %q", name, test.origins, got, test.want)
			}
			if h.Get("Vary") != "Origin" || h.Get("Access-Control-Expose-Headers") != "Retry-After, Refusal-Id, RateLimit" {
				t.Errorf("%s: %q: %v, want the other fields", name, test.origins, h)
			}
			// Retry-After is bounded, and every field agrees with it.
			if id := h.Get("Refusal-Id"); h.Get("Retry-After") != "90" || id == "" || h.Get("X-Support") != "/help?"+id+"&90" {
				t.Errorf("%s: %q: %v, want 90 s and the same ID", name, test.origins, h)
			}
			for field, values := range h {
				if strings.EqualFold(field, "RateLimit") && name != "SPOP" && values[0] != `"all/1h";r=0;t=90` {
					t.Errorf("%s: RateLimit %s, want the time of Retry-After", name, values)
				}
			}
		}
	}
}

// A rule can keep its quota from clients, whether their requests pass or not.
func TestHiddenQuota(t *testing.T) {
	url := front(t, block("block", ", ratelimit_headers: false"), ok, func(o *proxy.Options) { o.Headers = proxy.BothHeaders })
	exceed(t, client(t), func() *http.Request { return newRequest(t, "GET", url, nil) })
	for range 2 {
		resp, _ := do(t, client(t), newRequest(t, "GET", url, nil))
		for name := range resp.Header {
			if strings.Contains(strings.ToLower(name), "ratelimit") {
				t.Errorf("%d has %s", resp.StatusCode, name)
			}
		}
	}
}

// A refused gRPC call gets its gRPC status in the header of an HTTP 200. The access log has the status of the refusal.
func TestRefusedGRPC(t *testing.T) {
	const trailersOnly = "Grpc-Message Grpc-Retry-Pushback-Ms Grpc-Status"
	for _, test := range []struct {
		name, rules, contentType string
		want                     [3]string // Content-Type, grpc-status, grpc-message
		pushback                 bool
		logged                   string
	}{
		{"block", block("block", cors), "application/grpc", [3]string{"application/grpc", "8", "too many requests"}, true, "status=429 .* verdict=blocked rule=all refusal_id="},
		{"of a codec", block("block", cors), "application/grpc+proto", [3]string{"application/grpc", "8", "too many requests"}, true, "status=429 .* verdict=blocked"},
		{"grpc-web", block("block", ", response: {status: 503}"), "application/grpc-web+proto", [3]string{"application/grpc-web", "14", "temporarily unavailable"}, true, "status=503 .* verdict=blocked"},
		{"denied", "rules: []\ndeny: [127.0.0.0/8]", "Application/GRPC; a=b", [3]string{"application/grpc", "7", "forbidden"}, false, "status=403 .* verdict=denied"},
		{"unavailable", block("block", ", on_failure: closed"), "application/grpc", [3]string{"application/grpc", "14", "temporarily unavailable"}, true, "status=503 .* verdict=unavailable"},
	} {
		p, log := newProxy(t, test.rules, serve(t, http.HandlerFunc(ok)).URL, func(o *proxy.Options) { o.AccessLog = o.Logger })
		url := serveProxy(t, p)
		if strings.Contains(test.rules, "rules: [{") && test.name != "unavailable" {
			exceed(t, client(t), func() *http.Request { return newRequest(t, "GET", url, nil) })
		}
		for _, way := range []string{"proxy", "middleware"} {
			resp, body := new(http.Response), ""
			r := newRequest(t, "POST", url+"/pkg.Service/Call", strings.NewReader("\x00\x00\x00\x00\x00"), "Content-Type", test.contentType, "Origin", "https://app.example.com")
			if way == "proxy" {
				resp, body = do(t, client(t), r)
			} else {
				w := httptest.NewRecorder()
				r.RemoteAddr, r.RequestURI = "127.0.0.1:1", "/"
				p.Admit(r).Refuse(w, r)
				resp, body = w.Result(), w.Body.String()
			}
			h := resp.Header
			if got := [3]string{h.Get("Content-Type"), h.Get("Grpc-Status"), h.Get("Grpc-Message")}; resp.StatusCode != 200 || body != "" || got != test.want {
				t.Errorf("%s, %s: %d %q %q, want 200 and %q", test.name, way, resp.StatusCode, body, got, test.want)
			}
			wait, pushback := h.Get("Retry-After"), ""
			if test.pushback {
				pushback = wait + "000"
			}
			if got := h.Get("Grpc-Retry-Pushback-Ms"); got != pushback || test.pushback && wait == "" {
				t.Errorf("%s, %s: grpc-retry-pushback-ms %q with Retry-After %q", test.name, way, got, wait)
			}
			if allowed := h.Get("Access-Control-Allow-Origin") != ""; allowed != strings.Contains(test.rules, "origins") {
				t.Errorf("%s, %s: Access-Control-Allow-Origin %t", test.name, way, allowed)
			}
		}
		line := regexp.MustCompile("/pkg.Service/Call .*" + test.logged)
		harness.Until(t, "the access log has "+line.String(), patience, time.Millisecond, func() bool { return line.MatchString(log.String()) })
	}
	// Clients of other protocols do not see these fields, and a shadow ban looks like an answer of the origin.
	for name, rules := range map[string]string{"text/plain": block("block", ""), "application/grpc": block("shadow_ban", ", response: {body: banned}")} {
		url := front(t, rules, ok, nil)
		var resp *http.Response
		for body := ""; body != "banned" && (resp == nil || resp.StatusCode == 200); {
			resp, body = do(t, client(t), newRequest(t, "POST", url, nil, "Content-Type", name))
		}
		for field := range maps.Keys(resp.Header) {
			if strings.Contains(trailersOnly, field) {
				t.Errorf("%s: the answer has %s", name, field)
			}
		}
	}
}

// A withheld answer becomes a refusal like any other, even long after the request's header was read.
func TestHeadersOfAWithheldAnswer(t *testing.T) {
	url := front(t, block("block", ", count: {statuses: [401]}"+cors), func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusUnauthorized)
	}, nil)
	for range 1000 {
		for _, kind := range []string{"text/plain", "application/grpc"} {
			r := newRequest(t, "POST", url, strings.NewReader(strings.Repeat("x", 256<<10)), "Origin", "https://app.example.com", "Content-Type", kind)
			resp, _ := do(t, client(t), r)
			if resp.StatusCode == http.StatusUnauthorized {
				continue
			}
			grpc := resp.StatusCode == 200 && resp.Header.Get("Grpc-Status") == "8"
			if got := resp.Header.Get("Access-Control-Allow-Origin"); got != "https://app.example.com" || grpc != (kind == "application/grpc") {
				t.Errorf("%s: %d with %v", kind, resp.StatusCode, resp.Header)
			}
			if grpc {
				return
			}
		}
	}
	t.Error("1000 guesses pass")
}
