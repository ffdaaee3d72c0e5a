package pop_test

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/pop"
)

// unfinished are beginnings of requests.
var unfinished = []struct {
	name, text string
	secure     bool // only for the listener for TLS
}{
	{name: "a byte", text: "G"},
	{name: "one long field", text: "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 60_000)},
	{name: "many fields", text: "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("a:\r\n", 250)},
	{name: "half a preface of HTTP/2", text: preface[:30]},
	{name: "half a frame", text: preface + frame(headers, endStream|endHeaders, 1, request)[:30]},
	{name: "half a frame of settings", text: preface + "\x00\x3f\xfc\x04\x00\x00\x00\x00\x00" + strings.Repeat("\x00\x03\x00\x00\x00\x01", 1000)},
	{name: "CONTINUATION", text: preface + frame(headers, endStream, 1, request) + strings.Repeat(frame(continuation, 0, 1, field("x", strings.Repeat("x", 10_000))), 5)},
	{name: "a hello of TLS", text: strings.Repeat("\x16\x03\x01\x20\x00"+"\x01\x00\xf0\x00"+strings.Repeat("x", 8188), 3), secure: true},
}

// serves reports whether the node answers a request from a client other than those of the attack.
func (w *wired) serves() bool {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 9, 9, 9)}}
	conn, err := d.Dial("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	text := "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX: " + strings.Repeat("x", 6000) + "\r\n\r\n"
	for _, part := range []string{text[:3000], text[3000:]} {
		_, _ = io.WriteString(conn, part)
	}
	answer, err := io.ReadAll(conn)
	return err == nil && strings.HasPrefix(string(answer), "HTTP/1.1 200 ")
}

// However many connections a client begins requests on, they hold no more memory than it may use, or all clients
// together if it is a trusted proxy. Others are served, and all memory is released in the end.
func TestMemoryOfUnfinishedRequests(t *testing.T) {
	const most, mostPerClient, connections = 512 << 10, 128 << 10, 120
	for _, trusted := range []bool{false, true} {
		for _, attack := range unfinished {
			w := startWired(t, "rules: []", func(http.ResponseWriter, *http.Request) {}, func(o *pop.Options) {
				o.HeaderMemory, o.ClientHeaderMemory, o.ReadHeaderTimeout = most, mostPerClient, time.Hour
				if trusted {
					o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
				}
			})
			addr, bound := w.addr, float64(mostPerClient)
			if attack.secure {
				addr = w.startTLS()
			}
			if trusted {
				bound = most
			}
			var all []net.Conn
			for range connections {
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, conn)
				_, _ = io.WriteString(conn, attack.text) // it may be closed meanwhile
				if n := w.metric("edge_header_memory_bytes"); n > bound {
					t.Errorf("%s, trusted=%v: connections hold %v bytes, want at most %v", attack.name, trusted, n, bound)
				}
			}
			await(t, attack.name+": the bound is reached", func() bool {
				return w.metric("edge_connections_closed_total") > 0 && w.metric("edge_header_memory_bytes") > bound/2 || attack.name == "a byte" && trusted
			})
			if !w.serves() {
				t.Errorf("%s, trusted=%v: another client is not served", attack.name, trusted)
			}
			for _, conn := range all {
				_ = conn.Close()
			}
			await(t, attack.name+": the memory is released", func() bool { return w.metric("edge_header_memory_bytes") == 0 })
		}
	}
}

// The connection that holds the most ends first, even if it was not the last one to ask for memory.
func TestLargestHolderEndsFirst(t *testing.T) {
	w := startWired(t, "rules: []", func(http.ResponseWriter, *http.Request) {}, func(o *pop.Options) {
		o.ClientHeaderMemory, o.ReadHeaderTimeout = 200<<10, time.Hour
	})
	begin := "GET / HTTP/1.1\r\nHost: a\r\nX: "
	largest, answer := w.dial(begin + strings.Repeat("x", 40_000)) // 64 KiB
	await(t, "it holds memory", func() bool { return w.metric("edge_header_memory_bytes") > 64<<10 })
	var others []net.Conn
	for w.metric("edge_connections_closed_total") == 0 {
		before := w.metric("edge_header_memory_bytes")
		conn, _ := w.dial(begin + strings.Repeat("x", 5000)) // 32 KiB
		others = append(others, conn)
		await(t, "another one holds memory", func() bool { return w.metric("edge_header_memory_bytes") != before })
	}
	if rest, err := io.ReadAll(answer); len(rest) > 0 {
		t.Errorf("the largest gets %q, %v; want EOF", rest, err)
	}
	_ = largest.Close()
	for i, conn := range others {
		_, _ = io.WriteString(conn, "\r\nConnection: close\r\n\r\n")
		if answer, err := io.ReadAll(conn); !strings.HasPrefix(string(answer), "HTTP/1.1 200 ") {
			t.Errorf("connection %d, which is smaller, gets %.20q, %v; want 200", i, answer, err)
		}
	}
}

// A request whose header arrives at once, and a connection without a request, hold nothing of the budget.
func TestOrdinaryRequestsHoldNothing(t *testing.T) {
	w := startWired(t, "rules: []", func(http.ResponseWriter, *http.Request) {}, func(o *pop.Options) { o.HeaderMemory, o.ClientHeaderMemory = 1, 1 })
	for range 3 {
		_, r := w.dial(hello)
		if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("HTTP/1.1: %v, %v; want 200", resp, err)
		}
	}
	conn, _ := w.dial(preface)
	for n := range uint32(3) {
		_, _ = io.WriteString(conn, frame(headers, endStream|endHeaders, 2*n+1, request))
	}
	await(t, "HTTP/2 is served", func() bool { return w.metric("edge_requests_total") == 6 })
	if n := w.metric("edge_connections_closed_total"); n != 0 {
		t.Errorf("%v connections were closed, want none", n)
	}
}
