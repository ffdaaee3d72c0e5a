package pop_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/proxy/http2/http2test"
)

// guesses limits wrong passwords per address.
const guesses = "rules: [{id: login, count: {statuses: [401]}, characteristics: [ip], limits: [{threshold: 5, period: 7d}]}]"

// A judge is an origin that checks passwords, and answers only when told to.
type judge struct {
	asked  chan struct{} // receives a value for each guess
	answer chan struct{} // closed, or receives a value for each answer
}

func newJudge() *judge { return &judge{make(chan struct{}), make(chan struct{})} }

// serve judges a guess at /early before it reads the body, and other guesses afterwards.
func (j *judge) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		return
	}
	if r.URL.Path == "/early" {
		j.asked <- struct{}{}
		_, _ = io.Copy(io.Discard, r.Body)
		<-j.answer
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	j.asked <- struct{}{}
	select {
	case <-j.answer:
		w.WriteHeader(http.StatusUnauthorized)
	case <-r.Context().Done():
	}
}

// guess is a wrong password.
const guess = "POST /login HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nwrong"

// early begins a guess that is judged before its body.
const early = "POST /early HTTP/1.1\r\nHost: a.example"

// mitigated waits until the client is refused.
func (w *wired) mitigated() {
	w.t.Helper()
	await(w.t, "the client is mitigated", func() bool {
		resp, _ := w.ask(get("a.example"))
		return resp.StatusCode == http.StatusTooManyRequests
	})
}

// passes fails the test if the client is refused.
func (w *wired) passes(when string) {
	w.t.Helper()
	for range 3 {
		if resp, _ := w.ask(get("a.example")); resp.StatusCode != http.StatusOK {
			w.t.Errorf("%s: %s, want 200", when, resp.Status)
		}
	}
}

// A guess counts whether or not the client waits for the answer.
func TestAbandonedGuessesCount(t *testing.T) {
	for _, tt := range []struct {
		name    string
		abandon func(w *wired, j *judge)
	}{
		{"HTTP/1.1, closed", func(w *wired, j *judge) {
			conn, _ := w.dial(guess)
			<-j.asked
			_ = conn.Close()
		}},
		{"HTTP/1.1, without the last byte", func(w *wired, j *judge) {
			conn, _ := w.dial(early + "\r\nContent-Length: 5\r\n\r\nwron")
			<-j.asked
			_ = conn.Close()
		}},
		{"HTTP/1.1, the body ends early", func(w *wired, j *judge) {
			conn, _ := w.dial(early + "\r\nContent-Length: 5\r\n\r\nwron")
			<-j.asked
			_ = conn.(*net.TCPConn).CloseWrite()
		}},
		{"HTTP/1.1, the body is malformed", func(w *wired, j *judge) {
			conn, _ := w.dial(early + "\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwrong\r\n")
			<-j.asked
			fmt.Fprint(conn, "x\r\n")
		}},
		{"HTTP/2, the stream is reset", func(w *wired, j *judge) {
			protocols := new(http.Protocols)
			protocols.SetUnencryptedHTTP2(true)
			tr := &http.Transport{Protocols: protocols}
			w.t.Cleanup(tr.CloseIdleConnections)
			ctx, cancel := context.WithCancel(w.t.Context())
			go func() { <-j.asked; cancel() }()
			r, err := http.NewRequestWithContext(ctx, "POST", "http://"+w.addr+"/login", strings.NewReader("wrong"))
			if err != nil {
				w.t.Fatal(err)
			}
			if _, err := tr.RoundTrip(r); !errors.Is(err, context.Canceled) {
				w.t.Errorf("%v, want context canceled", err)
			}
		}},
		{"HTTP/2, without the last byte", func(w *wired, j *judge) {
			const reset = 3
			post := field(":method", "POST") + field(":scheme", "http") + field(":path", "/early") + field(":authority", "a.example") + field("content-length", "5")
			conn, _ := w.dial(preface + frame(headers, endHeaders, 1, post) + frame(0, 0, 1, "wron"))
			<-j.asked
			fmt.Fprint(conn, frame(reset, 0, 1, "\x00\x00\x00\x08"))
		}},
		{"HTTP/2, the reset comes with the request", func(w *wired, j *judge) {
			const reset = 3
			post := field(":method", "POST") + field(":scheme", "http") + field(":path", "/login") + field(":authority", "a.example")
			w.dial(preface + frame(headers, endStream|endHeaders, 1, post) + frame(reset, 0, 1, "\x00\x00\x00\x08"))
			select {
			case <-j.asked:
			case <-time.After(patience):
				w.t.Fatal("the origin gets no request")
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := newJudge()
			w := startWired(t, guesses, j.serve, nil)
			for n := range 6 {
				tt.abandon(w, j)
				await(t, "the node knows that the client is gone", func() bool { return w.metric("edge_abandoned_requests_waiting") == 1 })
				if n == 5 {
					w.passes("after five guesses")
				}
				j.answer <- struct{}{}
				await(t, "the answer comes", func() bool { return w.metric("edge_abandoned_requests_waiting") == 0 })
			}
			w.mitigated()
			if n := w.metric("edge_abandoned_requests_total"); n != 6 {
				t.Errorf("%v abandoned requests are counted, want 6", n)
			}
		})
	}
}

// A client that has only shut down its side gets the answer, and it counts.
func TestHalfClosedClientsAreAnswered(t *testing.T) {
	j := newJudge()
	w := startWired(t, guesses, j.serve, nil)
	for range 6 {
		conn, r := w.dial(guess)
		_ = conn.(*net.TCPConn).CloseWrite()
		<-j.asked
		j.answer <- struct{}{}
		if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != http.StatusUnauthorized {
			t.Fatalf("%+v, %v; want 401", resp, err)
		}
	}
	w.mitigated()
}

// At most 64 requests of a key wait for the answer without the client. Further ones end, and count only once the
// estimate exceeds half of the threshold.
func TestAbandonedRequestsOfAKeyAreBounded(t *testing.T) {
	j := newJudge()
	w := startWired(t, guesses, j.serve, nil)
	dropped := 0.0
	abandon := func(waiting float64) {
		t.Helper()
		conn, _ := w.dial(guess)
		<-j.asked
		_ = conn.Close()
		await(t, "the client is gone", func() bool {
			return w.metric("edge_abandoned_requests_waiting") == waiting && w.metric("edge_abandoned_requests_total/dropped") == dropped
		})
	}
	for n := range limit.MaxAbandoned {
		abandon(float64(n + 1))
	}
	for range 20 {
		dropped++
		abandon(limit.MaxAbandoned)
	}
	w.passes("after further ones")
	for n := range 3 {
		j.answer <- struct{}{}
		await(t, "a guess is counted", func() bool { return w.metric("edge_abandoned_requests_total/answered") == float64(n+1) })
		abandon(limit.MaxAbandoned)
	}
	w.passes("after three answers")
	for range 3 {
		dropped++
		abandon(limit.MaxAbandoned)
	}
	w.mitigated()
	close(j.answer)
	await(t, "all are answered", func() bool { return w.metric("edge_abandoned_requests_waiting") == 0 })
}

// An origin that sees the end of its connection as the end of the request answers nothing, and nothing counts.
func TestUnansweredIncompleteRequestsDoNotCount(t *testing.T) {
	over := make(chan error)
	w := startWired(t, guesses, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, err := io.Copy(io.Discard, r.Body)
			over <- err
			panic(http.ErrAbortHandler)
		}
	}, nil)
	for range 20 {
		conn, _ := w.dial(strings.Replace(guess, "Content-Length: 5", "Content-Length: 50", 1))
		_ = conn.Close()
		if err := <-over; err == nil {
			t.Fatal("the origin accepted half a request as a whole one")
		}
	}
	await(t, "no request waits", func() bool { return w.metric("edge_abandoned_requests_total/failed") == 20 })
	w.passes("after incomplete requests")
}

// Of 300 guesses without their last byte, the origin judges at most six that are not counted, whether it is a program that
// judges before it reads the body or nginx, which answers before the body has come, perhaps before the client has left.
func TestIncompleteGuessesCount(t *testing.T) {
	var judged atomic.Int64
	origin := func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			judged.Add(1)
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusUnauthorized)
		}
	}
	log := filepath.Join(t.TempDir(), "log")
	nginx := startNginx(t, "access_log "+log+"; if ($request_method = POST) { return 401; } return 200;")
	for name, set := range map[string]func(*pop.Options){
		"Go": nil,
		"nginx": func(o *pop.Options) {
			o.Origin, o.OriginOptions.Dial = "http://nginx", nginx.DialContext
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := startWired(t, guesses, origin, set)
			judged.Store(0)
			for range 300 {
				conn, _ := w.dial(early + "\r\nContent-Length: 5\r\n\r\nwron")
				_ = conn.Close()
			}
			n := 0
			await(t, "at most six of the judged guesses are not counted", func() bool {
				if n = int(judged.Load()); name == "nginx" {
					lines, _ := os.ReadFile(log)
					n = bytes.Count(lines, []byte(`" 401 `))
				}
				return n-int(w.metric("edge_requests_counted_total")) <= 6 && w.metric("edge_connections") == 0
			})
			if n > 6 { // on a busy machine, the node may notice that a client has left before it passes the request on
				w.mitigated()
			}
		})
	}
}

// A client that closes 100 tabs while a page is slow is not refused. Keys that one client makes up take no room from
// the other clients: all of those are served.
func TestClosedTabsAreNotGuesses(t *testing.T) {
	asked := make(chan struct{})
	for name, rules := range map[string]string{"one key": guesses, "keys made up": strings.Replace(guesses, "[ip]", `["header:x-user"]`, 1)} {
		t.Run(name, func(t *testing.T) {
			w := startWired(t, rules, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					asked <- struct{}{}
					<-r.Context().Done()
				}
			}, nil)
			for n := range 1100 {
				if name == "one key" && n == 100 {
					break
				}
				conn, _ := w.dial(fmt.Sprintf("GET /slow HTTP/1.1\r\nHost: a.example\r\nX-User: %d\r\n\r\n", n/8))
				<-asked
				_ = conn.Close()
			}
			w.passes("after closed tabs")
			await(t, "at most 1,024 requests wait", func() bool { return w.metric("edge_abandoned_requests_waiting") <= 1024 })
		})
	}
}

// If the client leaves after the answer has begun, the request to the origin ends, as without such a rule.
func TestAbandonedAnswerEnds(t *testing.T) {
	free := make(chan struct{})
	w := startWired(t, guesses, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush() // the rest of the answer never comes
		<-r.Context().Done()
		close(free)
	}, nil)
	conn, r := w.dial("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
	if _, err := r.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	select {
	case <-free:
	case <-time.After(patience):
		t.Error("the origin is still answering")
	}
}

// Upgraded connections pass under such a rule, and end with the client.
func TestUpgradeUnderARuleForAnswers(t *testing.T) {
	over := make(chan struct{})
	w := startWired(t, guesses, func(w http.ResponseWriter, r *http.Request) {
		echo(w, r)
		close(over)
	}, nil)
	conn, r := w.dial("GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%+v, %v; want 101", resp, err)
	}
	fmt.Fprintln(conn, "hello")
	if line, err := r.ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("%q, %v; want an echo", line, err)
	}
	_ = conn.Close()
	<-over
}

// abandonedBubble runs a node in a bubble. When it stops, the node waits for requests for five seconds. Its origin
// answers POSTs after this long.
func abandonedBubble(t *testing.T, answer time.Duration, play func(t *testing.T, p *piped)) {
	bubble.Test(t, func(t *testing.T) {
		play(t, startPiped(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			time.Sleep(answer)
			w.WriteHeader(http.StatusUnauthorized)
		}, func(o *pop.Options) { o.Rules, o.DrainTimeout = parse(t, guesses), 5*time.Second }))
	})
}

// An abandoned request waits for ten seconds.
func TestAbandonedRequestsEnd(t *testing.T) {
	abandonedBubble(t, 20*time.Second, func(t *testing.T, p *piped) {
		conn, _ := p.connect(t, guess)
		time.Sleep(time.Second)
		_ = conn.Close()
		for _, want := range []float64{1, 0} {
			time.Sleep(9 * time.Second)
			if n, err := sum(p.Gatherer(), "edge_abandoned_requests_waiting"); n != want || err != nil {
				t.Errorf("%v requests wait, %v; want %v", n, err, want)
			}
		}
		time.Sleep(time.Minute) // until the origin is done
	})
}

// A stopping node waits for the answers to abandoned requests as it does for others, and aborts them when its
// time is up.
func TestStopWaitsForAbandonedRequests(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		for _, tt := range []struct {
			before time.Duration // time from the request to Stop
			took   time.Duration
			err    error
		}{
			{6 * time.Second, 3 * time.Second, nil},
			{2 * time.Second, 5 * time.Second, pop.ErrCutOff},
		} {
			t.Run(fmt.Sprint(name, tt.before), func(t *testing.T) {
				abandonedBubble(t, 9*time.Second, func(t *testing.T, p *piped) {
					protocols := new(http.Protocols)
					protocols.SetHTTP1(!http2)
					protocols.SetUnencryptedHTTP2(http2)
					tr := &http.Transport{Protocols: protocols, DialContext: http2test.Dial(p.front.Dial)}
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					r, _ := http.NewRequestWithContext(ctx, "POST", "http://a.example/login", strings.NewReader("wrong"))
					if _, err := tr.RoundTrip(r); err == nil {
						t.Fatal("the origin has answered")
					}
					tr.CloseIdleConnections()
					time.Sleep(tt.before - time.Second)
					start := time.Now()
					if err := p.Stop(t.Context()); !errors.Is(err, tt.err) {
						t.Errorf("Stop: %v, want %v", err, tt.err)
					}
					if took := time.Since(start); took < tt.took-time.Second/2 || took > tt.took+time.Second/2 {
						t.Errorf("Stop took %v, want %v ± 0.5s", took, tt.took)
					}
					time.Sleep(time.Minute) // until the origin is done
				})
			})
		}
	}
}
