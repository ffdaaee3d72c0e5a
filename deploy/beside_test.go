//go:build linux

package deploy_test

import (
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
	"syscall"
	"testing"
	"time"
)

// A besider is a node beside another proxy: the shipped configuration of the proxy is tested as it is,
// but for addresses.
type besider struct {
	t      *testing.T
	dir    string
	edge   string // the binary
	flags  []string
	cmd    *exec.Cmd
	proxy  string // address of the proxy
	origin string
	cuts   bool // if the proxy, alone as well, cuts long answers to requests with a body
}

// besideRules let everybody pass but for /limited, /banned, /closed, and who guesses passwords.
const besideRules = `rules:
  - {id: limited, match: {paths: [/limited]}, characteristics: [ip], limits: [{threshold: 5, period: 1m}], mitigation_timeout: 1h}
  - {id: banned, match: {paths: [/banned]}, characteristics: [ip], limits: [{threshold: 5, period: 1m}], mitigation_timeout: 1h, action: shadow_ban}
  - {id: closed, match: {paths: [/closed]}, characteristics: [ip], limits: [{threshold: 5, period: 1m}], mitigation_timeout: 1h, action: close}
  - {id: guesses, match: {paths: [/login], methods: [POST]}, count: {statuses: [401]}, characteristics: [ip], limits: [{threshold: 5, period: 1m}], mitigation_timeout: 1h}
  - {id: keys, match: {paths: [/keys]}, characteristics: [{header: x-api-key, missing: skip}], limits: [{threshold: 5, period: 1m}], mitigation_timeout: 1h}
  - {id: plenty, characteristics: [ip], limits: [{threshold: 100000000, period: 1m}]}
deny: [127.0.0.66]
`

func newBesider(t *testing.T, flags ...string) *besider {
	t.Helper()
	dir, err := os.MkdirTemp("", "edge") // short: the path of a socket is
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
	b := &besider{t: t, dir: dir, edge: edge}
	b.write("rules.yaml", besideRules)
	b.flags = append([]string{"node", "--rules", filepath.Join(dir, "rules.yaml"), "--metrics-listen", "", "--admin-listen", ""}, flags...)
	origin := httptest.NewServer(http.HandlerFunc(echo))
	t.Cleanup(origin.Close)
	b.origin = strings.TrimPrefix(origin.URL, "http://")
	return b
}

// echo answers with what came, or as the path says.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	size, _ := strconv.Atoi(r.URL.Query().Get("size"))
	w.Header().Set("X-Saw", fmt.Sprintf("%s %s %s %x", r.Method, r.RequestURI, r.Header.Get("X-Sent"), sha256.Sum256(body)))
	switch r.URL.Path {
	case "/403":
		w.WriteHeader(http.StatusForbidden)
	case "/login":
		w.WriteHeader(http.StatusUnauthorized)
	}
	_, _ = w.Write(bytes.Repeat([]byte("x"), size))
}

func (b *besider) write(name, text string) string {
	b.t.Helper()
	file := filepath.Join(b.dir, name)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
	return file
}

// ship writes a configuration as it is shipped, but for addresses and directories, given as old, new, ….
func (b *besider) ship(file string, changes ...string) (written string) {
	b.t.Helper()
	text := read(b.t, file)
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(text, changes[i]) {
			b.t.Fatalf("%s does not have %s", file, changes[i])
		}
		text = strings.ReplaceAll(text, changes[i], changes[i+1])
	}
	return b.write(filepath.Base(file), text)
}

// startNode starts the node, or starts it again.
func (b *besider) startNode() {
	b.t.Helper()
	log, err := os.OpenFile(filepath.Join(b.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644)
	if err != nil {
		b.t.Fatal(err)
	}
	from, _ := log.Seek(0, io.SeekEnd)
	b.cmd = exec.Command(b.edge, b.flags...)
	b.cmd.Stderr = log
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	cmd := b.cmd
	b.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
	})
	eventually(b.t, "the node runs", func() bool {
		return strings.Contains(read(b.t, log.Name())[from:], "node runs")
	})
}

func (b *besider) signal(s os.Signal) {
	b.t.Helper()
	if err := b.cmd.Process.Signal(s); err != nil {
		b.t.Fatal(err)
	}
}

func (b *besider) kill() {
	b.signal(os.Kill)
	_ = b.cmd.Wait()
}

// startProxy starts the proxy, and waits until it accepts connections at b.proxy.
func (b *besider) startProxy(name string, args ...string) {
	b.t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(find(b.t, name), args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	b.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
		if b.t.Failed() {
			b.t.Logf("%s\nthe node: %s", out.String(), read(b.t, filepath.Join(b.dir, "log")))
		}
	})
	eventually(b.t, name+" listens", func() bool {
		select {
		case <-ended:
			b.t.Fatalf("%s ended: %s", name, out.String())
		default:
		}
		conn, err := net.Dial("tcp", b.proxy)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

// by returns a client with an address of its own: 127.0.0.n.
func (b *besider) by(n int) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(n))}}
	tr := &http.Transport{DialContext: dialer.DialContext, DisableCompression: true}
	b.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience(b.t)}
}

// get returns the answer to a request with these headers, without the body.
func (b *besider) get(c *http.Client, method, path string, headers ...string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(context.Background(), method, "http://"+b.proxy+path, nil)
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
