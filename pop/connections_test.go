package pop_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/pop"
)

const hello = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"

// A connection that exceeds the maximum of its client replaces the client's oldest one. Trusted proxies have no such maximum.
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
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("trusted=%v: the third connection: %v, %v", trusted, resp, err)
		}
		if trusted {
			continue
		}
		if _, err := io.Copy(io.Discard, first); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the first connection: %v", err)
		}
		if n := w.metric("edge_connections_closed_total/client"); n != 1 {
			t.Errorf("%v connections were closed, want 1", n)
		}
	}
}

// scarce opens connections until more than three quarters of 12 are used.
func (w *wired) scarce() {
	for range 9 {
		w.dial("G")
	}
	await(w.t, "connections are scarce", func() bool { return w.metric("edge_connections") == 10 })
}

// When connections become scarce, refusals close their connections. Those of clients that were not refused stay open.
func TestConnectionsOfRefusedClients(t *testing.T) {
	w := startWired(t, fivePerClient, func(http.ResponseWriter, *http.Request) {}, func(o *pop.Options) { o.Connections = 12 })
	innocent, answer := w.dial(hello)
	if resp, err := http.ReadResponse(answer, nil); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	w.refusedAfter(get("a.example"), http.StatusOK)
	await(t, "the earlier connections are closed", func() bool { return w.metric("edge_connections") == 1 })
	w.scarce()
	_, r := w.dial(hello)
	if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != http.StatusTooManyRequests || !resp.Close {
		t.Errorf("a refused connection: %+v, %v", resp, err)
	}
	_, _ = io.WriteString(innocent, hello)
	if resp, err := http.ReadResponse(answer, nil); err != nil || resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("the connection of a client that was not refused: %v, %v", resp, err)
	}
}

// The same holds for HTTP/2: the connections get GOAWAY.
func TestHTTP2ConnectionsOfRefusedClients(t *testing.T) {
	w := startWired(t, fivePerClient, func(http.ResponseWriter, *http.Request) {}, func(o *pop.Options) { o.Connections = 12 })
	ask := preface + frame(headers, endStream|endHeaders, 1, request)
	outcome := func(r io.Reader) string { // returns the next answer, or the code of GOAWAY
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
				return f.ErrCode.String()
			}
		}
	}
	innocent, answer := w.dial(ask)
	if got := outcome(answer); got != "200" {
		t.Fatal(got)
	}
	w.refusedAfter(get("a.example"), http.StatusOK)
	await(t, "the earlier connections are closed", func() bool { return w.metric("edge_connections") == 1 })
	w.scarce()
	_, r := w.dial(ask)
	if first, next := outcome(r), outcome(r); first != "NO_ERROR" || next != "429" {
		t.Errorf("a refused connection: %s, %s", first, next)
	}
	_, _ = io.WriteString(innocent, frame(headers, endStream|endHeaders, 3, request))
	if first, next := outcome(answer), outcome(answer); first != "NO_ERROR" || next != "429" {
		t.Errorf("the connection of a client that was not refused before: %s, %s", first, next)
	}
}

// After a refusal, a connection may wait for a request only as long as a header may take.
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
	for range 5 {
		_, r := w.dial(hello)
		if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp, err)
		}
	}
}
