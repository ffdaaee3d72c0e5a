package http1_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A heldConn is a connection that can hold back what is written, to send it all at once.
type heldConn struct {
	net.Conn
	holds bool
	held  []byte
}

func (h *heldConn) Write(b []byte) (int, error) {
	if h.holds {
		h.held = append(h.held, b...)
		return len(b), nil
	}
	return h.Conn.Write(b)
}

type heldListener struct{ net.Listener }

func (l heldListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return &heldConn{Conn: conn}, err
}

// No client gets an answer that a faulty origin has sent without being asked, whether it arrives with the one before or
// after it.
func TestUnaskedAnswers(t *testing.T) {
	for _, protocol := range []string{"http", "https"} {
		for _, together := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, together %t", protocol, together), func(t *testing.T) {
				send, sent := make(chan bool, 1), make(chan bool)
				back := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path != "/faulty" {
						_, _ = io.WriteString(w, r.URL.Path)
						return
					}
					conn, _, _ := http.NewResponseController(w).Hijack()
					below, _ := conn.(*heldConn)
					if secure, ok := conn.(*tls.Conn); ok {
						below = secure.NetConn().(*heldConn)
					}
					below.holds = together
					for i := range 2 {
						if i > 0 && !together {
							<-send
						}
						_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n/faulty")
					}
					_, _ = below.Conn.Write(below.held)
					sent <- true
				}))
				defer back.Close()
				back.Listener = heldListener{back.Listener}
				if protocol == "https" {
					back.StartTLS()
				} else {
					back.Start()
				}
				conn := dial(t, serve(t, relay{http2Origin(protocol, back.Listener.Addr().String())}))
				in := bufio.NewReader(conn)
				for _, path := range []string{"/faulty", "/1", "/2"} {
					fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path)
					resp, err := http.ReadResponse(in, nil)
					if err != nil {
						t.Fatal(err)
					}
					if body, _ := io.ReadAll(resp.Body); string(body) != path {
						t.Fatalf("the answer to %s is that to %s", path, body)
					}
					if path == "/faulty" {
						send <- true
						<-sent
					}
				}
			})
		}
	}
}
