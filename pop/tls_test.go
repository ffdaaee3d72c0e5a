package pop_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/edgelimit/edge/proxy/conns"
)

// startTLS makes w serve TLS, and returns the address.
func (w *wired) startTLS() string {
	w.t.Helper()
	s := httptest.NewUnstartedServer(nil) // for its certificate
	s.StartTLS()
	certificates := s.TLS.Certificates
	s.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.Serve(tls.NewListener(conns.Greetings(ln), &tls.Config{Certificates: certificates, NextProtos: []string{"h2", "http/1.1"}})); err != nil {
		w.t.Fatal(err)
	}
	return ln.Addr().String()
}

// Over TLS clients can use either protocol, and the origin is told that they use TLS.
func TestTLS(t *testing.T) {
	w := startWired(t, "rules: []", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("X-Forwarded-Proto"))
	}, nil)
	addr := w.startTLS()
	for http2, want := range map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"} {
		tr := &http.Transport{ForceAttemptHTTP2: http2, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		t.Cleanup(tr.CloseIdleConnections)
		resp, err := (&http.Client{Transport: tr}).Get("https://" + addr)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.Proto != want || string(body) != "https" {
			t.Errorf("%s, the origin got %q; want %s, https", resp.Proto, body, want)
		}
	}
}

// A listener with TLS counts malformed requests, and requests that are not encrypted.
func TestTLSListenerCountsMalformedRequests(t *testing.T) {
	for name, secure := range map[string]bool{"over TLS": true, "without TLS": false} {
		t.Run(name, func(t *testing.T) {
			w := startWired(t, fivePerClient, func(http.ResponseWriter, *http.Request) {}, nil)
			addr := w.startTLS()
			for n := range 6 {
				var conn net.Conn
				var err error
				if secure {
					conn, err = tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
				} else {
					conn, err = net.Dial("tcp", addr)
				}
				if err != nil {
					t.Fatal(err)
				}
				text := "GET / HTTP/1.1\r\n\r\n"
				_, _ = io.WriteString(conn, text)
				if answer, _ := io.ReadAll(conn); len(answer) < 12 || string(answer[9:12]) != "400" {
					t.Errorf("request %d: %q, want 400", n, answer)
				}
				_ = conn.Close()
			}
			w.mitigated()
		})
	}
}
