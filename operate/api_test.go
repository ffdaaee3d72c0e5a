package operate_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/operate"
	"github.com/edgelimit/edge/pop/peers"
)

const secret = "sixteen-characters-at-least"

// A fixture is the API of a node that mitigates one client, with the key of its mitigation.
type fixture struct {
	*operate.API
	operator *operate.Operator
	log      strings.Builder
	reg      *prometheus.Registry
	key      string
}

func newFixture(t testing.TB, change func(*operate.Options)) *fixture {
	t.Helper()
	f := &fixture{reg: prometheus.NewRegistry(), operator: newOperator(t)}
	f.operator.ReloadFiles = func() error { return errors.New("rules.yaml:1:1: nonsense") }
	m, err := f.operator.Add(operate.Order{Duration: time.Hour, Values: map[string]string{"rule": "a", "ip": "192.0.2.1"}})
	if err != nil {
		t.Fatal(err)
	}
	f.key = m.Key
	f.operator.Logger = slog.New(slog.NewTextHandler(&f.log, nil))
	o := operate.Options{
		Tokens: tokensOf(t, "anna "+secret+"\n"), Host: "Edge-1.example", Open: true, Registerer: f.reg,
		Logger: f.operator.Logger, Operations: f.operator,
	}
	if change != nil {
		change(&o)
	}
	f.API = operate.NewAPI(o)
	return f
}

// mitigated returns the addresses of the clients that are mitigated.
func (f *fixture) mitigated(t testing.TB) string {
	t.Helper()
	all, err := f.operator.Mitigations(operate.Query{State: "active"})
	if err != nil {
		t.Fatal(err)
	}
	var clients []string
	for _, m := range all.Mitigations {
		clients = append(clients, m.Client)
	}
	slices.Sort(clients)
	return strings.Join(clients, " ")
}

func tokensOf(t testing.TB, text string) *operate.Tokens {
	t.Helper()
	file, tokens := filepath.Join(t.TempDir(), "tokens"), new(operate.Tokens)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := tokens.Read(file); err != nil {
		t.Fatal(err)
	}
	return tokens
}

// ask asks for METHOD PATH with headers NAME: VALUE.
func (f *fixture) ask(t testing.TB, request string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	method, path, _ := strings.Cut(request, " ")
	r := httptest.NewRequest(method, path, nil)
	r.Host, r.RemoteAddr = "127.0.0.1:9190", "192.0.2.1:5"
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if r.Header.Add(name, value); name == "Host" {
			r.Host = value
		}
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w
}

const bearer = "Authorization: Bearer " + secret

func TestAPI(t *testing.T) {
	for _, tt := range []struct {
		name, request string
		headers       []string
		status        int
		body          string
		mitigated     string // clients afterwards, if not the same as before
	}{
		{"shards", "GET /api/v1/shards", nil, 200, `{"shards":[{"addr":"a:1","down":false,"answers":false,"in_ring":true`, ""},
		{"status", "GET /api/v1/status", nil, 200, `{"node":"n1",`, ""},
		{"head", "HEAD /api/v1/status", nil, 200, ``, ""},
		{"list", "GET /api/v1/mitigations?rule=a&client=192.0.2.0/24&limit=9", nil, 200, `"client":"192.0.2.1"}],"total":1}`, ""},
		{"empty list", "GET /api/v1/mitigations?client=192.0.3.0/24", nil, 200, `{"mitigations":[],"total":0}`, ""},
		{"list of one address", "GET /api/v1/mitigations?client=::ffff:192.0.2.1", nil, 200, `"client":"192.0.2.1"}],"total":1}`, ""},
		{"one that is not", "GET /api/v1/mitigations/" + strings.Repeat("cd", 16), nil, 404, `cd is not mitigated"}`, ""},
		{"not a number", "GET /api/v1/mitigations?limit=x", nil, 400, `{"error":"limit: \"x\" is not a whole number from 1 to 1000"}`, ""},
		{"too many", "GET /api/v1/mitigations?limit=1001", nil, 400, `from 1 to 1000`, ""},
		{"no such order", "GET /api/v1/mitigations?sort=x", nil, 400, `sort: \"x\" is not one of end, start, key`, ""},
		{"not a network", "GET /api/v1/mitigations?client=x", nil, 400, `is not an address or a network`, ""},
		{"twice", "GET /api/v1/mitigations?rule=a&rule=b", nil, 400, `rule is given 2 times`, ""},
		{"unknown parameter", "GET /api/v1/mitigations?rul=a", nil, 400, `unknown parameter \"rul\": valid parameters are rule, client, key, node, state, sort, limit, cursor`, ""},
		{"no parameters", "GET /api/v1/shards?a=b", nil, 400, `this operation takes no parameters`, ""},
		{"bad encoding", "GET /api/v1/explain?a=%zz", nil, 400, `cannot be read`, ""},
		{"explain nobody", "GET /api/v1/explain?ip=::1", nil, 200, `"rule":"a","action":"block","about":"::/64","limits":[`, ""},
		{"decisions", "GET /api/v1/decisions?rule=a&key=ab&limit=7", nil, 400, `the node has no decision log`, ""},
		{"description", "GET /api/v1/openapi.json", nil, 200, `"openapi":"3.1.0"`, ""},
		{"lift", "POST /api/v1/mitigations/lift?rule=a&ip=192.0.2.1&reason=r", []string{bearer}, 200, `{"key":"`, "none"},
		{"lift another key", "POST /api/v1/mitigations/lift?rule=a&header:x=b&reason=r", []string{bearer}, 400, `rule a does not count by \"header:x\"`, ""},
		{"lift all", "POST /api/v1/mitigations/lift-all?dry_run=true", []string{bearer}, 200, `{"mitigations":1,"dry_run":true,"unknown":0}`, ""},
		{"lift all of other networks", "POST /api/v1/mitigations/lift-all?client=192.0.3.0/24", []string{bearer}, 200, `{"mitigations":0`, ""},
		{"lift some", "POST /api/v1/mitigations/lift-all?rule=a&client=192.0.2.0/24", []string{bearer}, 200, `{"mitigations":1`, "none"},
		{"invalid dry_run", "POST /api/v1/mitigations/lift-all?dry_run=yes", []string{bearer}, 400, `is not true or false`, ""},
		{"lift without a token", "POST /api/v1/mitigations/lift?key=ab", nil, 401, `{"error":"missing or invalid token: `, ""},
		{"lift with a wrong one", "POST /api/v1/mitigations/lift?key=ab", []string{bearer + "x"}, 401, `missing or invalid token`, ""},
		{"lift with two", "POST /api/v1/mitigations/lift?key=ab", []string{bearer, bearer}, 401, `missing or invalid token`, ""},
		{"token as a password", "POST /api/v1/mitigations/lift?key=ab", []string{"Authorization: Basic " + secret}, 401, `missing or invalid token`, ""},
		{"read with a wrong one", "GET /api/v1/shards", []string{bearer + "x"}, 401, `missing or invalid token`, ""},
		{"lift by a link", "GET /api/v1/mitigations/lift-all", []string{bearer}, 405, `use POST`, ""},
		{"add", "POST /api/v1/mitigations?rule=a&ip=::1&duration=15m&reason=r", []string{bearer}, 200, `"by_hand":true`, "192.0.2.1 ::1"},
		{"add for days", "POST /api/v1/mitigations?rule=a&ip=::3&duration=1d&reason=r", []string{bearer}, 200, `"left_s":86400`, "192.0.2.1 ::3"},
		{"add for too long", "POST /api/v1/mitigations?rule=a&ip=::3&duration=15d&reason=r", []string{bearer}, 400, `at most 14d`, ""},
		{"add without a reason", "POST /api/v1/mitigations?rule=a&ip=::1&duration=15m", []string{bearer}, 400, `reason is missing`, ""},
		{"add without a duration", "POST /api/v1/mitigations?rule=a&ip=::1&reason=r", []string{bearer}, 400, `duration is missing`, ""},
		{"refuse a client", "POST /api/v1/mitigations?ip=192.0.2.9&duration=15m&reason=r", []string{bearer}, 200, `"about":"192.0.2.9"`, "192.0.2.1 192.0.2.9"},
		{"refuse a network", "POST /api/v1/mitigations?network=192.0.2.0/24&duration=15m&reason=r", []string{bearer}, 400, `a network cannot be refused by hand: add it to deny`, ""},
		{"lift an address", "POST /api/v1/mitigations/lift?ip=192.0.2.1", []string{bearer}, 200, `"rule":"a"`, "none"},
		{"lift another address", "POST /api/v1/mitigations/lift?ip=192.0.2.9", []string{bearer}, 404, `no mitigation acts on 192.0.2.9`, ""},
		{"drain", "POST /api/v1/shards/drain?shard=a:1", []string{bearer}, 200, `"drained":true`, ""},
		{"undrain", "POST /api/v1/shards/undrain?shard=a:1", []string{bearer}, 200, `"drained":false`, ""},
		{"drain another shard", "POST /api/v1/shards/drain?shard=b:1", []string{bearer}, 404, `{"error":"there is no shard b:1"}`, ""},
		{"reload", "POST /-/reload", []string{bearer}, 400, `{"error":"rules.yaml:1:1: nonsense"}`, ""},
		{"reload by a link", "GET /-/reload", []string{bearer}, 405, `{"error":"method not allowed: use POST"}`, ""},
		{"nothing there", "GET /mitigations", nil, 404, `{"error":"not found`, ""},
		{"no page", "GET /", nil, 404, `not found`, ""},
		{"no profiles", "GET /debug/pprof/heap", nil, 404, `not found`, ""},
		{"by name", "GET /api/v1/shards", []string{"Host: localhost:9190"}, 200, `{`, ""},
		{"by IPv6", "GET /api/v1/shards", []string{"Host: [::1]:9190"}, 200, `{`, ""},
		{"by the listener's name", "GET /api/v1/shards", []string{"Host: edge-1.EXAMPLE"}, 200, `{`, ""},
		{"by a name that resolves to here", "GET /api/v1/shards", []string{"Host: evil.example:9190"}, 403, `{"error":"invalid Host: use an IP address`, ""},
		{"by such a name with a token", "POST /-/reload", []string{"Host: evil.example", bearer}, 403, `{"error":"invalid Host: use an IP address`, ""},
		{"by an IPv6 address without brackets", "GET /api/v1/shards", []string{"Host: ::1"}, 200, `{`, ""},
		{"by no name", "GET /api/v1/shards", []string{"Host: "}, 403, `{"error":"invalid Host`, ""},
		{"by another site", "GET /api/v1/shards", []string{"Sec-Fetch-Site: cross-site"}, 403, `{"error":"cross-site requests`, ""},
		{"by another port", "GET /api/v1/shards", []string{"Sec-Fetch-Site: same-site"}, 403, `cross-site requests`, ""},
		{"by another origin", "POST /-/reload", []string{"Origin: http://127.0.0.1:9191", bearer}, 403, `cross-site requests`, ""},
		{"by a file", "POST /-/reload", []string{"Origin: null", bearer}, 403, `cross-site requests`, ""},
		{"by its own page", "GET /api/v1/shards", []string{"Sec-Fetch-Site: same-origin", "Origin: http://127.0.0.1:9190"}, 200, `{`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, nil)
			w := f.ask(t, tt.request, tt.headers...)
			if w.Code != tt.status || !strings.Contains(strings.ReplaceAll(w.Body.String(), `": "`, `":"`), tt.body) {
				t.Errorf("%s: %d %s, want %d %s", tt.request, w.Code, w.Body, tt.status, tt.body)
			}
			if got, want := cmp.Or(f.mitigated(t), "none"), cmp.Or(tt.mitigated, "192.0.2.1"); got != want {
				t.Errorf("%s: mitigated afterwards: %s, want %s", tt.request, got, want)
			}
			if !json.Valid(w.Body.Bytes()) || w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%s: %s %q, want JSON", tt.request, w.Header().Get("Content-Type"), w.Body)
			}
			for name := range w.Header() {
				if strings.HasPrefix(name, "Access-Control-") || name == "Set-Cookie" {
					t.Errorf("%s: the answer has %s", tt.request, name)
				}
			}
		})
	}
}

// A stream of events ends when the token of its request is replaced.
func TestStreamOfAReplacedToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	tokens, other := new(operate.Tokens), strings.Repeat("another", 5)
	read := func(token string) {
		if err := errors.Join(os.WriteFile(file, []byte("anna "+token+"\n"), 0o600), tokens.Read(file)); err != nil {
			t.Fatal(err)
		}
	}
	read(secret)
	var second error
	f := newFixture(t, func(o *operate.Options) {
		o.Tokens = tokens
		o.Events = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "first")
			read(other)
			_, second = fmt.Fprint(w, "second")
		})
	})
	if w := f.ask(t, "GET /api/v1/events", bearer); w.Body.String() != "first" || second == nil {
		t.Errorf("the answer is %q, then %v; want it to end after the first event", w.Body, second)
	}
}

// If the listener is not on the loopback interface, only the page is served without a token: it reveals
// nothing.
func TestClosed(t *testing.T) {
	f := newFixture(t, func(o *operate.Options) {
		o.Open, o.PProf = false, true
		o.Page = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the page") })
		o.Events = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "event") })
	})
	for path, page := range map[string]bool{
		"/": true, "/page/style.css": true, "/api/v1/events": false, "/api/v1/shards": false, "/api/v1/openapi.json": false, "/debug/pprof/": false, "/else": false,
	} {
		want := map[bool]int{true: 200, false: 401}[page]
		if w := f.ask(t, "GET "+path); w.Code != want {
			t.Errorf("GET %s without a token: %d %s, want %d", path, w.Code, w.Body, want)
		}
		if w := f.ask(t, "GET "+path, bearer); w.Code == 401 {
			t.Errorf("GET %s with a token: %d %s", path, w.Code, w.Body)
		}
	}
	for range 20 {
		if w := f.ask(t, "PUT /api/v1/mitigations", bearer); w.Code != 405 || w.Header().Get("Allow") != "GET, POST" {
			t.Fatalf("PUT /api/v1/mitigations: %d, Allow %q", w.Code, w.Header().Get("Allow"))
		}
	}
	if w := f.ask(t, "POST /api/v1/events", bearer); w.Code != 405 || w.Header().Get("Allow") != "GET" {
		t.Errorf("POST /api/v1/events: %d, Allow %q", w.Code, w.Header().Get("Allow"))
	}
	if w := f.ask(t, "GET /", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"); w.Code != 200 {
		t.Errorf("a link to the page: %d %s", w.Code, w.Body)
	}
	if w := f.ask(t, "GET /", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: cors"); w.Code != 403 {
		t.Errorf("another site reads the page: %d", w.Code)
	}
}

// A change is logged with who made it, from where, what it was and why; requests without a valid token
// are counted, and not all logged.
func TestAudit(t *testing.T) {
	f := newFixture(t, nil)
	f.ask(t, "POST /api/v1/mitigations/lift?rule=a&ip=192.0.2.1&reason=it+was+wrong", bearer)
	want := `msg="admin change" by=anna from=192.0.2.1:5 do=mitigations-lift reason="it was wrong" rule=a key=` + f.key + "\n"
	if got := f.log.String(); !strings.HasSuffix(got, want) {
		t.Errorf("log %s, want %s", got, want)
	}
	f.ask(t, "POST /-/reload?reason=r", bearer)
	if got := f.log.String(); !strings.HasSuffix(got, `do=reload reason=r err="rules.yaml:1:1: nonsense"`+"\n") {
		t.Errorf("log %s, want it to say that the reload failed", got)
	}
	f.log.Reset()
	begin := time.Now()
	for range 5 {
		f.ask(t, "POST /-/reload")
	}
	seconds := int(time.Since(begin)/time.Second) + 1
	if got := strings.Count(f.log.String(), "without a valid token"); got < 1 || got > seconds {
		t.Errorf("%d lines about requests without a token, want one a second: %s", got, &f.log)
	}
	err := testutil.GatherAndCompare(f.reg, strings.NewReader(`# HELP edge_admin_requests_refused_total Requests that the admin listener refused, by cause: no valid token, another host's name, another site's page, too many at the same time.
# TYPE edge_admin_requests_refused_total counter
edge_admin_requests_refused_total{cause="busy"} 0
edge_admin_requests_refused_total{cause="host"} 0
edge_admin_requests_refused_total{cause="site"} 0
edge_admin_requests_refused_total{cause="token"} 5
`))
	if err != nil {
		t.Error(err)
	}
}

// Parameters of a change may be a form, of bounded size.
func TestForm(t *testing.T) {
	for _, tt := range []struct {
		name, kind, body string
		status           int
		want             string
	}{
		{"form", "application/x-www-form-urlencoded", "key=KEY&reason=r", 200, `{"key":"`},
		{"form with a charset", "Application/x-www-form-urlencoded; charset=UTF-8", "key=KEY&reason=r", 200, `{"key":"`},
		{"JSON", "application/json", `{"key":"KEY"}`, 400, "the body must be a form"},
		{"too long", "application/x-www-form-urlencoded", "key=" + strings.Repeat("a", 1<<17), 400, "too large"},
	} {
		f := newFixture(t, nil)
		r := httptest.NewRequest("POST", "/api/v1/mitigations/lift", strings.NewReader(strings.ReplaceAll(tt.body, "KEY", f.key)))
		r.Host = "127.0.0.1"
		r.Header.Set("Content-Type", tt.kind)
		r.Header.Set("Authorization", "Bearer "+secret)
		w := httptest.NewRecorder()
		if f.ServeHTTP(w, r); w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s: %d %s, want %d %s", tt.name, w.Code, w.Body, tt.status, tt.want)
		}
	}
}

// Requests beyond the concurrent ones wait, and are then refused. Streams are refused at once. Requests with a token
// get an answer however many there are without one.
func TestBusy(t *testing.T) {
	begun, end := make(chan struct{}, 64), make(chan struct{})
	f := newFixture(t, func(o *operate.Options) {
		o.Events = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "" {
				begun <- struct{}{}
				<-end
			}
		})
	})
	f.operator.OwnStatus = func() (s peers.Status) {
		begun <- struct{}{}
		<-end
		return s
	}
	answers := make(chan int, 64)
	const requests, streams = 8, 32
	const many = requests + streams
	for i := range many {
		path := "GET /api/v1/nodes"
		if i < streams {
			path = "GET /api/v1/events"
		}
		go func() { answers <- f.ask(t, path).Code }()
	}
	for range many {
		<-begun
	}
	if w := f.ask(t, "GET /api/v1/shards"); w.Code != 503 || w.Header().Get("Retry-After") != "1" {
		t.Errorf("one more: %d %s, want 503", w.Code, w.Body)
	}
	if w := f.ask(t, "GET /api/v1/events"); w.Code != 503 {
		t.Errorf("one more stream: %d %s, want 503", w.Code, w.Body)
	}
	for _, path := range []string{"/api/v1/shards", "/api/v1/events"} {
		if w := f.ask(t, "GET "+path, bearer); w.Code != 200 {
			t.Errorf("%s with a token: %d %s, want 200", path, w.Code, w.Body)
		}
	}
	close(end)
	for range many {
		if code := <-answers; code != 200 {
			t.Errorf("an earlier request: %d", code)
		}
	}
	if w := f.ask(t, "GET /api/v1/shards"); w.Code != 200 {
		t.Errorf("afterwards: %d", w.Code)
	}
}

// A flood of requests without a token is answered at a bounded rate, and each connection waits. Meanwhile, requests
// with a token are answered.
func TestFlood(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		const connections, length = 256, 10 * time.Second
		begin := time.Now()
		var answered, refused atomic.Int64
		var flood sync.WaitGroup
		for range connections {
			flood.Go(func() {
				for time.Since(begin) < length {
					if f.ask(t, "GET /api/v1/shards").Code == 200 {
						answered.Add(1)
					} else {
						refused.Add(1)
					}
				}
			})
		}
		time.Sleep(length / 2)
		if w := f.ask(t, "GET /api/v1/shards", bearer); w.Code != 200 || time.Since(begin) != length/2 {
			t.Errorf("with a token: %d after %v", w.Code, time.Since(begin)-length/2)
		}
		flood.Wait()
		if n := answered.Load(); n < 1000 || n > 2500 {
			t.Errorf("%d requests were answered in %v, want 200 a second", n, length)
		}
		if n := refused.Load(); n > 256*11 {
			t.Errorf("%d requests were refused in %v, want one a second for each connection", n, length)
		}
	})
}
