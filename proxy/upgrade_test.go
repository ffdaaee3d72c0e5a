package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/edgelimit/edge/proxy"
)

// A panicky is a connection to an origin. Writing to it panics if the data contains "panic".
type panicky struct{ net.Conn }

func (p panicky) Write(data []byte) (int, error) {
	if bytes.Contains(data, []byte("panic")) {
		panic("as the client wants")
	}
	return p.Conn.Write(data)
}

// A stopping node does not wait for an upgraded connection that has ended, even if it has ended with a panic.
func TestUpgradedConnectionsEnd(t *testing.T) {
	for _, last := range []string{"panic\n", "bye\n"} {
		back := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, in, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_, _ = in.ReadString('\n')
		}))
		p, log := newProxy(t, noRules, back.URL, func(o *proxy.Options) {
			o.Origins.Default.RelayBy(func() (net.Conn, error) {
				conn, err := net.Dial("tcp", strings.TrimPrefix(back.URL, "http://"))
				return panicky{conn}, err
			})
		})
		conn := dialRaw(t, serveProxy(t, p))
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		r := bufio.NewReader(conn)
		if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%+v, %v; want 101", resp, err)
		}
		fmt.Fprint(conn, last)
		if _, err := io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		now, cancel := context.WithCancel(t.Context())
		cancel()
		if last == "bye\n" {
			now = t.Context() // the client may notice the end before the node does
		}
		if err := p.Drain(now); err != nil || strings.Contains(log.String(), "closing upgraded connections") {
			t.Errorf("after %q: %v, the log is %q", last, err, log)
		}
	}
}

// An ending is a connection to an origin that reports when it is closed.
type ending struct {
	*net.TCPConn
	ended chan struct{}
	once  *sync.Once
}

func (e ending) Close() error {
	e.once.Do(func() { close(e.ended) })
	return e.TCPConn.Close()
}

// When the time to drain is over, both sides of an upgraded connection are closed, even if the client has shut down its own.
func TestUpgradedConnectionsAreEnded(t *testing.T) {
	half := make(chan struct{})
	back := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, in, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = in.ReadString('\n')
		close(half)
	}))
	ended := make(chan struct{})
	p, _ := newProxy(t, noRules, back.URL, func(o *proxy.Options) {
		o.Origins.Default.RelayBy(func() (net.Conn, error) {
			conn, err := net.Dial("tcp", strings.TrimPrefix(back.URL, "http://"))
			if err != nil {
				return nil, err
			}
			return ending{conn.(*net.TCPConn), ended, new(sync.Once)}, nil
		})
	})
	conn := dialRaw(t, serveProxy(t, p))
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%+v, %v; want 101", resp, err)
	}
	_ = conn.(*net.TCPConn).CloseWrite()
	<-half
	now, cancel := context.WithCancel(t.Context())
	cancel()
	_ = p.Drain(now)
	<-ended
}
