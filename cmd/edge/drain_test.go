package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/harness"
)

// A slowOrigin answers requests for /slow only when told to.
type slowOrigin struct {
	*httptest.Server
	asked   chan struct{} // receives a value for each request that is held
	release chan struct{} // closed to answer them
}

func newSlowOrigin(t *testing.T) *slowOrigin {
	t.Helper()
	s := &slowOrigin{asked: make(chan struct{}, 100), release: make(chan struct{})}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			s.asked <- struct{}{}
			select {
			case <-s.release:
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, "an answer")
	}))
	t.Cleanup(s.Close)
	return s
}

// slowly requests /slow from n and returns a channel for the answer, once the origin has the request.
func (s *slowOrigin) slowly(t *testing.T, n *node) <-chan answer {
	t.Helper()
	got := make(chan answer, 1)
	go func() {
		a, err := try(&http.Client{Transport: new(http.Transport), Timeout: patience}, "http://"+n.http+"/slow")
		if err != nil {
			a.body = err.Error()
		}
		got <- a
	}()
	select {
	case <-s.asked:
	case a := <-got:
		t.Fatalf("the origin got no request: %v, %s", a.Response, a.body)
	}
	return got
}

// After SIGTERM a node finishes requests, accepts no new ones, is no longer ready, and sends its pending
// counts.
func TestNodeDrains(t *testing.T) {
	t.Parallel()
	memcached := harness.StartMemcached(t)
	origin := newSlowOrigin(t)
	// Flushes are further apart than the test takes, so counts are only sent at the end.
	n := startNode(t, generous, "--origin="+origin.URL, "--shard="+memcached.Addr, "--secret=0123456789abcdef", "--flush-interval=1h", "--listen="+harness.ReservePort(t), "--drain-timeout=5m")
	const quick = 25
	for range quick {
		get(t, http.DefaultClient, "http://"+n.http+"/")
	}
	slow := origin.slowly(t, n)
	if got := counted(t, memcached.Addr); got != 0 {
		t.Errorf("%d requests counted before the drain, want 0: --flush-interval has no effect", got)
	}
	n.Signal(syscall.SIGTERM)
	n.Wait(n.Stderr, `msg="node stopping"`)
	eventually(t, "new connections are refused", func() bool {
		conn, err := net.Dial("tcp", n.http)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	if a := get(t, http.DefaultClient, "http://"+n.metrics+"/readyz"); a.StatusCode != 503 || a.body != "the node is stopping\n" {
		t.Errorf("/readyz of a stopping node: %s, %q", a.Status, a.body)
	}
	if a := get(t, http.DefaultClient, "http://"+n.metrics+"/livez"); a.StatusCode != 200 {
		t.Errorf("/livez of a stopping node: %s", a.Status)
	}
	close(origin.release)
	if a := <-slow; a.Response == nil || a.StatusCode != 200 || a.body != "an answer" {
		t.Errorf("the pending request got %v, %s", a.Response, a.body)
	}
	if code := n.End(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if got := counted(t, memcached.Addr); got != quick+1 {
		t.Errorf("memcached has %d requests, want %d", got, quick+1)
	}
}

// counted returns the sum of all counters in memcached.
func counted(t *testing.T, addr string) (sum uint64) {
	t.Helper()
	ask := func(command string) string {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for lines := bufio.NewReader(conn); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("%s: %v after %q", command, err, text.String())
			}
			text.WriteString(line)
			if line == "END\r\n" {
				return text.String()
			}
		}
	}
	for _, m := range regexp.MustCompile(`key=(\S+) `).FindAllStringSubmatch(ask("lru_crawler metadump all"), -1) {
		v := regexp.MustCompile(`\r\n(\d+)\s*\r\nEND`).FindStringSubmatch(ask("get " + m[1]))
		if v == nil {
			t.Fatalf("%s is not a counter", m[1])
		}
		n, err := strconv.ParseUint(v[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// A second signal ends a node immediately.
func TestNodeSecondSignal(t *testing.T) {
	t.Parallel()
	for _, second := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(second.String(), func(t *testing.T) {
			t.Parallel()
			origin := newSlowOrigin(t)
			n := startNode(t, generous, "--origin="+origin.URL, "--drain-timeout=1h")
			origin.slowly(t, n)
			n.Signal(syscall.SIGTERM)
			n.Wait(n.Stderr, `msg="node stopping"`)
			n.Signal(second)
			n.End()
			if status := n.Cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != second {
				t.Errorf("node ended with %v, want signal %v", n.Cmd.ProcessState, second)
			}
		})
	}
}

// Requests that do not end in time are aborted, and the node reports it.
func TestNodeDrainTimeout(t *testing.T) {
	t.Parallel()
	origin := newSlowOrigin(t)
	n := startNode(t, generous, "--origin="+origin.URL, "--drain-timeout=50ms")
	slow := origin.slowly(t, n)
	n.Signal(syscall.SIGTERM)
	if code := n.End(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	n.Wait(n.Stderr, `(?m)^edge: requests that did not end in time were aborted\nedge: hint: --drain-timeout allows more time\n`)
	if a := <-slow; a.Response != nil {
		t.Errorf("the pending request got %s", a.Status)
	}
}
