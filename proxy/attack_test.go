package proxy_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/bubble"
)

// dialRaw connects to the server at url. Reads fail after patience.
func dialRaw(t *testing.T, url string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

const patience = 2 * time.Minute

// h2Request returns the frames of a request, with header fields as they are given.
func h2Request(fields ...[2]string) string {
	var block strings.Builder
	for _, f := range fields {
		block.WriteByte(0) // a literal that is not indexed
		for _, text := range f {
			block.WriteByte(byte(len(text)))
			block.WriteString(text)
		}
	}
	frame := func(kind, flags byte, stream uint32, payload string) string {
		h := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
		return string(binary.BigEndian.AppendUint32(h, stream)) + payload
	}
	const settings, headers, endStreamAndHeaders = 4, 1, 5
	return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(settings, 0, 0, "") + frame(headers, endStreamAndHeaders, 1, block.String())
}

// A request is refused if the origin would see a different one than the rules do: if net/url treats
// its target as opaque, or if the transport would convert its host.
func TestTargetsThatOriginsReadDifferently(t *testing.T) {
	reached := make(chan string, 100)
	p, _ := newProxy(t, noRules, serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		reached <- r.Host + r.URL.String()
	})).URL, nil)
	url := serveProxy(t, p)
	for _, target := range []string{
		"x:http://shop.example/login",
		"http://b\u00fccher.example/login",
		"http://%EF%BD%93hop.example/login", // a fullwidth s
		"http://shop%E3%80%82example/login", // an ideographic full stop
		"http://[::1%25x]/login",
		"http://a@b%40shop.example/login",
	} {
		conn := dialRaw(t, url)
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: other.example\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", target)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", target, err)
		}
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s, want 400", target, resp.Status)
		}
	}
	for _, test := range []struct{ authority, path string }{
		{"other.example", "x:http://shop.example/login"},
		{"b\u00fccher.example", "/login"},
		{"[::1%x]", "/login"},
		{"shop.example:80:90", "/login"},
		{"shop.example,x", "/login"},
		{"shop.example:::", "/login"},
	} {
		conn := dialRaw(t, serveHTTP2(t, p, false))
		if _, err := io.WriteString(conn, h2Request([2]string{":method", "POST"}, [2]string{":scheme", "http"},
			[2]string{":authority", test.authority}, [2]string{":path", test.path})); err != nil {
			t.Fatal(err)
		}
		// The answer, or the end of the stream, comes after the server's settings.
		for read := false; !read; {
			var h [9]byte
			if _, err := io.ReadFull(conn, h[:]); err != nil {
				t.Fatalf("%+v: %v", test, err)
			}
			_, _ = io.CopyN(io.Discard, conn, int64(h[0])<<16|int64(h[1])<<8|int64(h[2]))
			read = binary.BigEndian.Uint32(h[5:]) == 1
		}
		conn.Close()
	}
	close(reached)
	for got := range reached {
		t.Errorf("the origin served %s", got)
	}
}

// Clients that do not read the answers are disconnected, whether they are refused or not. A pipe buffers nothing; a
// socket would buffer as much as the machine allows.
func TestRefusedAndUnread(t *testing.T) {
	for _, rules := range []string{noRules, "rules: []\ndeny: [127.0.0.0/8]"} {
		bubble.Test(t, func(t *testing.T) {
			c := piped(t, rules, false, ok)
			conn, err := c.Transport.(*http.Transport).DialContext(t.Context(), "tcp", "a.example:80")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(time.Hour))
			for err == nil {
				_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: the connection is still open", rules)
			}
		})
	}
}

// After a 408, or if the origin answers before it has the body, a client that sends no more
// does not keep the connection open.
func TestUnfinishedBodyClosesTheConnection(t *testing.T) {
	for name, origin := range map[string]http.HandlerFunc{
		"the origin waits": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			ok(w, r)
		},
		"the origin answers": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		},
	} {
		conn := dialRaw(t, frontWithin(t, 100*time.Millisecond, origin))
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 10\r\n\r\nx")
		if _, err := io.ReadAll(conn); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An answer that comes before the request's end announces that the connection closes: net/http
// would panic if the rest of the body followed.
func TestEarlyAnswerCloses(t *testing.T) {
	origin, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer origin.Close()
	go func() {
		conn, err := origin.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
	}()
	p, _ := newProxy(t, noRules, "http://"+origin.Addr().String(), nil)
	conn := dialRaw(t, serveProxy(t, p))
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 10\r\n\r\nx")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusUnauthorized || !resp.Close {
		t.Errorf("%s, close %t; want 401, true", resp.Status, resp.Close)
	}
}

// The node forwards no upgrade to HTTP or TLS: requests over it would reach the origin uncounted.
func TestUpgradeThatHidesRequestsIsNotPassedOn(t *testing.T) {
	for _, upgrade := range []string{"h2c", "H2C", "websocket, h2c", "h2c-14", "HTTP/2.0", "TLS/1.0", "tls", "TLS/1.2, HTTP/1.1", "websocket,TLS/1.3"} {
		got := make(chan http.Header, 1)
		url := front(t, noRules, func(w http.ResponseWriter, r *http.Request) {
			got <- r.Header
			ok(w, r)
		}, nil)
		conn := dialRaw(t, url)
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: %s\r\nHTTP2-Settings: AAMAAABk\r\n\r\n", upgrade)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if h := <-got; resp.StatusCode != http.StatusOK || h.Get("Upgrade") != "" || h.Get("Connection") != "" || h.Get("HTTP2-Settings") != "" {
			t.Errorf("Upgrade: %s: %s, the origin got %v; want 200 and no upgrade", upgrade, resp.Status, h)
		}
	}
}
