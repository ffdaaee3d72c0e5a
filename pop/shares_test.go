package pop_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/pop"
)

// from connects to addr from one of the addresses of 127.0.0.0/8, and sends text.
func from(t *testing.T, host byte, addr, text string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, host)}}
	conn, err := d.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(conn, text) // the node may have closed the connection
	return conn
}

// However a pool is filled, by one address or by 17, another client is served at once and keeps its connection.
func TestClientsShareEachPool(t *testing.T) {
	const slow, long = "G", 40 << 10
	header := "GET / HTTP/1.1\r\nHost: a.example\r\nX: " + strings.Repeat("x", long)
	for _, pool := range []struct {
		name, full, asked, text string // text fills the listener full; the other client uses asked
		metric                  string // counts closed connections
	}{
		{"connections", "http", "http", slow, "edge_connections_closed_total/full"},
		{"silent connections", "http", "http", "", "edge_connections_closed_total/full"},
		{"idle connections", "http", "http", hello, "edge_connections_closed_total"},
		{"connections over SPOP", "spop", "http", "", "edge_connections_closed_total/full"},
		{"memory of headers", "http", "http", header, "edge_connections_closed_total/memory"},
		{"admin listener", "admin", "admin", "", "edge_operator_connections_closed_total/admin"},
		{"metrics listener", "metrics", "metrics", slow, "edge_operator_connections_closed_total/metrics"},
	} {
		t.Run(pool.name, func(t *testing.T) {
			w := startWired(t, "rules: []", func(http.ResponseWriter, *http.Request) {}, func(o *pop.Options) {
				o.AdminListen, o.MetricsListen, o.SPOPListen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
				o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.99/32")} // SPOP needs one
				o.Connections, o.ClientConnections, o.HeaderMemory, o.ClientHeaderMemory = 128, -1, 4<<20, -1
			})
			conn := from(t, 1, w.Addr(pool.asked).String(), "")
			answers := bufio.NewReader(conn)
			served := func(when string) {
				t.Helper()
				fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
				resp, err := http.ReadResponse(answers, nil)
				if err != nil {
					t.Fatalf("%s: %v", when, err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode >= 500 {
					t.Errorf("%s: %d, %v", when, resp.StatusCode, err)
				}
			}
			for n := range 600 {
				from(t, 2, w.Addr(pool.full).String(), pool.text)
				if n == 200 {
					served("while one address fills the pool")
				}
			}
			await(t, "the pool is full", func() bool { return w.metric(pool.metric) > 0 })
			for n := range 600 {
				from(t, byte(2+n%17), w.Addr(pool.full).String(), pool.text)
			}
			served("when 17 addresses fill the pool")
			conn = from(t, 1, w.Addr(pool.asked).String(), "")
			answers = bufio.NewReader(conn)
			served("over a new connection")
		})
	}
}
