package pop_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/pop"
)

const hello = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"

// The number of connections of each client is limited, except for trusted proxies.
func TestConnectionsOfAClient(t *testing.T) {
	for _, trusted := range []bool{false, true} {
		w := startWired(t, "rules: []", func(http.ResponseWriter, *http.Request) {}, func(o *pop.Options) {
			o.ClientConnections = 2
			if trusted {
				o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
			}
		})
		first, _ := w.dial("G")
		w.dial("G")
		await(t, "both connections count", func() bool { return w.metric("edge_connections") == 2 })
		_, r := w.dial(hello)
		resp, err := http.ReadResponse(r, nil)
		if served := err == nil && resp.StatusCode == http.StatusOK; served != trusted {
			t.Errorf("trusted=%v: the third connection: %v, %v", trusted, resp, err)
		}
		if trusted {
			continue
		}
		if n := w.metric("edge_connections_closed_total"); n != 1 {
			t.Errorf("%v connections were closed, want 1", n)
		}
		_ = first.Close()
		await(t, "a connection becomes free", func() bool { return w.metric("edge_connections") == 1 })
		_, r = w.dial(hello)
		if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("after one was closed: %v, %v", resp, err)
		}
	}
}

// When connections become scarce, those that wait after a refusal are closed. Those of clients that were not
// refused stay open.
func TestConnectionsOfRefusedClients(t *testing.T) {
	w := startWired(t, fivePerClient, func(http.ResponseWriter, *http.Request) {}, func(o *pop.Options) { o.Connections = 12 })
	innocent, answer := w.dial(hello)
	if resp, err := http.ReadResponse(answer, nil); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	w.refusedAfter(get("a.example"), http.StatusOK)
	await(t, "the earlier connections are closed", func() bool { return w.metric("edge_connections") == 1 })
	ends := make(chan error, 6)
	for range cap(ends) {
		_, r := w.dial(hello)
		if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != http.StatusTooManyRequests {
			t.Fatal(resp, err)
		}
		go func() {
			_, err := io.Copy(io.Discard, r)
			ends <- err
		}()
	}
	for range 3 {
		w.dial("G") // until more than three quarters are used
	}
	await(t, "refused connections end", func() bool {
		conn, _ := w.dial("G")
		_ = conn.Close()
		return len(ends) == cap(ends)
	})
	for range cap(ends) {
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
	_, _ = io.WriteString(innocent, hello)
	if resp, err := http.ReadResponse(answer, nil); err != nil || resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("the connection of a client that was not refused: %v, %v", resp, err)
	}
}

// The same holds for HTTP/2: the connections get GOAWAY and end.
func TestHTTP2ConnectionsOfRefusedClients(t *testing.T) {
	w := startWired(t, fivePerClient, func(http.ResponseWriter, *http.Request) {}, func(o *pop.Options) { o.Connections = 12 })
	ask := preface + frame(headers, endStream|endHeaders, 1, request)
	outcome := func(r io.Reader) string { // returns the next answer, or how the connection ends
		frames := http2.NewFramer(io.Discard, r)
		frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		for {
			f, err := frames.ReadFrame()
			if err != nil {
				return err.Error()
			}
			switch f := f.(type) {
			case *http2.MetaHeadersFrame:
				return f.PseudoValue("status")
			case *http2.GoAwayFrame:
				_, err := io.Copy(io.Discard, r)
				return fmt.Sprint(f.ErrCode, " ", err)
			}
		}
	}
	innocent, answer := w.dial(ask)
	if got := outcome(answer); got != "200" {
		t.Fatal(got)
	}
	w.refusedAfter(get("a.example"), http.StatusOK)
	await(t, "the earlier connections are closed", func() bool { return w.metric("edge_connections") == 1 })
	ends := make(chan string, 6)
	for range cap(ends) {
		_, r := w.dial(ask)
		if got := outcome(r); got != "429" {
			t.Fatal(got)
		}
		go func() { ends <- outcome(r) }()
	}
	for range 3 {
		w.dial("G") // until more than three quarters are used
	}
	await(t, "refused connections end", func() bool {
		conn, _ := w.dial("G")
		_ = conn.Close()
		return len(ends) == cap(ends)
	})
	for range cap(ends) {
		if got := <-ends; got != "NO_ERROR <nil>" {
			t.Error(got)
		}
	}
	await(t, "they make room", func() bool { return w.metric("edge_connections") <= 12/4*3 })
	_, _ = io.WriteString(innocent, frame(headers, endStream|endHeaders, 3, request))
	if got := outcome(answer); got != "429" {
		t.Errorf("the connection of a client that was not refused: %s", got)
	}
}

// After a refusal a connection may wait for a request only as long as for a header.
func TestIdleAfterRefusal(t *testing.T) {
	for host, want := range map[string]time.Duration{"a.example": time.Hour, "a:::": 7 * time.Second} {
		bubble.Test(t, func(t *testing.T) {
			p := startPiped(t, func(http.ResponseWriter, *http.Request) {}, func(o *pop.Options) {
				o.ReadHeaderTimeout, o.IdleTimeout = 7*time.Second, time.Hour
			})
			start := time.Now()
			_, r := p.connect(t, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
			_, _ = io.Copy(io.Discard, r)
			if took := time.Since(start); took != want {
				t.Errorf("%s: the connection ends after %v, want %v", host, took, want)
			}
		})
	}
}

// A client of the metrics listener that sends no body does not hold its connection.
func TestMetricsConnectionsEnd(t *testing.T) {
	n := startNode(t, "rules: []", func(o *pop.Options) {
		o.MetricsListen, o.ReadHeaderTimeout = "127.0.0.1:0", 100*time.Millisecond
	})
	conn, err := net.Dial("tcp", n.Addr("metrics").String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(conn, "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Error(err)
	}
}

// However few connections there may be, one client's idle ones do not keep others out.
func TestFewConnections(t *testing.T) {
	w := startWired(t, "rules: []", func(http.ResponseWriter, *http.Request) {}, func(o *pop.Options) { o.Connections = 4 })
	for range 4 {
		_, r := w.dial(hello)
		if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp, err)
		}
	}
	for range 20 {
		conn, r := w.dial(hello)
		resp, err := http.ReadResponse(r, nil)
		_ = conn.Close()
		if err == nil && resp.StatusCode == http.StatusOK {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Error("no other connection is served")
}
