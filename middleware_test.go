package edge_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edge"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/internal/harness"
)

// A finalWriter keeps interim answers from a recorder, which would treat them as final.
type finalWriter struct{ *httptest.ResponseRecorder }

func (w finalWriter) WriteHeader(status int) {
	if status >= 200 {
		w.ResponseRecorder.WriteHeader(status)
	}
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })

func TestMiddleware(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := limiter(t, edge.Options{Rules: edge.PerClient(3, time.Minute)}).Middleware(hello)
		for i := range 4 { // the request that exceeds the limit passes: it is counted afterwards
			if w := ask(h, "192.0.2.1", "/"); w.Code != 200 || w.Body.String() != "hello" {
				t.Errorf("request %d: %d %q", i, w.Code, w.Body)
			}
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
		}
		w := ask(h, "192.0.2.1", "/")
		if w.Code != 429 || w.Header().Get("Retry-After") == "" || len(w.Header().Get("Refusal-Id")) != len("7kq2-m9xd") {
			t.Errorf("over the limit: %d %v", w.Code, w.Header())
		}
		if w := ask(h, "192.0.2.2", "/"); w.Code != 200 {
			t.Errorf("another client: %d", w.Code)
		}
	})
}

const logins = `
rules:
  - id: login
    match: {paths: [/login]}
    count: {statuses: [401]}
    characteristics: [ip]
    limits: [{threshold: 2, period: 60s}]
    action: block
    mitigation_timeout: 60s
`

// A handler's status decides what is counted, however the handler writes it.
func TestMiddlewareStatus(t *testing.T) {
	writes := map[string]http.HandlerFunc{
		"WriteHeader": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusUnauthorized)
		},
		"Error": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusUnauthorized) },
	}
	for name, handler := range writes {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				h := limiter(t, edge.Options{Rules: logins}).Middleware(handler)
				var codes []int
				for range 5 {
					codes = append(codes, ask(h, "192.0.2.1", "/login").Code)
					time.Sleep(10 * time.Millisecond)
					synctest.Wait()
				}
				if got := codes[2]; got != 401 {
					t.Errorf("third request: %d", got)
				}
				if got := codes[4]; got != 429 {
					t.Errorf("fifth request: %d, all %v", got, codes)
				}
			})
		})
	}
	t.Run("a panic", func(t *testing.T) { // which middleware outside answers
		bubble.Test(t, func(t *testing.T) {
			rules := strings.Replace(logins, "401", "500", 1)
			panics := limiter(t, edge.Options{Rules: rules}).Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a defect") }))
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() {
					if recover() != nil {
						w.WriteHeader(http.StatusInternalServerError)
					}
				}()
				panics.ServeHTTP(w, r)
			})
			for i, want := range []int{500, 500, 500, 429} {
				if w := ask(h, "192.0.2.1", "/login"); w.Code != want {
					t.Errorf("request %d: %d, want %d", i+1, w.Code, want)
				}
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
			}
		})
	})
	t.Run("other statuses", func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			empty := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
			h := limiter(t, edge.Options{Rules: logins}).Middleware(empty)
			for i := range 10 {
				if w := ask(h, "192.0.2.1", "/login"); w.Code != 200 {
					t.Fatalf("request %d: %d", i, w.Code)
				}
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
			}
		})
	})
}

// If a handler answers many guesses at the same time, the client gets one more answer than the threshold. The other
// guesses are refused, without the handler's output.
func TestMiddlewareWithholds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		h := limiter(t, edge.Options{Rules: logins}).Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-answer
			w.Header().Set("Set-Cookie", "a=b")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, "no such password")
		}))
		answers := make(chan *httptest.ResponseRecorder)
		for range 20 {
			go func() { answers <- ask(h, "192.0.2.1", "/login") }()
		}
		synctest.Wait()
		close(answer)
		codes := map[int]int{}
		for range 20 {
			w := <-answers
			codes[w.Code]++
			if leaks := w.Header().Get("Set-Cookie") != "" || strings.Contains(w.Body.String(), "password"); leaks != (w.Code == 401) {
				t.Errorf("%d with %v, %q", w.Code, w.Header(), w.Body)
			}
		}
		if codes[401] != 3 || codes[429] != 17 {
			t.Errorf("statuses %v, want 3 times 401, then 429", codes)
		}
	})
}

// The trailers of an answer that is withheld do not reach the client. A handler may set them without having announced them.
func TestMiddlewareWithholdsTrailers(t *testing.T) {
	arrived, answer := make(chan struct{}), make(chan struct{})
	server := httptest.NewUnstartedServer(limiter(t, edge.Options{Rules: logins}).Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-answer
		header := w.Header()
		w.WriteHeader(http.StatusUnauthorized)
		header.Set(http.TrailerPrefix+"Grpc-Status", "16")
	})))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	const guesses = 10
	answers := make(chan *http.Response)
	for range guesses {
		go func() {
			resp, err := server.Client().Get(server.URL + "/login")
			if err != nil {
				t.Error(err)
				resp = &http.Response{Body: http.NoBody}
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			answers <- resp
		}()
	}
	for range guesses {
		<-arrived
	}
	close(answer)
	withheld := 0
	for range guesses {
		resp := <-answers
		refused := resp.StatusCode == http.StatusTooManyRequests
		if refused {
			withheld++
		}
		if leaks := resp.Trailer.Get("Grpc-Status") != ""; leaks == refused {
			t.Errorf("%s with trailers %v", resp.Status, resp.Trailer)
		}
	}
	if withheld != guesses-3 {
		t.Errorf("%d answers withheld, want %d", withheld, guesses-3)
	}
}

// A handler states the cost of its request in a header.
func TestMiddlewareCost(t *testing.T) {
	const rules = "rules: [{id: points, count: {cost_header: x-points}, characteristics: [ip], limits: [{threshold: 10, period: 60s}]}]"
	bubble.Test(t, func(t *testing.T) {
		h := limiter(t, edge.Options{Rules: rules}).Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Points", "6")
			_, _ = w.Write([]byte("ok"))
		}))
		for i, want := range []int{200, 200, 429} {
			if got := ask(h, "192.0.2.1", "/").Code; got != want {
				t.Errorf("request %d: %d, want %d", i+1, got, want)
			}
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
		}
	})
}

// The middleware reads the cost in a body, however a handler writes it, even if it panics.
func TestMiddlewareCostInBody(t *testing.T) {
	const rules = "rules: [{id: tokens, count: {cost_json: tokens, reserve: 2}, characteristics: [ip], limits: [{threshold: 10, period: 60s}]}]"
	const body = `{"tokens": 6}`
	for name, write := range map[string]func(w http.ResponseWriter){
		"Write":    func(w http.ResponseWriter) { _, _ = io.WriteString(w, body[:5]); _, _ = io.WriteString(w, body[5:]) },
		"ReadFrom": func(w http.ResponseWriter) { _, _ = io.Copy(w, struct{ io.Reader }{strings.NewReader(body)}) },
		"panic":    func(w http.ResponseWriter) { _, _ = io.WriteString(w, body); panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				h := limiter(t, edge.Options{Rules: rules}).Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					write(w)
				}))
				for i, want := range []int{200, 200, 429} {
					func() {
						defer func() { _ = recover() }()
						if w := ask(h, "192.0.2.1", "/"); w.Code != want || want == 200 && w.Body.String() != body {
							t.Errorf("request %d: %d %s, want %d", i+1, w.Code, w.Body, want)
						}
					}()
					time.Sleep(10 * time.Millisecond)
					synctest.Wait()
				}
				if w := ask(h, "192.0.2.1", "/"); w.Code != 429 {
					t.Errorf("after 12: %d", w.Code)
				}
			})
		})
	}
}

// Whatever rules count, handlers have the abilities of the original writer, in HTTP/1 and HTTP/2.
func TestMiddlewareKeepsAbilities(t *testing.T) {
	type abilities struct {
		Flusher, ReaderFrom, CloseNotifier, Hijacker, Pusher bool
		Deadline, FullDuplex                                 bool
	}
	of := func(w http.ResponseWriter) (a abilities) {
		_, a.Flusher = w.(http.Flusher)
		_, a.ReaderFrom = w.(io.ReaderFrom)
		_, a.CloseNotifier = w.(interface{ CloseNotify() <-chan bool })
		_, a.Hijacker = w.(http.Hijacker)
		_, a.Pusher = w.(http.Pusher)
		controller := http.NewResponseController(w)
		a.Deadline, a.FullDuplex = controller.SetWriteDeadline(time.Time{}) == nil, controller.EnableFullDuplex() == nil
		return a
	}
	for _, http2 := range []bool{false, true} {
		for _, rules := range []string{logins, edge.PerClient(100, time.Minute)} {
			var got, want abilities
			look := func(a *abilities) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { *a = of(w) })
			}
			mux := http.NewServeMux()
			mux.Handle("/original", look(&want))
			mux.Handle("/login", limiter(t, edge.Options{Rules: rules}).Middleware(look(&got)))
			server := httptest.NewUnstartedServer(mux)
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()
			for _, path := range []string{"/original", "/login"} {
				resp, err := server.Client().Get(server.URL + path)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
			}
			want.ReaderFrom = want.ReaderFrom || got.ReaderFrom // which every writer can have
			if got != want || want.Hijacker == http2 || want.Pusher != http2 {
				t.Errorf("HTTP/2 %v, rules %s: %+v, want %+v", http2, rules, got, want)
			}
		}
	}
}

// A wrapper is the writer of a middleware outside, which shows the original only to http.ResponseController.
type wrapper struct{ http.ResponseWriter }

func (w wrapper) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// If a rule refuses a client by the time that a handler takes over its connection, the client gets the refusal.
func TestMiddlewareHijack(t *testing.T) {
	t.Run("the original writer", func(t *testing.T) { hijack(t, func(w http.ResponseWriter) http.ResponseWriter { return w }) })
	t.Run("a wrapper", func(t *testing.T) { hijack(t, func(w http.ResponseWriter) http.ResponseWriter { return wrapper{w} }) })
}

func hijack(t *testing.T, wrap func(http.ResponseWriter) http.ResponseWriter) {
	arrived, proceed := make(chan struct{}), make(chan struct{})
	limited := limiter(t, edge.Options{Rules: logins}).Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("password") {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		arrived <- struct{}{}
		<-proceed
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			_ = conn.Close()
		}
	}))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { limited.ServeHTTP(wrap(w), r) }))
	defer server.Close()
	get := func(query string) int {
		resp, err := http.Get(server.URL + "/login" + query)
		if err != nil {
			t.Error(err)
			return 0
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	upgrade := func(meanwhile func()) int {
		status := make(chan int)
		go func() { status <- get("") }()
		<-arrived
		meanwhile()
		proceed <- struct{}{}
		return <-status
	}
	if got := upgrade(func() {}); got != http.StatusSwitchingProtocols {
		t.Errorf("an innocent client gets %d, want 101", got)
	}
	got := upgrade(func() {
		harness.Until(t, "a refused guess", time.Minute, time.Millisecond, func() bool { return get("?password=x") == http.StatusTooManyRequests })
	})
	if got != http.StatusTooManyRequests {
		t.Errorf("a client that guessed meanwhile gets %d, want 429", got)
	}
}

const byUser = `
rules:
  - id: api
    characteristics: ["header:x-user"]
    limits: [{threshold: 10, period: 60s}]
    action: block
    mitigation_timeout: 0s
`
