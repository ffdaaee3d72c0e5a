package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	proxyproto "github.com/pires/go-proxyproto"

	"github.com/edgelimit/edge/internal/harness"
)

// newOrigin starts a site that answers with a description of the request. Below /ws it echoes messages.
func newOrigin(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ws" {
			echo(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s\nX-Forwarded-For: %s\n%s", r.Method, r.URL, r.Proto, r.Header.Get("X-Forwarded-For"), body)
	}))
	t.Cleanup(s.Close)
	return s
}

// echo sends back what a WebSocket receives, until it is closed.
func echo(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer c.CloseNow()
	for {
		kind, message, err := c.Read(r.Context())
		if err != nil {
			return
		}
		if err := c.Write(r.Context(), kind, message); err != nil {
			return
		}
	}
}

// A certificate is self-signed, for 127.0.0.1.
type certificate struct {
	cert, key string // PEM
	pool      *x509.CertPool
}

func newCertificate(t *testing.T, name string) certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c := certificate{
		cert: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		key:  string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
		pool: x509.NewCertPool(),
	}
	c.pool.AppendCertsFromPEM([]byte(c.cert))
	return c
}

// client returns a client that speaks the given protocols and trusts c.
func client(t *testing.T, c certificate, set func(*http.Protocols)) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: c.pool}, Protocols: new(http.Protocols)}
	set(transport.Protocols)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

func TestNodeProtocols(t *testing.T) {
	t.Parallel()
	own := newCertificate(t, "edge")
	dir := t.TempDir()
	write(t, dir+"/cert.pem", own.cert)
	write(t, dir+"/key.pem", own.key)
	n := startNode(t, generous, "--origin="+newOrigin(t).URL, "--tls-listen=127.0.0.1:0", "--tls-cert="+dir+"/cert.pem", "--tls-key="+dir+"/key.pem")
	for _, row := range []struct {
		name, url string
		protocols func(*http.Protocols)
		proto     string
	}{
		{"HTTP/1.1", "http://" + n.http, func(p *http.Protocols) { p.SetHTTP1(true) }, "HTTP/1.1"},
		{"HTTP/1.1 over TLS", "https://" + n.https, func(p *http.Protocols) { p.SetHTTP1(true) }, "HTTP/1.1"},
		{"HTTP/2 over TLS", "https://" + n.https, func(p *http.Protocols) { p.SetHTTP2(true) }, "HTTP/2.0"},
		{"HTTP/2 with prior knowledge", "http://" + n.http, func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }, "HTTP/2.0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			resp, err := client(t, own, row.protocols).Post(row.url+"/path?q=1", "text/plain", strings.NewReader("a body"))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if want := "POST /path?q=1 HTTP/1.1\nX-Forwarded-For: 127.0.0.1\na body"; string(body) != want {
				t.Errorf("body %q, want %q", body, want)
			}
			if resp.Proto != row.proto {
				t.Errorf("protocol %s, want %s", resp.Proto, row.proto)
			}
			if got := resp.Header["Ratelimit-Policy"]; len(got) != 1 || got[0] != `"all";q=100000;w=60` {
				t.Errorf("RateLimit-Policy %q", got)
			}
		})
	}
	t.Run("WebSocket", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		ws, _, err := websocket.Dial(ctx, "ws://"+n.http+"/ws", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer ws.CloseNow()
		for _, message := range []string{"one", strings.Repeat("two ", 5000)} {
			if err := ws.Write(ctx, websocket.MessageText, []byte(message)); err != nil {
				t.Fatal(err)
			}
			if _, got, err := ws.Read(ctx); err != nil || string(got) != message {
				t.Fatalf("echo of %d bytes: %d bytes, %v", len(message), len(got), err)
			}
		}
		if err := ws.Close(websocket.StatusNormalClosure, ""); err != nil {
			t.Error(err)
		}
	})
	n.Terminate()
}

// The client of a request is the peer, or the client that a trusted proxy names.
func TestNodeClient(t *testing.T) {
	severalAddresses(t)
	t.Parallel()
	const trusted, stranger = "127.0.0.50", "127.0.0.60"
	n := startNode(t, generous, "--origin="+newOrigin(t).URL, "--trusted-proxy=::ffff:127.0.0.50", "--trusted-proxy=::ffff:127.0.0.51/128", "--proxy-protocol", "--access-log")
	header := func(version byte) string {
		h := proxyproto.HeaderProxyFromAddrs(version, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 7}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80})
		text, err := h.Format()
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	local, err := (&proxyproto.Header{Version: 2, Command: proxyproto.LOCAL}).Format()
	if err != nil {
		t.Fatal(err)
	}
	v6 := "PROXY TCP6 2001:db8::7 2001:db8::1 7 80\r\n"
	const xff = "X-Forwarded-For: 203.0.113.9, 198.51.100.3, 127.0.0.51\r\n"
	for i, row := range []struct {
		name, peer, before, headers string
		status                      int
		client                      string
	}{
		{"trusted peer without a header", trusted, "", "", 200, trusted},
		{"PROXY version 1 by a trusted peer", trusted, header(1), "", 200, "192.0.2.7"},
		{"PROXY version 2 by a trusted peer", trusted, header(2), "", 200, "192.0.2.7"},
		{"PROXY of an IPv6 client", trusted, v6, "", 200, "2001:db8::7"},
		{"PROXY LOCAL, a health check", trusted, string(local), "", 200, trusted},
		{"PROXY version 1 by a stranger", stranger, header(1), "", 400, ""},
		{"PROXY version 2 by a stranger", stranger, header(2), "", 400, ""},
		{"X-Forwarded-For by a trusted peer", trusted, "", xff, 200, "198.51.100.3"},
		{"X-Forwarded-For by a stranger", stranger, "", xff, 200, stranger},
		{"X-Forwarded-For of a client that PROXY names", trusted, header(1), xff, 200, "192.0.2.7"},
	} {
		t.Run(row.name, func(t *testing.T) {
			mark := n.Stderr.Len()
			conn, err := dialer(row.peer).Dial("tcp", n.http)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "%sGET /%d HTTP/1.1\r\nHost: app.example.com\r\n%sConnection: close\r\n\r\n", row.before, i, row.headers)
			status, _ := rawAnswer(t, conn)
			if status != row.status {
				t.Fatalf("status %d, want %d", status, row.status)
			}
			if row.client != "" {
				m := n.WaitSince(n.Stderr, mark, fmt.Sprintf(`msg=request client=(\S+) .* uri=/%d `, i))
				if m[1] != row.client {
					t.Errorf("client %s, want %s", m[1], row.client)
				}
			}
		})
	}
	n.Terminate()
}

// rawAnswer returns the status and body of the next answer on conn. The status is 0 if the connection is closed
// without an answer.
func rawAnswer(t *testing.T, conn net.Conn) (status int, body string) {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(patience))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
			t.Fatal("the connection is neither answered nor closed")
		}
		return 0, ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// An origin that is down is logged once, not with every request.
func TestNodeOriginDown(t *testing.T) {
	t.Parallel()
	n := startNode(t, generous, "--origin=http://"+harness.ReservePort(t))
	const requests = 50
	for range requests {
		if a := get(t, http.DefaultClient, "http://"+n.http+"/"); a.StatusCode != http.StatusBadGateway || a.body != "the origin cannot be reached\n" {
			t.Fatalf("%s %q", a.Status, a.body)
		}
	}
	n.Wait(n.Stderr, `level=WARN msg="origin failed" origin=http://\S+ err="dial tcp [^"]*refused"`)
	if lines := strings.Count(n.Stderr.String(), "origin failed"); lines > requests/2 {
		t.Errorf("%d lines about %d requests", lines, requests)
	}
	if got := value(t, metrics(t, n.metrics), "edge_origin_failures_total", "reason", "unreachable"); got != requests {
		t.Errorf("edge_origin_failures_total = %v, want %d", got, requests)
	}
	n.Terminate()
}

// A node starts without its shards, and reports those that do not answer.
func TestNodeWithoutShards(t *testing.T) {
	t.Parallel()
	dead := harness.ReservePort(t)
	origin := newOrigin(t)
	web := netip.MustParseAddrPort(strings.TrimPrefix(origin.URL, "http://")).String()
	garbage, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer garbage.Close()
	go func() {
		for conn, err := garbage.Accept(); err == nil; conn, err = garbage.Accept() {
			_, _ = io.WriteString(conn, strings.Repeat("garbage", 50))
		}
	}()
	n := startNode(t, oneAWeek, "--origin="+origin.URL, "--shard="+dead+","+web+","+garbage.Addr().String(), "--secret=0123456789abcdef")
	n.Wait(n.Stderr, `err="not a memcached: it answers [^ ]*garbage`)
	n.Wait(n.Stderr, `level=WARN msg="shard does not answer; until it does, each node counts its keys alone" shard=`+regexp.QuoteMeta(dead)+` err="dial tcp [^"]*refused"\n`)
	n.Wait(n.Stderr, `msg="shard does not answer[^"]*" shard=`+regexp.QuoteMeta(web)+` err="not a memcached: it answers .*400 Bad Request`)
	exceed(t, n)
	n.Terminate()
}

// A node without shards reports that it counts alone.
func TestNodeAlone(t *testing.T) {
	t.Parallel()
	n := startNode(t, oneAWeek, "--origin="+newOrigin(t).URL)
	n.Wait(n.Stderr, `no shards configured: this node counts alone`)
	exceed(t, n)
	n.Terminate()
}

// Input that is not a request does no harm.
func TestNodeGarbage(t *testing.T) {
	t.Parallel()
	own := newCertificate(t, "edge")
	dir := t.TempDir()
	write(t, dir+"/cert.pem", own.cert)
	write(t, dir+"/key.pem", own.key)
	startWith := func(timeout string) *node {
		return startNode(t, generous, "--origin="+newOrigin(t).URL, "--tls-listen=127.0.0.1:0", "--tls-cert="+dir+"/cert.pem", "--tls-key="+dir+"/key.pem",
			"--read-header-timeout="+timeout, "--max-header-bytes=8192")
	}
	n, hasty := startWith("1m"), startWith("10s")
	hello := clientHello(t)
	noise := make([]byte, 4096)
	_, _ = rand.Read(noise)
	for _, row := range []struct {
		name, addr string
		sent       string
		status     int // 0 if the connection is closed without an answer
	}{
		{"nothing", hasty.http, "", 0},
		{"nothing, TLS", hasty.https, "", 0},
		{"nothing, metrics", hasty.metrics, "", 0},
		{"half a line", hasty.http, "GET / HT", 408},
		{"half a header", hasty.http, "GET / HTTP/1.1\r\nHost: a\r\nX-", 408},
		{"not HTTP", n.http, "hello\r\n\r\n", 400},
		{"no host", n.http, "GET / HTTP/1.1\r\n\r\n", 400},
		{"not HTTP, metrics", n.metrics, "hello, is there anybody who listens?\r\n\r\n", 400},
		{"noise, TLS", n.https, "\x00" + string(noise), 0},
		{"TLS to the HTTP port", n.http, hello + "\r\n\r\n", 400},
		{"HTTP to the TLS port", n.https, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"oversized header", n.http, "GET / HTTP/1.1\r\nHost: a\r\nX-A: " + strings.Repeat("a", 20000) + "\r\n\r\n", 431},
		{"two lengths", n.http, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", row.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, row.sent) // the node may have closed the connection
			if got, _ := rawAnswer(t, conn); got != row.status {
				t.Errorf("status %d, want %d", got, row.status)
			}
		})
	}
	t.Cleanup(func() {
		for _, n := range []*node{n, hasty} {
			get(t, http.DefaultClient, "http://"+n.http+"/")
			n.Terminate()
			if strings.Contains(n.Stderr.String(), "panic") {
				t.Error("the node panicked")
			}
		}
	})
}

// clientHello returns the first message of a TLS client.
func clientHello(t *testing.T) string {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		_ = tls.Client(client, &tls.Config{ServerName: "a"}).Handshake() // fails when the pipe is closed
	}()
	buf := make([]byte, 4096)
	k, err := server.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.Clone(buf[:k]))
}

// Every command gives a hint if an address is in use.
func TestAddressInUse(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	taken := ln.Addr().String()
	dir := t.TempDir()
	write(t, dir+"/rules.yaml", generous)
	node := []string{"node", "--rules=rules.yaml", "--origin=http://127.0.0.1:1"}
	for _, row := range []struct {
		name string
		args []string
		of   string
	}{
		{"node", append(node, "--listen="+taken, "--metrics-listen=", "--admin-listen="), "http"},
		{"node's metrics", append(node, "--listen=127.0.0.1:0", "--metrics-listen="+taken, "--admin-listen="), "metrics"},
		{"pop", []string{"pop", "--listen=" + taken}, "clients"},
		{"shard", []string{"shard", "--listen=" + taken}, "nodes"},
		{"shard's metrics", []string{"shard", "--listen=127.0.0.1:0", "--metrics-listen=" + taken}, "metrics"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := start(t, dir, row.args...)
			if code := p.End(); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			want := fmt.Sprintf("edge: listening for %s: listen tcp %s: bind: address already in use\n"+
				"edge: hint: the address is in use: stop the other program, or choose another address (port 0: any free one)\n", row.of, taken)
			if got := p.Stderr.String(); got != want {
				t.Errorf("stderr %q, want %q", got, want)
			}
			if p.Stdout.String() != "" {
				t.Errorf("stdout %q, want nothing", p.Stdout)
			}
		})
	}
}
