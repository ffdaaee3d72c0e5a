package pop_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edge/internal/bubble"
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

func (j *judge) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
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
		{"HTTP/1.1, half closed", func(w *wired, j *judge) {
			conn, _ := w.dial(guess)
			<-j.asked
			_ = conn.(*net.TCPConn).CloseWrite()
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

// At most eight requests of a key wait for the answer without the client. Further ones count immediately, and the
// request to the origin is canceled.
func TestAbandonedRequestsOfAKeyAreBounded(t *testing.T) {
	j := newJudge()
	w := startWired(t, guesses, j.serve, nil)
	abandon := func() {
		conn, _ := w.dial(guess)
		<-j.asked
		_ = conn.Close()
	}
	for n := range 8 {
		abandon()
		await(t, "it waits for the answer", func() bool { return w.metric("edge_abandoned_requests_waiting") == float64(n+1) })
	}
	w.passes("while nothing is answered")
	for n := range 6 {
		abandon()
		await(t, "it is counted immediately", func() bool { return w.metric("edge_abandoned_requests_total") == float64(n+1) })
	}
	w.mitigated()
	if n := w.metric("edge_abandoned_requests_waiting"); n != 8 {
		t.Errorf("%v requests wait for the answer, want 8", n)
	}
	close(j.answer)
	await(t, "all are answered", func() bool { return w.metric("edge_abandoned_requests_waiting") == 0 })
}

// A request that its client has not sent completely is not a guess: it ends with the client.
func TestAbandonedHalfwayIsNotCounted(t *testing.T) {
	over := make(chan error)
	w := startWired(t, guesses, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, err := io.Copy(io.Discard, r.Body)
			over <- err
			w.WriteHeader(http.StatusUnauthorized)
		}
	}, nil)
	for range 20 {
		conn, _ := w.dial(strings.Replace(guess, "Content-Length: 5", "Content-Length: 50", 1))
		_ = conn.Close()
		if err := <-over; err == nil {
			t.Fatal("the origin accepted half a request as a whole one")
		}
	}
	await(t, "no request waits", func() bool { return w.metric("edge_abandoned_requests_waiting") == 0 })
	w.passes("after incomplete guesses")
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

// abandonedBubble runs in a bubble a node that allows one abandoned request. Its origin answers POSTs after a
// minute and other requests immediately. Failed logins count by a header, all requests by address.
func abandonedBubble(t *testing.T, originTimeout time.Duration, play func(t *testing.T, p *piped)) {
	bubble.Test(t, func(t *testing.T) {
		play(t, startPiped(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				_, _ = io.Copy(io.Discard, r.Body)
				time.Sleep(time.Minute)
				w.WriteHeader(http.StatusUnauthorized)
			}
		}, func(o *pop.Options) {
			o.Rules = parse(t, `rules:
  - {id: login, match: {paths: [/login]}, count: {statuses: [401]}, characteristics: ["header:x-user"], limits: [{threshold: 5, period: 7d}]}
  - {id: all, characteristics: [ip], limits: [{threshold: 10, period: 7d}]}`)
			o.AbandonedRequests, o.DrainTimeout, o.OriginOptions.Timeout = 1, 30*time.Second, originTimeout
		}))
	})
}

// status sends text and returns the status of the answer and the time of its arrival.
func (p *piped) status(t *testing.T, text string) (int, time.Duration) {
	t.Helper()
	start := time.Now()
	conn, r := p.connect(t, text)
	defer conn.Close()
	resp, err := http.ReadResponse(bufio.NewReader(r), nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "1" {
		t.Errorf("503 with Retry-After %q, want 1", resp.Header.Get("Retry-After"))
	}
	return resp.StatusCode, time.Since(start)
}

// While too many requests are abandoned, new ones under such rules wait for a second, and pass if one ends
// meanwhile. Others pass immediately.
func TestAbandonedRequestsOfANodeAreBounded(t *testing.T) {
	abandonedBubble(t, 2*time.Minute, func(t *testing.T, p *piped) {
		const login = "GET /login HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"
		conn, _ := p.connect(t, guess)
		time.Sleep(time.Second)
		_ = conn.Close()
		synctest.Wait()
		for _, tt := range []struct {
			text   string
			status int
			after  time.Duration
		}{
			{get("a.example"), http.StatusOK, 0},
			{login, http.StatusServiceUnavailable, time.Second},
			{get("a.example"), http.StatusOK, 0},
		} {
			if status, after := p.status(t, tt.text); status != tt.status || after != tt.after {
				t.Errorf("%.12q: %d after %v, want %d after %v", tt.text, status, after, tt.status, tt.after)
			}
		}
		time.Sleep(57500 * time.Millisecond) // half a second before the answer
		if status, after := p.status(t, login); status != http.StatusOK || after != 500*time.Millisecond {
			t.Errorf("after a request has ended: %d after %v, want 200 after 500ms", status, after)
		}
		if status, after := p.status(t, login); status != http.StatusOK || after != 0 {
			t.Errorf("afterwards: %d after %v, want 200 immediately", status, after)
		}
	})
}

// A client that exceeds a limit while its request waits for a place is refused.
func TestMitigatedWhileAllPlacesAreTaken(t *testing.T) {
	abandonedBubble(t, 2*time.Minute, func(t *testing.T, p *piped) {
		conn, _ := p.connect(t, guess)
		time.Sleep(time.Second)
		_ = conn.Close()
		time.Sleep(58500 * time.Millisecond)
		_, waiting := p.connect(t, strings.Replace(get("a.example"), "/", "/login", 1))
		for range 15 {
			p.status(t, get("a.example"))
		}
		if resp, err := http.ReadResponse(waiting, nil); err != nil || resp.StatusCode != http.StatusTooManyRequests {
			t.Errorf("%+v, %v; want 429", resp, err)
		}
	})
}

// An abandoned request waits until the origin answers or times out.
func TestAbandonedRequestsEnd(t *testing.T) {
	abandonedBubble(t, 20*time.Second, func(t *testing.T, p *piped) {
		conn, _ := p.connect(t, guess)
		time.Sleep(time.Second)
		_ = conn.Close()
		for _, want := range []float64{1, 0} {
			time.Sleep(18 * time.Second)
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
			{40 * time.Second, 20 * time.Second, nil},
			{10 * time.Second, 30 * time.Second, pop.ErrCutOff},
		} {
			t.Run(fmt.Sprint(name, tt.before), func(t *testing.T) {
				abandonedBubble(t, 2*time.Minute, func(t *testing.T, p *piped) {
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
					if took := time.Since(start); took < tt.took-time.Second || took > tt.took+time.Second {
						t.Errorf("Stop took %v, want %v ± 1s", took, tt.took)
					}
					time.Sleep(time.Minute) // until the origin is done
				})
			})
		}
	}
}
