package harness

import (
	"bufio"
	"context"
	"net"
	"net/http"
)

// Origin returns a dial function for an origin that answers each request as t does, over pipes. If t fails, the origin
// closes the connection.
func Origin(t http.RoundTripper) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			for in := bufio.NewReader(far); ; {
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				r.URL.Scheme, r.URL.Host, r.RequestURI = "http", r.Host, ""
				resp, err := t.RoundTrip(r)
				if err != nil {
					return
				}
				resp.ProtoMajor, resp.ProtoMinor = 1, 1
				out := bufio.NewWriter(far)
				if resp.Write(out) != nil || out.Flush() != nil || r.Body.Close() != nil {
					return
				}
			}
		}()
		return near, nil
	}
}
