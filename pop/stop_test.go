package pop_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgelimit/edge/pop"
)

// A node that stops answers who comes meanwhile, and asks them to go: by HTTP/1 with the
// answer, by HTTP/2 with the end of the connection. It stops when nobody comes any more, or
// after five seconds.
func TestStopLetsClientsGo(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // go.dev/issue/78156
	const ms = time.Millisecond
	for _, tt := range []struct {
		name  string
		http2 bool
		asks  []time.Duration // when a client asks, after the node was told to stop
		dials int             // of the client, with one from before
		want  time.Duration   // until Stop returns
	}{
		{"nobody asks", false, nil, 1, time.Second},
		{"a connection that was kept", false, []time.Duration{400 * ms}, 1, 2 * time.Second},
		{"and a new one", false, []time.Duration{400 * ms, 600 * ms}, 2, 2 * time.Second},
		{"one second after the other", false, []time.Duration{400 * ms, 1400 * ms, 2400 * ms}, 3, 4 * time.Second},
		{"for ever", false, every(300*ms, 4900*ms), 16, 5 * time.Second},
		{"HTTP/2", true, []time.Duration{400 * ms, 600 * ms}, 2, 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
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
				// A request that is not sent again if its connection is closed.
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

// every returns multiples of a duration, as far as to last.
func every(d, last time.Duration) (all []time.Duration) {
	for at := d; at <= last; at += d {
		all = append(all, at)
	}
	return all
}

// Where there is little time to stop, clients are not let go for all of it: requests that
// are under way end.
func TestStopLeavesTimeForRequests(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // go.dev/issue/78156
	synctest.Test(t, func(t *testing.T) {
		slow := func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) }
		p := startPiped(t, slow, func(o *pop.Options) { o.DrainTimeout = 4 * time.Second })
		stopped := make(chan error, 1)
		go func() { stopped <- p.Stop(t.Context()) }()
		var asking sync.WaitGroup
		for {
			time.Sleep(300 * time.Millisecond)
			conn, err := p.front.Dial(t.Context(), "", "")
			if err != nil {
				break // the node has stopped to listen
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
