package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/pop/proxy"
)

// piped returns a client at 127.0.0.1 of a proxy with these rules in front of origin, all
// connected by pipes, in a bubble. Both sides speak HTTP/2 if http2 is set. Bodies may pause
// for 5 s.
func piped(t *testing.T, rules string, http2 bool, origin http.HandlerFunc) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	start := func(handler http.Handler) *http.Transport {
		var serving sync.WaitGroup
		pipe, server := shard.NewPipe(), &http.Server{Handler: handler, Protocols: protocols}
		serving.Go(func() { _ = server.Serve(pipe) })
		tr := &http.Transport{Protocols: protocols, DialContext: pipe.Dial, DisableCompression: true}
		t.Cleanup(func() {
			tr.CloseIdleConnections()
			_ = server.Close()
			serving.Wait()
		})
		return tr
	}
	tr := start(origin)
	p, _ := newProxy(t, rules, "http://origin", func(o *proxy.Options) {
		o.BodyTimeout = 5 * time.Second
		o.Origins.Default, _ = proxy.NewOrigin("http://origin", proxy.OriginOptions{Transport: tr})
	})
	return &http.Client{Transport: start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = "127.0.0.1:1234" // a pipe has none
		p.ServeHTTP(w, r)
	}))}
}

// A client may leave a connection alone for longer than it may pause within a request: what
// is sent of the next answer has deadlines of its own, also where that has no body.
func TestClientsMayPauseBetweenRequests(t *testing.T) {
	// The race detector crashes when two threads fire timers of one bubble: go.dev/issue/78156.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := piped(t, noRules, http2, func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/304" {
						w.WriteHeader(http.StatusNotModified)
						return
					}
					_, _ = io.WriteString(w, "ok")
				})
				for i, path := range []string{"/", "/304", "/", "/304", "/304"} {
					reused := false
					r := newRequest(t, "GET", "http://a.example"+path, nil)
					r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
						GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused },
					}))
					resp, _ := do(t, c, r)
					if want := map[string]int{"/": 200, "/304": 304}[path]; resp.StatusCode != want || reused != (i > 0) {
						t.Errorf("request %d: %d, want %d; on the connection of the one before: %t", i, resp.StatusCode, want, reused)
					}
					time.Sleep(time.Minute)
				}
			})
		})
	}
}

// A client answers for its own pauses only: the origin may take its time between the parts
// of a body that it reads, before it answers, between the parts of its answer, and before
// the answer's end.
func TestTheOriginMayPause(t *testing.T) {
	// The race detector crashes when two threads fire timers of one bubble: go.dev/issue/78156.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const size, pause = 1 << 20, time.Minute
	write := func(w http.ResponseWriter, text string) {
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
	}
	for _, tt := range []struct {
		name   string
		origin http.HandlerFunc
	}{
		{"within the request", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.CopyN(io.Discard, r.Body, 10)
			time.Sleep(pause)
			if n, err := io.Copy(io.Discard, r.Body); n != size-10 || err != nil {
				t.Errorf("the origin reads %d more bytes, %v", n, err)
			}
			write(w, "one two")
		}},
		{"after the request", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			time.Sleep(pause)
			write(w, "one two")
		}},
		{"within the answer", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			write(w, "one ")
			time.Sleep(pause)
			write(w, "two")
		}},
		{"at the answer's end", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			write(w, "one two")
			time.Sleep(pause)
		}},
	} {
		for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
			t.Run(tt.name+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := piped(t, noRules, http2, tt.origin)
					resp, body := do(t, c, newRequest(t, "POST", "http://a.example/", strings.NewReader(strings.Repeat("x", size))))
					if resp.StatusCode != http.StatusOK || body != "one two" {
						t.Errorf("%d %q", resp.StatusCode, body)
					}
				})
			})
		}
	}
}
