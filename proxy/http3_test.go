package proxy_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/proxy"
	"github.com/edgelimit/edge/proxy/http1"
)

// listenBoth listens on a port that is free for both TCP and UDP.
func listenBoth(t testing.TB) (ln net.Listener, socket net.PacketConn) {
	t.Helper()
	harness.Until(t, "a port is free for TCP and UDP", time.Minute, 0, func() bool {
		var err error
		if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		if socket, err = net.ListenPacket("udp", ln.Addr().String()); err != nil {
			_ = ln.Close()
		}
		return err == nil
	})
	return ln, socket
}

// listenHTTP3 starts a server for p that speaks HTTP/3 over socket.
func listenHTTP3(t testing.TB, p *proxy.Proxy, socket net.PacketConn, limits http1.Limits) {
	t.Helper()
	certified := httptest.NewUnstartedServer(nil)
	t.Cleanup(certified.Close)
	certified.StartTLS()
	limits.ReadHeaderTimeout, limits.IdleTimeout, limits.MaxHeaderBytes = 10*time.Second, time.Hour, cmp.Or(limits.MaxHeaderBytes, 1<<20)
	limits.MaxStreams, limits.MaxOverhead = 128, 1000
	s, err := p.NewHTTP3(socket, certified.TLS, http1.Options{Limits: limits, Handler: p})
	if err != nil {
		t.Fatal(err)
	}
	http3Addrs.Store(socket.LocalAddr().String(), true)
	go s.Run()
	t.Cleanup(func() {
		http3Addrs.Delete(socket.LocalAddr().String()) // another test's server may get the port
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Shutdown(ctx)
	})
}

// http3Addrs are the addresses at which a node speaks HTTP/3.
var http3Addrs sync.Map

// An overHTTP3 sends requests over HTTP/3, whatever the scheme of their URLs is, if the address is one of http3Addrs.
type overHTTP3 struct {
	*http3.Transport
	other http.RoundTripper
}

func (o overHTTP3) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, ok := http3Addrs.Load(r.URL.Host); !ok {
		return o.other.RoundTrip(r)
	}
	sent := *r
	to := *r.URL
	to.Scheme = "https"
	sent.URL = &to
	return o.Transport.RoundTrip(&sent)
}

func newHTTP3(t testing.TB, other http.RoundTripper) http.RoundTripper {
	tr := &http3.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableCompression: true,
		QUICConfig: &quic.Config{HandshakeIdleTimeout: patience, MaxIdleTimeout: patience},
	}
	t.Cleanup(func() { _ = tr.Close() })
	return overHTTP3{tr, other}
}

// overTCP returns a client that does not speak HTTP/3.
func overTCP(t testing.TB) *http.Client {
	c := client(t)
	if o, ok := c.Transport.(overHTTP3); ok {
		c.Transport = o.other
	}
	return c
}
