package http1_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/proxy/conns"
	"github.com/edgelimit/edge/proxy/http1"
)

// A relay passes everything on, but refuses paths that begin with /refused.
type relay struct{ origin *http1.Origin }

func (h relay) Serve(c http1.Asker, r *http1.Request) (*http1.Origin, http1.Relay) {
	if strings.HasPrefix(string(r.Path()), "/refused") {
		c.Refuse(false)
		c.Answer(429, []byte("Retry-After: 1\r\n"), "slow down\n")
		return nil, nil
	}
	return h.origin, passing{c: c, r: r}
}

// A passing is a request that passes. If it fails, the client gets the error.
type passing struct {
	plain
	c http1.Asker
	r *http1.Request
}

func (p passing) Relayed(err error) {
	if err == nil {
		return
	}
	status := 502
	if err.(*http1.RelayError).Client {
		status = 400
	}
	p.c.Answer(status, nil, err.Error()+"\n")
}

func (relay) Malformed(_ netip.Addr, err *http1.Error) (fields []byte, status int, body string, end bool) {
	return nil, err.Status, err.Text + "\n", true
}

type plain struct{}

func (plain) Keeps(*http1.Field, []byte) bool { return true }
func (plain) KeepsTrailer([]byte) bool        { return true }
func (plain) Hasty() bool                     { return false }
func (plain) Gone(func()) bool                { return false }
func (plain) AppendRequest(dst []byte) []byte { return append(dst, "X-Via: edge\r\n"...) }
func (plain) Body([]byte, bool)               {}
func (plain) Answered(dst []byte, _ *http1.Answer) ([]byte, bool) {
	return append(dst, "X-Node: n1\r\n"...), true
}

// patience is how long a test waits for something that must happen. No test depends on its length.
const patience = 2 * time.Minute

// awaitClosed waits until ch is closed or sent to.
func awaitClosed(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
}

// start serves clients with an engine in front of an origin, and returns its address.
func start(t *testing.T, origin http.Handler) string {
	t.Helper()
	back := httptest.NewServer(origin)
	t.Cleanup(back.Close)
	o := http1.NewOrigin(dialer(back.Listener.Addr().String()), patience)
	t.Cleanup(o.Close)
	return serve(t, relay{o})
}

func serve(t *testing.T, h http1.Handler) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := http1.NewServer(http1.Options{Handler: h, Tunnels: new(conns.Set[*http1.Conn]), Limits: http1.Limits{ReadHeaderTimeout: time.Hour, IdleTimeout: time.Hour, BodyTimeout: time.Hour, MaxHeaderBytes: 64 << 10}})
	go accept(s, ln)
	t.Cleanup(func() {
		_ = ln.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Shutdown(ctx)
	})
	return ln.Addr().String()
}

// accept serves the connections of ln until it is closed.
func accept(s *http1.Server, ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		go s.Accept(conn, http1.Start{Since: time.Now()})()
	}
}

func TestBodies(t *testing.T) {
	addr := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		if _, err := io.Copy(w, r.Body); err != nil {
			t.Error(err)
		}
	}))
	for _, n := range []int{0, 1, 4000, 4096, 8191, 50_000, 500_000} {
		for _, chunked := range []bool{false, true} {
			body := strings.Repeat("0123456789abcdef", n/16+1)[:n]
			var r io.Reader = strings.NewReader(body)
			if chunked {
				r = bufio.NewReader(r)
			}
			resp, err := http.Post("http://"+addr+"/", "text/plain", r)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || string(got) != body {
				t.Errorf("n=%d chunked=%v: got %d bytes, %v", n, chunked, len(got), err)
			}
		}
	}
}

// dialer returns a function that connects to addr.
func dialer(addr string) func() (net.Conn, error) {
	return func() (net.Conn, error) { return net.Dial("tcp", addr) }
}
