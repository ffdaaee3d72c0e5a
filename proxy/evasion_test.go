package proxy_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/edgelimit/edge/proxy"
)

// send sends head as it is and the final lines of a request, and returns the answer's status.
func send(t *testing.T, to, head string) int {
	t.Helper()
	conn := dialRaw(t, to)
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "%s\r\nConnection: close\r\n\r\n", head); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%q: %v", head, err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// To its origin, each of these requests is one for /login. However it is spelled, the node counts it, and forwards it
// unchanged.
func TestSpellingsOfAPathAreCountedTogether(t *testing.T) {
	express := regexp.MustCompile(`(?i)^/login/?$`)
	for _, test := range []struct {
		name    string
		targets []string
		isLogin func(target string) bool
	}{
		{"as Express routes", []string{"/login", "/LOGIN", "/login/", "/LoGiN/", "/Login?x=1"}, func(target string) bool {
			path, _, _ := strings.Cut(target, "?")
			return express.MatchString(path)
		}},
		{"as Spring routes", []string{"/login;x=1", "/login;x=2/", "/login;jsessionid=%2F..%2f", "/log%69n;", "/login"}, func(target string) bool {
			path, _, _ := strings.Cut(target, ";")
			path, _ = url.PathUnescape(strings.TrimSuffix(path, "/"))
			return path == "/login"
		}},
		{"as IIS routes", []string{"/login", "/LOGIN", `/x%5C..%5Clogin`, "/x/%2e%2e/login/", "/%5Clogin"}, func(target string) bool {
			path, _ := url.PathUnescape(target)
			path = strings.ReplaceAll(path, `\`, "/")
			path = strings.ReplaceAll(strings.ReplaceAll(path, "//", "/"), "/x/..", "")
			return strings.EqualFold(strings.TrimSuffix(path, "/"), "/login")
		}},
		{"as new URL(target, base) routes", []string{"//localhost/login", "//a/login", "///b/login", "/x/../login", "/login"}, func(target string) bool {
			if strings.HasPrefix(target, "//") {
				_, target, _ = strings.Cut(strings.TrimLeft(target, "/"), "/")
				target = "/" + target
			}
			return strings.ReplaceAll(target, "/x/..", "") == "/login"
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var mu sync.Mutex
			var came []string
			at := front(t, "rules: [{id: login, match: {paths: [/login]}, characteristics: [ip, path], limits: [{threshold: 5, period: 1m}], mitigation_timeout: 1m}]",
				func(w http.ResponseWriter, r *http.Request) {
					mu.Lock()
					defer mu.Unlock()
					if came = append(came, r.RequestURI); !test.isLogin(r.RequestURI) {
						w.WriteHeader(http.StatusNotFound)
					}
				}, nil)
			refused, sent := 0, []string{}
			for i := range 60 {
				target := test.targets[i%len(test.targets)]
				sent = append(sent, target)
				switch status := send(t, at, "GET "+target+" HTTP/1.1\r\nHost: a"); status {
				case http.StatusOK:
				case http.StatusTooManyRequests:
					refused++
				default:
					t.Fatalf("%s gets %d: it is not a spelling of /login", target, status)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if refused == 0 {
				t.Errorf("none of %d requests was refused", len(sent))
			}
			if got, want := fmt.Sprint(came), fmt.Sprint(sent[:len(came)]); got != want {
				t.Errorf("the origin got %s, want what was sent: %s", got, want)
			}
		})
	}
}

// A method in another case is counted as the registered one and forwarded unchanged.
func TestMethodsInAnotherCase(t *testing.T) {
	rules := "rules: [{id: login, match: {methods: [POST]}, characteristics: [ip], limits: [{threshold: 5, period: 1m}], mitigation_timeout: 1m}]"
	var mu sync.Mutex
	came := map[string]int{}
	origin := func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		came[r.Method]++
	}
	at := front(t, rules, origin, nil)
	for _, method := range []string{"purge", "PURGE", "posts", "GET", "get"} {
		for range 20 {
			if status := send(t, at, method+" / HTTP/1.1\r\nHost: a\r\nContent-Length: 0"); status != http.StatusOK {
				t.Fatalf("%s, which no rule matches, gets %d", method, status)
			}
		}
	}
	refused := 0
	for i := range 60 {
		if status := send(t, at, []string{"post", "Post", "pOST"}[i%3]+" / HTTP/1.1\r\nHost: a\r\nContent-Length: 0"); status == http.StatusTooManyRequests {
			refused++
		}
	}
	mu.Lock()
	if refused == 0 || came["post"] == 0 || came["Post"] == 0 || came["POST"] > 0 || came["posts"] != 20 || came["purge"] != 20 {
		t.Errorf("%d of 60 requests were refused; the origin got %v", refused, came)
	}
	mu.Unlock()
	for _, method := range []string{"trace", "Connect", "TRACE"} {
		if status := send(t, at, method+" / HTTP/1.1\r\nHost: a"); status != http.StatusMethodNotAllowed {
			t.Errorf("%s gets %d, want 405", method, status)
		}
	}

	at = front(t, rules, origin, func(o *proxy.Options) { o.StrictMethods = true })
	for method, want := range map[string]int{"GET": 200, "get": 501, "Head": 501, "purge": 200, "PURGE": 200, "posts": 200} {
		if status := send(t, at, method+" / HTTP/1.1\r\nHost: a"); status != want {
			t.Errorf("%s gets %d, want %d, if methods are case-sensitive", method, status, want)
		}
	}
	refused = 0
	for range 60 {
		switch status := send(t, at, "post / HTTP/1.1\r\nHost: a\r\nContent-Length: 0"); status {
		case http.StatusNotImplemented:
		case http.StatusTooManyRequests:
			refused++
		default:
			t.Fatalf("post gets %d, want 501", status)
		}
	}
	if refused == 0 {
		t.Error("requests that get 501 are not counted")
	}
}

// A request for a host that no rule or origin names is counted and then, with StrictHosts, refused.
func TestStrictHosts(t *testing.T) {
	rules := `rules:
- {id: hosts, match: {hosts: [example.com, "*.example.org"]}, characteristics: [ip], limits: [{threshold: 1000, period: 1m}]}
- {id: all, match: {methods: [POST]}, characteristics: [ip], limits: [{threshold: 5, period: 1m}], mitigation_timeout: 1m}`
	origin := func(http.ResponseWriter, *http.Request) {}
	other := serve(t, http.HandlerFunc(origin)).URL
	set := func(strict bool) func(*proxy.Options) {
		return func(o *proxy.Options) {
			o.StrictHosts = strict
			named, err := proxy.NewOrigin(other, proxy.OriginOptions{})
			if err != nil {
				t.Fatal(err)
			}
			o.Origins.ByHost = map[string]*proxy.Origin{"named.example.net": named}
		}
	}
	strict, lax := front(t, rules, origin, set(true)), front(t, rules, origin, set(false))
	for _, test := range []struct {
		head string
		want int
	}{
		{"HTTP/1.1\r\nHost: example.com", 200},
		{"HTTP/1.1\r\nHost: EXAMPLE.com.:8080", 200},
		{"HTTP/1.1\r\nHost: a.b.example.org", 200},
		{"HTTP/1.1\r\nHost: named.example.net", 200},
		{"HTTP/1.0\r\nHost: example.com", 200},
		{"HTTP/1.1\r\nHost: example.org", 421},
		{"HTTP/1.1\r\nHost: www.example.com", 421},
		{"HTTP/1.1\r\nHost: 127.0.0.1", 421},
		{"HTTP/1.1\r\nHost: [::1]", 421},
		{"HTTP/1.1\r\nHost:", 421},
		{"HTTP/1.0", 421},
	} {
		if got := send(t, strict, "GET / "+test.head); got != test.want {
			t.Errorf("GET / %q gets %d, want %d", test.head, got, test.want)
		}
		if got := send(t, lax, "GET / "+test.head); got != http.StatusOK {
			t.Errorf("GET / %q gets %d by default, want 200", test.head, got)
		}
	}
	for range 60 {
		if send(t, strict, "POST / HTTP/1.1\r\nHost: other\r\nContent-Length: 0") == http.StatusTooManyRequests {
			return
		}
	}
	t.Error("requests that are refused for their host are not counted")
}
