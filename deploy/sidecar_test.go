//go:build linux

package deploy_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/harness"
)

// A sidecar is a node that another proxy asks, which runs with the shipped configuration: only addresses differ.
type sidecar struct {
	t      *testing.T
	dir    string
	edge   string // the binary
	flags  []string
	node   *harness.Process
	proxy  string // address of the proxy
	origin string
	cuts   bool // the proxy truncates long responses to requests with a body, even without a node
}

// sidecarRules limit /limited, /banned, /closed, /redirected and example.com/host, and failed logins.
const sidecarRules = `rules:
  - id: limited
    match: {paths: [/limited]}
    characteristics: [ip]
    limits: [{threshold: 5, period: 1m}]
    mitigation_timeout: 1h
    response:
      origins: [https://app.example.com]
      headers: {Access-Control-Allow-Origin: "{origin}", Access-Control-Allow-Credentials: "true", Access-Control-Expose-Headers: "Retry-After, RateLimit", Vary: Origin}
  - {id: banned, match: {paths: [/banned]}, characteristics: [ip], limits: [{threshold: 5, period: 1m}], mitigation_timeout: 1h, action: shadow_ban}
  - {id: closed, match: {paths: [/closed]}, characteristics: [ip], limits: [{threshold: 5, period: 1m}], mitigation_timeout: 1h, action: close}
  - {id: guesses, match: {paths: [/login], methods: [POST]}, count: {statuses: [401]}, characteristics: [ip], limits: [{threshold: 5, period: 1m}], mitigation_timeout: 1h}
  - {id: keys, match: {paths: [/keys]}, characteristics: [{header: x-api-key, missing: skip}], limits: [{threshold: 5, period: 1m}], mitigation_timeout: 1h}
  - {id: site, match: {hosts: [example.com], paths: [/host]}, characteristics: [ip], limits: [{threshold: 5, period: 1m}], mitigation_timeout: 1h}
  - {id: redirected, match: {paths: [/redirected]}, characteristics: [ip], limits: [{threshold: 10, period: 1h}], mitigation_timeout: 1h}
  - {id: plenty, characteristics: [ip], limits: [{threshold: 100000000, period: 1m}]}
deny: [127.0.0.66]
`

func newSidecar(t *testing.T) *sidecar {
	t.Helper()
	dir, err := os.MkdirTemp("", "edge") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	edge, err := buildEdge()
	if err != nil {
		t.Fatal(err)
	}
	s := &sidecar{t: t, dir: dir, edge: edge}
	s.write("rules.yaml", sidecarRules)
	// A stopping node answers for half of drain-timeout, as long as it is asked.
	s.flags = []string{"node", "--rules", filepath.Join(dir, "rules.yaml"), "--metrics-listen", "", "--admin-listen", "", "--drain-timeout", "4s"}
	origin := httptest.NewServer(http.HandlerFunc(echo))
	t.Cleanup(origin.Close)
	s.origin = strings.TrimPrefix(origin.URL, "http://")
	return s
}

// slowlyAsked is the number of requests for /login?slow.
var slowlyAsked atomic.Int64

// echo describes the request in its answer, and answers /403 and /login with statuses of their own, whatever their case.
// It is slow to answer /login?slow, and accepts every Upgrade.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if protocol := r.Header.Get("Upgrade"); protocol != "" {
		tunnel(w, protocol)
		return
	}
	size, _ := strconv.Atoi(r.URL.Query().Get("size"))
	w.Header().Set("X-Saw", fmt.Sprintf("%s %s %s %x", r.Method, r.RequestURI, r.Header.Get("X-Sent"), sha256.Sum256(body)))
	w.Header().Set("X-Host", r.Host)
	switch strings.ToLower(strings.TrimSuffix(r.URL.Path, "/")) {
	case "/403":
		w.WriteHeader(http.StatusForbidden)
	case "/login":
		switch r.URL.RawQuery {
		case "right":
		case "slow":
			slowlyAsked.Add(1)
			time.Sleep(50 * time.Millisecond)
			fallthrough
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
	}
	_, _ = w.Write(bytes.Repeat([]byte("x"), size))
}

// tunnel switches to a protocol that echoes everything.
func tunnel(w http.ResponseWriter, protocol string) {
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nUpgrade: %s\r\n\r\n", protocol)
	_, _ = io.Copy(conn, buf)
}

func (s *sidecar) write(name, text string) string {
	s.t.Helper()
	file := filepath.Join(s.dir, name)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// ship writes a shipped configuration with some strings replaced, given as old, new, ….
func (s *sidecar) ship(file string, changes ...string) (written string) {
	s.t.Helper()
	text := read(s.t, file)
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(text, changes[i]) {
			s.t.Fatalf("%s does not contain %s", file, changes[i])
		}
		text = strings.ReplaceAll(text, changes[i], changes[i+1])
	}
	return s.write(filepath.Base(file), text)
}

// startNode starts or restarts the node.
func (s *sidecar) startNode() {
	s.t.Helper()
	s.node = harness.Start(s.t, exec.Command(s.edge, s.flags...))
	s.node.Wait(s.node.Stderr, "node started")
}

// startProxy starts the proxy, and waits until it accepts connections at s.proxy.
func (s *sidecar) startProxy(name string, args ...string) {
	s.t.Helper()
	p := harness.Start(s.t, exec.Command(find(s.t, name), args...))
	s.t.Cleanup(func() { // before it is killed: its children end with it
		_ = p.Cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.Ended:
		case <-time.After(5 * time.Second):
		}
	})
	eventually(s.t, name+" listens", func() bool {
		if p.HasEnded() {
			s.t.Fatalf("%s ended", name)
		}
		conn, err := net.Dial("tcp", s.proxy)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

// by returns a client with the address 127.0.0.n.
func (s *sidecar) by(n int) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(n))}}
	tr := &http.Transport{DialContext: dialer.DialContext, DisableCompression: true}
	s.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience(s.t)}
}

// dial connects to the proxy from 127.0.0.n, and sends text, in which a new line is CRLF.
func (s *sidecar) dial(n int, text string) net.Conn {
	s.t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(n))}}
	conn, err := dialer.Dial("tcp", s.proxy)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience(s.t)))
	_, _ = io.WriteString(conn, strings.ReplaceAll(text, "\n", "\r\n"))
	return conn
}

// send returns the answer to text, a request, and the connection after the head of the answer.
func (s *sidecar) send(n int, text string) (*http.Response, *bufio.ReadWriter) {
	s.t.Helper()
	conn := s.dial(n, text)
	buf := bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))
	resp, err := http.ReadResponse(buf.Reader, nil)
	if err != nil {
		s.t.Fatalf("%q: %v", text, err)
	}
	return resp, buf
}

// get returns the answer to a request with these headers, without the body.
func (s *sidecar) get(c *http.Client, method, path string, headers ...string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(context.Background(), method, "http://"+s.proxy+path, nil)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp, err
}
