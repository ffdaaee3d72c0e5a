//go:build linux

package deploy_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// noise holds the bytes that bodies are made of.
var noise = func() []byte {
	b := make([]byte, 1<<18)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return b
}()

// exchange sends a random request, and returns an error if the answer, or the request as the origin saw it, is wrong.
func (s *sidecar) exchange(c *http.Client, random *rand.Rand) error {
	method := []string{"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"}[random.IntN(7)]
	var body io.Reader = http.NoBody
	var sent []byte
	if method != "GET" && method != "HEAD" && random.IntN(4) > 0 {
		begin := random.IntN(len(noise) / 2)
		sent = noise[begin:][:1<<random.IntN(18)]
		body = bytes.NewReader(sent)
		if random.IntN(3) == 0 {
			body = io.MultiReader(body) // of unknown length: chunked
		}
	}
	path, status := "/a%20b", http.StatusOK
	if random.IntN(10) == 0 {
		path, status = "/403", http.StatusForbidden
	}
	size := random.IntN(1 << random.IntN(17))
	if s.cuts && sent != nil {
		size %= 1000
	}
	target := fmt.Sprintf("%s?size=%d&n=%d", path, size, random.Uint32())
	r, err := http.NewRequest(method, "http://"+s.proxy+target, body)
	if err != nil {
		return err
	}
	mark := strconv.Itoa(random.Int())
	r.Header.Set("X-Sent", mark)
	r.Header.Set("Cookie", strings.Repeat("c", random.IntN(2000))+"=1")
	resp, err := c.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if want := fmt.Sprintf("%s %s %s %x", method, target, mark, sha256.Sum256(sent)); resp.StatusCode != status || resp.Header.Get("X-Saw") != want {
		return fmt.Errorf("%s: %d, the origin saw %q, want %q", target, resp.StatusCode, resp.Header.Get("X-Saw"), want)
	}
	if method != "HEAD" && len(got) != size {
		return fmt.Errorf("%s: %d bytes of the answer, want %d", target, len(got), size)
	}
	return nil
}

// testUnchanged sends random requests. All must reach the origin unchanged.
func (s *sidecar) testUnchanged() {
	s.t.Helper()
	const requests = 800
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			c, random := s.by(10+n), rand.New(rand.NewPCG(1, uint64(n)))
			for range requests / 8 {
				if err := s.exchange(c, random); err != nil {
					s.t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// exceed sends requests until one gets an answer that is not the origin's, and returns that answer.
func (s *sidecar) exceed(c *http.Client, method, path string, want int, headers ...string) (*http.Response, error) {
	s.t.Helper()
	for giveUp := time.Now().Add(patience(s.t)); time.Now().Before(giveUp); {
		resp, err := s.get(c, method, path, headers...)
		if err != nil || resp.StatusCode != want || resp.Header.Get("X-Saw") == "" {
			return resp, err
		}
	}
	s.t.Fatalf("all requests for %s passed", path)
	return nil, nil
}

// testRefused checks the answers that refused clients get.
func (s *sidecar) testRefused() {
	s.t.Helper()
	c := s.by(20)
	resp, err := s.exceed(c, "GET", "/limited", http.StatusOK)
	if err != nil {
		s.t.Fatal(err)
	}
	s.check429(resp, "limited")
	if resp, err := s.get(c, "GET", "/other"); err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(resp.Header.Get("Ratelimit-Policy"), `"plenty";q=`) {
		s.t.Errorf("the same client elsewhere: %v, %v", resp, err)
	}
	if resp, err := s.get(s.by(21), "GET", "/limited"); err != nil || resp.StatusCode != http.StatusOK {
		s.t.Errorf("another client: %v, %v", resp, err)
	}
	// Headers that a client forges change nothing.
	if resp, err := s.get(c, "GET", "/limited", "X-Forwarded-For", "192.0.2.1", "X-Original-URL", "/", "X-Forwarded-Uri", "/", "X-Original-Method", "PUT", "X-Forwarded-Method", "PUT"); err != nil || resp.StatusCode != 429 {
		s.t.Errorf("the refused client with a forged address: %v, %v", resp, err)
	}
	// Scripts in browsers can read a refusal if the rule's response lets them.
	for origin, want := range map[string]string{"https://app.example.com": "https://app.example.com", "https://evil.example": ""} {
		resp, err := s.get(c, "GET", "/limited", "Origin", origin)
		if err != nil {
			s.t.Fatal(err)
		}
		s.check429(resp, "limited")
		h := resp.Header
		if _, sent := h["Access-Control-Allow-Origin"]; h.Get("Access-Control-Allow-Origin") != want || sent != (want != "") || h.Get("Access-Control-Allow-Credentials") != "true" ||
			h.Get("Access-Control-Expose-Headers") != "Retry-After, RateLimit" || h.Get("Vary") != "Origin" {
			s.t.Errorf("refused for the origin %s with %v", origin, h)
		}
	}
	resp, err = s.exceed(s.by(22), "GET", "/keys", http.StatusOK, "X-Api-Key", "k")
	if err != nil {
		s.t.Fatal(err)
	}
	s.check429(resp, "keys")
	if resp, err := s.get(s.by(22), "GET", "/keys", "X-Api-Key", "other"); err != nil || resp.StatusCode != http.StatusOK {
		s.t.Errorf("another API key: %v, %v", resp, err)
	}
	if resp, err := s.exceed(s.by(23), "GET", "/banned", http.StatusOK); err != nil || resp.StatusCode != http.StatusOK {
		s.t.Errorf("shadow ban: %v, %v; want 200 from the proxy", resp, err)
	}
	if resp, err := s.exceed(s.by(24), "GET", "/closed", http.StatusOK); err == nil {
		s.t.Errorf("close: status %d, want a closed connection", resp.StatusCode)
	}
	if resp, err := s.get(s.by(66), "GET", "/"); err != nil || resp.StatusCode != http.StatusForbidden || len(resp.Header.Get("Refusal-Id")) != len("7kq2-m9xd") || resp.Header.Get("X-Saw") != "" {
		s.t.Errorf("deny list: %v, %v; want 403 from the proxy", resp, err)
	}
}

// testAmbiguous checks that nothing reaches the origin that the node would see in another way, or not at all.
func (s *sidecar) testAmbiguous() {
	s.t.Helper()
	for _, text := range []string{
		"CONNECT example.com:80 HTTP/1.1\nHost: example.com:80\n\n",
		"TRACE / HTTP/1.1\nHost: example.com\n\n",
		"GET /host HTTP/1.1\nHost: example.com,x\n\n",
	} {
		if resp, _ := s.send(25, text); resp.StatusCode < 400 || resp.Header.Get("X-Saw") != "" {
			s.t.Errorf("%q: %v", text, resp)
		}
	}
	if resp, _ := s.send(25, "GET / HTTP/1.0\n\n"); resp.StatusCode != http.StatusOK {
		s.t.Errorf("without a host: %v", resp)
	}
	for _, target := range []string{"/host HTTP/1.1\nHost: example.com", "/host HTTP/1.1\nHost: EXAMPLE.com.:80", "http://example.com/host HTTP/1.1\nHost: example.com", "http://example.com/host HTTP/1.0"} {
		eventually(s.t, target+" is limited", func() bool {
			resp, _ := s.send(26, "GET "+target+"\n\n")
			return resp.StatusCode == http.StatusTooManyRequests
		})
	}
	// The application could read either host. It gets the request only if the node saw the same one.
	for _, hosts := range [2][2]string{{"other.example", "example.com"}, {"example.com", "other.example"}} {
		text := fmt.Sprintf("GET http://%s/host HTTP/1.1\nHost: %s\n\n", hosts[0], hosts[1])
		if resp, _ := s.send(26, text); resp.Header.Get("X-Saw") != "" && resp.Header.Get("X-Host") != "other.example" {
			s.t.Errorf("%q passes to %s", text, resp.Header.Get("X-Host"))
		}
	}
}

// testUpgrades checks that clients can upgrade to WebSocket, but not to HTTP/2 or TLS.
func (s *sidecar) testUpgrades() {
	s.t.Helper()
	const upgrade = "GET /upgrade HTTP/1.1\nHost: a\nConnection: Upgrade, HTTP2-Settings\nHTTP2-Settings: AAMAAABk\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\nSec-WebSocket-Version: 13\nUpgrade: %s\n\n"
	for _, protocol := range []string{"h2c", "H2C", "websocket, h2c", "TLS/1.0", "tls/1.2, HTTP/1.1"} {
		resp, _ := s.send(27, fmt.Sprintf(upgrade, protocol))
		// HAProxy 3.2 forwards only WebSocket from a list.
		if got := resp.Header.Get("Upgrade"); resp.StatusCode == http.StatusSwitchingProtocols && got != "websocket" {
			s.t.Errorf("a client that asks for %s upgrades to %s", protocol, got)
		}
	}
	resp, buf := s.send(27, strings.Replace(fmt.Sprintf(upgrade, "websocket"), ", HTTP2-Settings", "", 1))
	_, _ = buf.WriteString("hello")
	_ = buf.Flush()
	echo := make([]byte, len("hello"))
	if _, err := io.ReadFull(buf, echo); resp.StatusCode != http.StatusSwitchingProtocols || err != nil || string(echo) != "hello" {
		s.t.Errorf("WebSocket: %v, %q, %v", resp, echo, err)
	}
}

// testRemembered checks that the proxy remembers a refusal that applies to all requests of a client, but not for long.
func (s *sidecar) testRemembered() {
	s.t.Helper()
	refused := func() bool {
		resp, err := s.get(s.by(66), "GET", "/")
		return err == nil && resp.StatusCode == http.StatusForbidden && resp.Header.Get("X-Saw") == ""
	}
	eventually(s.t, "a refusal without the node", func() bool { // on a busy machine, 2 s are short
		eventually(s.t, "a refusal", refused)
		s.node.Signal(syscall.SIGSTOP)
		defer s.node.Signal(syscall.SIGCONT)
		return refused()
	})
	s.node.Kill()
	eventually(s.t, "the refusal is forgotten", func() bool { return !refused() })
	s.startNode()
}

// testEarly checks that failed logins of clients that do not wait for the answer count.
func (s *sidecar) testEarly() {
	s.t.Helper()
	c := s.by(32)
	eventually(s.t, "a refusal", func() bool {
		before := slowlyAsked.Load()
		conn := s.dial(32, "POST /login?slow HTTP/1.1\nHost: a\nContent-Length: 0\n\n")
		for range 100 { // a client that leaves before the origin is asked has guessed nothing
			if slowlyAsked.Load() > before {
				break
			}
			time.Sleep(time.Millisecond)
		}
		_ = conn.Close()
		resp, err := s.get(c, "POST", "/login?right")
		return err == nil && resp.StatusCode == http.StatusTooManyRequests
	})
}

// testCrowd checks that the proxy, which allows two at a time, refuses the third request or connection of a client.
func (s *sidecar) testCrowd() {
	s.t.Helper()
	for range 2 {
		s.dial(28, "POST /crowd HTTP/1.1\nHost: a\nContent-Length: 5\nExpect: 100-continue\n\n")
	}
	eventually(s.t, "a refusal", func() bool {
		resp, err := s.get(s.by(28), "GET", "/")
		return err != nil || resp.StatusCode == http.StatusTooManyRequests
	})
	if resp, err := s.get(s.by(29), "GET", "/"); err != nil || resp.StatusCode != http.StatusOK {
		s.t.Errorf("another client: %v, %v", resp, err)
	}
}

func (s *sidecar) check429(resp *http.Response, rule string) {
	s.t.Helper()
	retry, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if resp.StatusCode != 429 || err != nil || retry < 1800 || retry > 3721 || !strings.HasPrefix(resp.Header.Get("Ratelimit"), `"`+rule+`";r=0;t=`) || len(resp.Header.Get("Refusal-Id")) != len("7kq2-m9xd") || resp.Header.Get("X-Saw") != "" {
		s.t.Errorf("refused with %d %v", resp.StatusCode, resp.Header)
	}
}

// testReported checks that a rule counts the origin's answers.
func (s *sidecar) testReported() {
	s.t.Helper()
	for n, path := range []string{"/login", "/%4cOGIN/"} {
		resp, err := s.exceed(s.by(33+n), "POST", path, http.StatusUnauthorized)
		if err != nil {
			s.t.Fatal(err)
		}
		s.check429(resp, "guesses")
	}
	for range 20 {
		if resp, err := s.get(s.by(31), "GET", "/login"); err != nil || resp.StatusCode != http.StatusUnauthorized {
			s.t.Fatalf("a request that is not counted: %v, %v", resp, err)
		}
	}
}

// awaitChecks waits until the proxy asks the node again, which takes it a moment after the node was down.
func (s *sidecar) awaitChecks() {
	s.t.Helper()
	c := s.by(51)
	eventually(s.t, "the proxy asks the node", func() bool {
		resp, err := s.get(c, "GET", "/")
		return err == nil && resp.Header.Get("Ratelimit-Policy") != ""
	})
}

// testFaults sends requests while the node is stopped, started, stalled and killed. None may fail. It logs
// the slowest request of each state.
func (s *sidecar) testFaults() {
	s.t.Helper()
	var stop atomic.Bool
	var passed atomic.Int64
	var mu sync.Mutex
	slowest := map[string]time.Duration{}
	phase := "running"
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			c, random := s.by(40+n), rand.New(rand.NewPCG(2, uint64(n)))
			for !stop.Load() {
				begin := time.Now()
				if err := s.exchange(c, random); err != nil {
					s.t.Error(err)
				}
				passed.Add(1)
				mu.Lock()
				slowest[phase] = max(slowest[phase], time.Since(begin))
				mu.Unlock()
			}
		})
	}
	more := func(name string) { // waits for 100 requests in this state
		mu.Lock()
		phase = name
		mu.Unlock()
		from := passed.Load()
		eventually(s.t, "requests pass: "+name, func() bool { return passed.Load() > from+100 })
	}
	more("running")
	s.node.Signal(syscall.SIGTERM)
	more("stopping")
	if code := s.node.End(); code != 0 {
		s.t.Errorf("exit code of the node = %d, want 0", code)
	}
	more("stopped")
	s.startNode()
	s.awaitChecks()
	more("started")
	s.node.Signal(syscall.SIGSTOP)
	more("stalled")
	s.node.Signal(syscall.SIGCONT)
	s.awaitChecks()
	more("resumed")
	s.node.Kill()
	more("killed")
	s.startNode()
	more("restarted")
	stop.Store(true)
	wg.Wait()
	s.t.Logf("%d requests passed, the slowest of each state: %v", passed.Load(), slowest)
	// The node makes decisions again.
	if resp, err := s.exceed(s.by(50), "GET", "/limited", http.StatusOK); err != nil {
		s.t.Error(err)
	} else {
		s.check429(resp, "limited")
	}
}
