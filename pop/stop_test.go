package pop_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/pop"
)

// A stopping node still answers clients, and asks them to leave: with the answer in HTTP/1, with GOAWAY in
// HTTP/2. It stops when no requests come any more, or after five seconds.
func TestStopReleasesClients(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name  string
		http2 bool
		asks  []time.Duration // times of requests, after Stop
		dials int             // connections of the client, including one from before
		want  time.Duration   // until Stop returns
	}{
		{"nobody asks", false, nil, 1, time.Second},
		{"a keep-alive connection", false, []time.Duration{400 * ms}, 1, 2 * time.Second},
		{"and a new one", false, []time.Duration{400 * ms, 600 * ms}, 2, 2 * time.Second},
		{"one second after the other", false, []time.Duration{400 * ms, 1400 * ms, 2400 * ms}, 3, 4 * time.Second},
		{"forever", false, every(300*ms, 4900*ms), 16, 5 * time.Second},
		{"HTTP/2", true, []time.Duration{400 * ms, 600 * ms}, 2, 2 * time.Second},
	} {
		bubble.Test(t, func(t *testing.T) {
			p := startPiped(t, func(http.ResponseWriter, *http.Request) {}, func(*pop.Options) {})
			dials := 0
			transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				dials++
				return p.front.Dial(ctx, "", "")
			}, Protocols: new(http.Protocols)}
			transport.Protocols.SetHTTP1(!tt.http2)
			transport.Protocols.SetUnencryptedHTTP2(tt.http2)
			defer transport.CloseIdleConnections()
			ask := func(wantClose bool) {
				// A request that is not retried if its connection is closed.
				resp, err := (&http.Client{Transport: transport}).Post("http://a.example/", "", http.NoBody)
				if err != nil {
					t.Errorf("%s: %v", tt.name, err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK || resp.Close != wantClose {
					t.Errorf("%s: %s, the last of its connection: %v; want 200, %v", tt.name, resp.Status, resp.Close, wantClose)
				}
			}
			ask(false)
			start, stopped := time.Now(), make(chan time.Duration, 1)
			go func() {
				if err := p.Stop(t.Context()); err != nil {
					t.Errorf("%s: %v", tt.name, err)
				}
				stopped <- time.Since(start)
			}()
			for _, at := range tt.asks {
				time.Sleep(at - time.Since(start))
				ask(!tt.http2)
			}
			if took := (<-stopped).Round(100 * ms); took != tt.want {
				t.Errorf("%s: Stop took %v, want %v", tt.name, took, tt.want)
			}
			if dials != tt.dials {
				t.Errorf("%s: the client connected %d times, want %d", tt.name, dials, tt.dials)
			}
		})
	}
}

// A stopping node changes only the last answer of a connection, not interim answers and upgrades.
func TestStopPassesInterimAnswersAndUpgrades(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPiped(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") != "" {
				echo(w, r)
				return
			}
			w.WriteHeader(http.StatusEarlyHints)
		}, func(*pop.Options) {})
		stopped := make(chan error, 1)
		go func() { stopped <- p.Stop(t.Context()) }()
		time.Sleep(400 * time.Millisecond)
		conn, r := p.connect(t, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
		for _, want := range []struct {
			status int
			last   bool
		}{{http.StatusEarlyHints, false}, {http.StatusOK, true}} {
			resp, err := http.ReadResponse(r, nil)
			if err != nil || resp.StatusCode != want.status || resp.Close != want.last {
				t.Fatalf("%+v, %v; want status %d, the last of its connection: %v", resp, err, want.status, want.last)
			}
		}
		_ = conn.Close()
		conn, r = p.connect(t, "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		resp, err := http.ReadResponse(r, nil)
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols || !strings.EqualFold(resp.Header.Get("Connection"), "Upgrade") {
			t.Fatalf("%+v, %v; want 101 with Connection: upgrade", resp, err)
		}
		if _, err := io.WriteString(conn, "text"); err != nil {
			t.Error(err)
		}
		text := make([]byte, 4)
		if _, err := io.ReadFull(r, text); err != nil || string(text) != "text" {
			t.Errorf("the upgraded connection returned %q, %v; want text", text, err)
		}
		_ = conn.Close()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

// Stop returns once all pending requests are counted, even if it is called again.
func TestStopSendsPendingCounts(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPiped(t, func(http.ResponseWriter, *http.Request) {}, func(o *pop.Options) {
			o.Rules, o.FlushInterval = parse(t, fivePerClient), time.Hour
		})
		_, r := p.connect(t, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
		if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%+v, %v", resp, err)
		}
		first := make(chan error, 1)
		go func() { first <- p.Stop(t.Context()) }()
		synctest.Wait()
		if err := p.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if n, err := sum(p.Gatherer(), "edge_increments_total/ok"); n != 1 || err != nil {
			t.Errorf("%v increments were sent when Stop returned, %v; want 1", n, err)
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}

// every returns the multiples of a duration up to last.
func every(d, last time.Duration) (all []time.Duration) {
	for at := d; at <= last; at += d {
		all = append(all, at)
	}
	return all
}

// If there is little time to stop, not all of it is spent waiting for new requests: those in flight can end.
func TestStopLeavesTimeForRequests(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		slow := func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) }
		p := startPiped(t, slow, func(o *pop.Options) { o.DrainTimeout = 4 * time.Second })
		stopped := make(chan error, 1)
		go func() { stopped <- p.Stop(t.Context()) }()
		var asking sync.WaitGroup
		for {
			time.Sleep(300 * time.Millisecond)
			conn, err := p.front.Dial(t.Context(), "", "")
			if err != nil {
				break // the node no longer listens
			}
			asking.Go(func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
				if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusOK {
					t.Errorf("a request that was under way: %+v, %v; want 200", resp, err)
				}
			})
		}
		asking.Wait()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

// A connection that was accepted just before the listener closed is served if its first request arrives within
// a second. Otherwise it is closed then.
func TestStopAnswersNewConnections(t *testing.T) {
	const closes = time.Second // no request comes before
	get2 := preface + frame(headers, endStream|endHeaders, 1, request)
	for _, tt := range []struct {
		name, before, after string
		want                string // status
	}{
		{"nothing sent", "", hello, "200"},
		{"half a header sent", hello[:20], hello[20:], "200"},
		{"half of the HTTP/2 preface", get2[:10], get2[10:], "200"},
		{"HTTP/2 without a request", preface, get2[len(preface):], "200"},
		{"no request", "", "", ""},
		{"HTTP/2, no request", preface, "", ""},
		{"half of the HTTP/2 preface, then nothing", get2[:10], "", ""},
	} {
		bubble.Test(t, func(t *testing.T) {
			p := startPiped(t, func(http.ResponseWriter, *http.Request) {}, func(*pop.Options) {})
			conn, r := p.connect(t, tt.before)
			got := make(chan string, 1)
			go func() { got <- firstStatus(r) }()
			stopped := make(chan error, 1)
			go func() { stopped <- p.Stop(t.Context()) }()
			time.Sleep(closes + 900*time.Millisecond)
			if _, err := p.front.Dial(t.Context(), "", ""); err == nil {
				t.Errorf("%s: the node still accepts connections", tt.name)
			}
			if len(tt.after) > 0 {
				if _, err := io.WriteString(conn, tt.after); err != nil {
					t.Errorf("%s: %v", tt.name, err)
				}
			}
			if status := <-got; status != tt.want {
				t.Errorf("%s: answered %q, want %q", tt.name, status, tt.want)
			}
			if err := <-stopped; err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
		})
	}
}

// firstStatus reads a connection to its end, and returns the status of the first answer, or "" if there is
// none.
func firstStatus(r io.Reader) string {
	all, _ := io.ReadAll(r)
	if bytes.HasPrefix(all, []byte("HTTP/1.1 ")) {
		return string(all[9:12])
	}
	frames := http2.NewFramer(io.Discard, bytes.NewReader(all))
	frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		f, err := frames.ReadFrame()
		if err != nil {
			return ""
		}
		if f, ok := f.(*http2.MetaHeadersFrame); ok {
			return f.PseudoValue("status")
		}
	}
}
