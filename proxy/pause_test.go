package proxy_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/proxy"
	"github.com/edgelimit/edge/proxy/http1"
	"github.com/edgelimit/edge/proxy/http2/http2test"
)

// piped returns a client at 127.0.0.1 of a proxy with these rules in front of origin, all
// connected by pipes, in a bubble. Both sides speak HTTP/2 if http2 is set. Bodies may pause
// for 5 s, and must arrive at 100 bytes per second or more.
func piped(t *testing.T, rules string, http2 bool, origin http.HandlerFunc) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	var serving sync.WaitGroup
	pipe, server := shard.NewPipe(), &http.Server{Handler: origin, Protocols: protocols}
	serving.Go(func() { _ = server.Serve(pipe) })
	text, dial := "http://origin", pipe.Dial
	if http2 {
		text, dial = "h2c://origin", http2test.Dial(pipe.Dial)
	}
	t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	p, _ := newProxy(t, rules, "http://origin", func(o *proxy.Options) {
		o.Origins.Default, _ = proxy.NewOrigin(text, proxy.OriginOptions{Dial: dial, Timeout: time.Hour})
	})
	front := shard.NewPipe()
	runFront(t, p, front, http1.Options{Handler: p, Limits: http1.Limits{BodyTimeout: 5 * time.Second, BodyRate: 100}})
	client := &http.Transport{Protocols: protocols, DialContext: front.Dial, DisableCompression: true}
	if http2 {
		client.DialContext = http2test.Dial(front.Dial)
	}
	t.Cleanup(client.CloseIdleConnections)
	return &http.Client{Transport: client}
}

// A client may leave a connection idle for longer than it may pause within a request: the
// next answer has deadlines of its own, even if it has no body.
func TestClientsMayPauseBetweenRequests(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
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

// The answer to a first request may take longer than the request, even if it has come in one piece with all that
// precedes it in HTTP/2.
func TestFirstAnswerMayTakeLong(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := piped(t, noRules, true, func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Minute)
			w.WriteHeader(http.StatusNoContent)
		})
		conn, err := c.Transport.(*http.Transport).DialContext(t.Context(), "tcp", "node")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		first := bytes.NewBufferString(xhttp2.ClientPreface)
		frames := xhttp2.NewFramer(first, conn)
		_ = frames.WriteSettings()
		_ = frames.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("\x82\x86\x84\x41\x09a.example"), EndStream: true, EndHeaders: true})
		_, _ = conn.Write(first.Bytes())
		for answered := false; !answered; {
			f, err := frames.ReadFrame()
			if err != nil {
				t.Fatalf("instead of an answer: %v", err)
			}
			answered = f.Header().Type == xhttp2.FrameHeaders
		}
	})
}

// A client that sends its body below the minimum rate, for longer than it may pause, gets 408, however much it has sent
// before. Once the origin answers, both may be slow.
func TestBodyRate(t *testing.T) {
	const echo, sink = "/echo", "/"
	// write writes size bytes and then waits, this many times.
	write := func(w io.Writer, size int, wait time.Duration, times int) {
		for range times {
			if _, err := w.Write(make([]byte, size)); err != nil {
				return
			}
			time.Sleep(wait)
		}
	}
	for _, tt := range []struct {
		name, path string
		send       func(io.Writer)
		status     int
		after      time.Duration // of the answer
	}{
		{"a byte each second", sink, func(w io.Writer) { write(w, 1, time.Second, 30) }, http.StatusRequestTimeout, 5 * time.Second},
		{"the rate", sink, func(w io.Writer) { write(w, 100, time.Second, 30) }, http.StatusOK, 30 * time.Second},
		{"pauses", sink, func(w io.Writer) { write(w, 400, 4*time.Second, 8) }, http.StatusOK, 32 * time.Second},
		{"a pause that is too long", sink, func(w io.Writer) { write(w, 1000, 6*time.Second, 1) }, http.StatusRequestTimeout, 5 * time.Second},
		{"much in one write, then a byte each second", sink, func(w io.Writer) {
			write(w, 100_000, time.Second, 1)
			write(w, 1, time.Second, 30)
		}, http.StatusRequestTimeout, 5 * time.Second},
		{"a conversation", echo, func(w io.Writer) { write(w, 1, 3*time.Second, 10) }, http.StatusOK, 0},
	} {
		for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
			t.Run(tt.name+", "+name, func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					c := piped(t, noRules, http2, func(w http.ResponseWriter, r *http.Request) {
						control := http.NewResponseController(w)
						if r.URL.Path == echo {
							_ = control.EnableFullDuplex()
							_ = control.Flush()
							_, _ = io.Copy(w, r.Body)
							return
						}
						if _, err := io.Copy(io.Discard, r.Body); (err == nil) != (tt.status == http.StatusOK) {
							t.Errorf("the origin reads the body: %v", err)
						}
					})
					body, send := io.Pipe()
					go func() {
						tt.send(send)
						_ = send.Close()
					}()
					start := time.Now()
					resp, err := c.Do(newRequest(t, "POST", "http://a.example"+tt.path, body))
					if err != nil {
						t.Fatal(err)
					}
					if after := time.Since(start).Round(time.Second); resp.StatusCode != tt.status || after != tt.after {
						t.Errorf("%s after %v, want %d after %v", resp.Status, after, tt.status, tt.after)
					}
					answer, err := io.ReadAll(resp.Body)
					if tt.path == echo && (len(answer) != 10 || err != nil) {
						t.Errorf("%d bytes come back, %v; want 10", len(answer), err)
					}
					resp.Body.Close()
					time.Sleep(time.Minute) // until all is sent
				})
			})
		}
	}
}

// A client is responsible only for its own pauses: the origin may take its time between the parts
// of a body that it reads, before it answers, between the parts of its answer, and before
// the answer's end.
func TestTheOriginMayPause(t *testing.T) {
	const size, pause = 300_000, time.Minute // more than a stream's window
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
				bubble.Test(t, func(t *testing.T) {
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
