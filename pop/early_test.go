package pop_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/edgelimit/edge/pop"
)

// The node's own answers do not wait for the request's body, which may never come, and close the connection.
func TestAnswersDoNotWaitForBodies(t *testing.T) {
	for _, tt := range []struct {
		name, rules, method, host string
		status                    int
	}{
		{"denied", "rules: []\ndeny: [127.0.0.0/8]", "POST", "a.example", http.StatusForbidden},
		{"a method that ends here", "rules: []", "TRACE", "a.example", http.StatusMethodNotAllowed},
		{"a bad host", "rules: []", "POST", "a,b", http.StatusBadRequest},
		{"no origin", "rules: []", "POST", "none.example", http.StatusMisdirectedRequest},
		{"mitigated", "rules: [{id: all, characteristics: [ip], limits: [{threshold: 1, period: 7d}]}]", "POST", "a.example", http.StatusTooManyRequests},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := startWired(t, tt.rules, nil, func(o *pop.Options) {
				o.HostOrigins = map[string]string{"a.example": "http://127.0.0.1:1"}
				o.BodyTimeout = time.Hour
			})
			if tt.status == http.StatusTooManyRequests {
				w.refusedAfter(get("a.example"), http.StatusBadGateway)
			}
			for _, rest := range []string{
				"Content-Length: 10\r\n\r\n", "Content-Length: 10\r\n\r\nhalf", "Content-Length: 10000000\r\n\r\nhalf",
				"Transfer-Encoding: chunked\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n5\r\nhalf", "Content-Length: 10\r\nExpect: 100-continue\r\n\r\n",
			} {
				conn, r := w.dial(fmt.Sprintf("%s / HTTP/1.1\r\nHost: %s\r\n%s", tt.method, tt.host, rest))
				resp, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatalf("%q: %v", rest, err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				if resp.StatusCode != tt.status || !resp.Close {
					t.Errorf("%q: %s, the last of its connection: %t; want %d, true", rest, resp.Status, resp.Close, tt.status)
				}
				if _, err := io.Copy(io.Discard, r); err != nil {
					t.Errorf("%q: after the answer: %v, want EOF", rest, err)
				}
				_ = conn.Close()
			}
			// If the whole body has arrived, the connection stays open.
			_, r := w.dial(fmt.Sprintf("%s / HTTP/1.1\r\nHost: %s\r\nContent-Length: 4\r\n\r\nbody", tt.method, tt.host))
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.status || resp.Close {
				t.Errorf("with its body: %s, the last of its connection: %t; want %d, false", resp.Status, resp.Close, tt.status)
			}
		})
	}
}

// A client that sends its whole body before it reads gets the answer, although the node discards the body.
func TestAnswersReachClientsThatSend(t *testing.T) {
	w := startWired(t, "rules: []\ndeny: [127.0.0.0/8]", nil, func(o *pop.Options) { o.Origin = "http://127.0.0.1:1" })
	for n := range 6 {
		conn, r := w.dial(fmt.Sprintf("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: %d\r\n\r\n", 150_000+n%2*1_000_000))
		for range 10 { // fits into the buffers of the sockets
			_, _ = conn.Write(make([]byte, 10_000))
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s, want 403", resp.Status)
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			t.Errorf("after the answer: %v, want EOF", err)
		}
		_ = conn.Close()
	}
}
