package main

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/internal/harness"
)

// A cluster is a running edge pop, as its output describes it.
type cluster struct {
	*process
	clients string
	nodes   []string // URLs
	metrics []string
	shards  []string // addresses
}

func startPop(t *testing.T, args ...string) *cluster {
	t.Helper()
	c := &cluster{process: start(t, t.TempDir(), append([]string{"pop", "--listen=127.0.0.1:0"}, args...)...)}
	text := c.Wait(c.Stdout, `(?s)^A PoP of \d nodes? is running\..*Press Ctrl-C to stop\.\n`)[0]
	for _, m := range regexp.MustCompile(`(?m)^  node-\d +(http://\S+)   metrics (http://\S+)   admin http://\S+(?:   shard (\S+))?$`).FindAllStringSubmatch(text, -1) {
		c.nodes, c.metrics = append(c.nodes, m[1]), append(c.metrics, m[2])
		if m[3] != "" {
			c.shards = append(c.shards, m[3])
		}
	}
	c.clients = regexp.MustCompile(`(?m)^  clients  (http://\S+)   each new connection`).FindStringSubmatch(text)[1]
	if m := regexp.MustCompile(`(?m)^  shards   (.*)$`).FindStringSubmatch(text); m != nil {
		c.shards = strings.Split(m[1], ", ")
	}
	return c
}

// The sample rules allow 50 requests a minute to each client.
const sampleThreshold = 50

// waitForLongMinute waits for the next minute if less than half of the current one is left. The sample rules refuse a
// client as long as its estimate exceeds the threshold, which may be just a second into the next minute.
func waitForLongMinute() {
	now := time.Now()
	if next := now.Truncate(time.Minute).Add(time.Minute); next.Sub(now) < 30*time.Second {
		<-time.After(next.Sub(now))
	}
}

func TestPop(t *testing.T) {
	severalAddresses(t)
	t.Parallel()
	c := startPop(t)
	if len(c.nodes) != 3 || len(c.shards) != 3 {
		t.Fatalf("nodes %v, shards %v; want 3 of each", c.nodes, c.shards)
	}
	testOneClient(t, c)
	c.Terminate()
}

func TestPopWithMemcached(t *testing.T) {
	severalAddresses(t)
	t.Parallel()
	var shards []string
	for range 3 {
		shards = append(shards, harness.StartMemcached(t).Addr)
	}
	c := startPop(t, "--shard="+strings.Join(shards, ","))
	if diff := cmp.Diff(shards, c.shards); diff != "" {
		t.Fatal(diff)
	}
	testOneClient(t, c)
	c.Terminate()
}

// testOneClient repeats the test with other clients until it fits into a minute, however busy the machine is.
func testOneClient(t *testing.T, c *cluster) {
	for attempt := 0; ; attempt++ {
		waitForLongMinute()
		minute := time.Now().Truncate(time.Minute)
		err := tryOneClient(t, c, fmt.Sprintf("127.0.0.%d", 10+attempt))
		if err == nil {
			return
		}
		if attempt == 5 || time.Now().Truncate(time.Minute).Equal(minute) {
			t.Fatal(err)
		}
		t.Logf("%v, after the minute was over", err)
	}
}

// tryOneClient lets a client exceed the rule. After the threshold, plus what the asynchronous lag lets through,
// every node refuses it without a command to a shard. Another client passes.
func tryOneClient(t *testing.T, c *cluster, addr string) error {
	guilty, innocent, url := from(t, addr), from(t, "127.0.0.2"), c.clients+"/"
	for i := range sampleThreshold + 1 { // the last one exceeds the limit
		if a := get(t, guilty, url); a.StatusCode != http.StatusOK {
			return fmt.Errorf("request %d: %s, want %d to pass", i+1, a.Status, sampleThreshold+1)
		}
		if i%20 == 0 {
			if a := get(t, innocent, url); a.StatusCode != http.StatusOK {
				return fmt.Errorf("the innocent client: %s", a.Status)
			}
		}
	}

	// Every node refuses the client at its own address.
	for i, node := range c.nodes {
		var a answer
		eventually(t, "each node refuses", func() bool {
			a = get(t, guilty, node)
			return a.StatusCode != http.StatusOK
		})
		if name := fmt.Sprintf("node-%d", i+1); a.StatusCode != http.StatusTooManyRequests || a.Header.Get("X-Edge-Node") != name {
			return fmt.Errorf("%s: %s by node %q, want 429 by %s", node, a.Status, a.Header.Get("X-Edge-Node"), name)
		}
		if after, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || after < 1 || after > 120 {
			return fmt.Errorf("Retry-After %q, want 1 to 120 seconds", a.Header.Get("Retry-After"))
		}
	}

	// No shard gets a command once all counts of passed requests are sent.
	refused := func(n int) error {
		for i := range n {
			for _, to := range []string{url, c.nodes[i%len(c.nodes)]} {
				if a := get(t, guilty, to); a.StatusCode != http.StatusTooManyRequests {
					return fmt.Errorf("a mitigated client got %s", a.Status)
				}
			}
		}
		return nil
	}
	var err error
	eventually(t, "the shards get no more commands", func() bool {
		before := shardStats(t, c.shards)
		err = refused(3)
		return err != nil || maps.Equal(before, shardStats(t, c.shards))
	})
	if err != nil {
		return err
	}
	before := shardStats(t, c.shards)
	if err := refused(60); err != nil {
		return err
	}
	if diff := cmp.Diff(before, shardStats(t, c.shards)); diff != "" {
		return fmt.Errorf("commands to shards while the client is refused:\n%s", diff)
	}
	if a := get(t, innocent, url); a.StatusCode != http.StatusOK {
		return fmt.Errorf("the innocent client: %s", a.Status)
	}
	return nil
}

// A PoP that loses a shard serves all clients as before, and still refuses clients that exceed a rule.
func TestPopLosesShard(t *testing.T) {
	severalAddresses(t)
	t.Parallel()
	var shards []*harness.Memcached
	var addrs []string
	for range 3 {
		s := harness.StartMemcached(t)
		shards, addrs = append(shards, s), append(addrs, s.Addr)
	}
	c := startPop(t, "--shard="+strings.Join(addrs, ","))

	// 120 clients send 10 requests each. A shard dies after a third of them.
	const clients, each, senders = 120, 10, 4
	var sent atomic.Int64
	var kill sync.Once
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for range each {
				for i := s; i < clients; i += senders {
					if sent.Add(1) > clients*each/3 {
						kill.Do(shards[1].Kill)
					}
					a, err := try(from(t, fmt.Sprintf("127.0.1.%d", i+1)), c.clients+"/")
					if err != nil || a.StatusCode != http.StatusOK {
						t.Errorf("client %d: %v, %v", i, a.Response, err)
						return
					}
				}
			}
		})
	}
	wg.Wait()

	// This holds whichever shard owns the client's key: the nodes count the dead shard's keys alone and tell
	// each other.
	for i := range 5 {
		attacker := from(t, fmt.Sprintf("127.0.2.%d", i+1))
		eventually(t, "an attacker is refused", func() bool { return get(t, attacker, c.clients+"/").StatusCode == http.StatusTooManyRequests })
	}
	c.Terminate()
}

// The printed commands work when pasted, and show what they promise.
func TestPopPrintsCommands(t *testing.T) {
	harness.Installed(t, "bash")
	harness.Installed(t, "curl")
	t.Parallel()
	c := startPop(t, "--nodes=2")
	_, try, _ := strings.Cut(c.Stdout.String(), "Try, in another terminal:\n")
	waitForLongMinute()
	var outputs []string
	for line := range strings.Lines(try) {
		command, ok := strings.CutPrefix(line, "  ")
		if !ok {
			break
		}
		p := startCommand(t, t.TempDir(), nil, "bash", "-o", "pipefail", "-c", command)
		if code := p.End(); code != 0 {
			t.Fatalf("exit code %d of %s", code, command)
		}
		outputs = append(outputs, p.Stdout.String())
	}
	if len(outputs) != 5 {
		t.Fatalf("%d commands, want 5:\n%s", len(outputs), try)
	}
	for i, want := range []string{`^(401 ){5,8}(429 )*$`, `^(200 )+(429 )+$`, `^HTTP/1.1 429 `, `(?m)^STAT cmd_get \d+`, `(?m)^[0-9a-f]{32}  .*  everything  127\.0\.0\.1  `} {
		if !regexp.MustCompile(want).MatchString(outputs[i]) {
			t.Errorf("command %d wrote %q, want %s", i+1, outputs[i], want)
		}
	}
	c.Wait(c.Stderr, `mitigation started.* rule=login .*why="[^"]+; the limit is 5".* client=127\.0\.0\.1 method=POST`)
	c.Wait(c.Stderr, `mitigation started.* rule=everything .*why="[^"]+; the limit is 50"`)
	c.Signal(syscall.SIGINT)
	if code := c.End(); code != 0 {
		t.Errorf("exit code after SIGINT = %d, want 0", code)
	}
}

// With the user's own rules and origin, nothing of the samples is printed.
func TestPopWithOwnRules(t *testing.T) {
	t.Parallel()
	origin := newOrigin(t)
	dir := t.TempDir()
	write(t, dir+"/rules.yaml", "rules:\n  - {id: own, characteristics: [ip], limits: [{threshold: 7, period: 1h}]}\n")
	c := startPop(t, "--nodes=1", "--rules="+dir+"/rules.yaml", "--origin="+origin.URL, "--ratelimit-headers=both")
	if a := get(t, http.DefaultClient, c.clients+"/x"); !strings.HasPrefix(a.body, "GET /x HTTP/1.1\n") || a.Header.Get("X-RateLimit-Limit") != "7" {
		t.Errorf("answer %q with %v", a.body, a.Header)
	}
	text := c.Stdout.String()
	for _, not := range []string{"sample", "demo", "login", "seq 60"} {
		if strings.Contains(text, not) {
			t.Errorf("the text has %q:\n%s", not, text)
		}
	}
	// SIGHUP reloads the rules.
	mark := c.Stderr.Len()
	replace(t, dir+"/rules.yaml", "rules:\n  - {id: own, characteristics: [ip], limits: [{threshold: 8, period: 1h}]}\n")
	c.Signal(syscall.SIGHUP)
	c.WaitSince(c.Stderr, mark, `rules loaded`)
	if a := get(t, http.DefaultClient, c.clients+"/x"); a.Header.Get("X-RateLimit-Limit") != "8" {
		t.Errorf("after a reload: %v", a.Header)
	}
	c.Terminate()
}

// A PoP without files to reload ends with its terminal.
func TestPopHangup(t *testing.T) {
	t.Parallel()
	c := startPop(t, "--nodes=1")
	c.Signal(syscall.SIGHUP)
	if code := c.End(); code != -1 {
		t.Errorf("exit code after SIGHUP = %d, want -1, for a signal", code)
	}
}

// If the ports after the clients' port are in use, nodes get other ports.
func TestPopNodesFindPorts(t *testing.T) {
	t.Parallel()
	first := startPop(t, "--nodes=1")
	taken := strings.TrimPrefix(first.nodes[0], "http://")
	host, port, _ := strings.Cut(taken, ":")
	number, _ := strconv.Atoi(port)
	if got := portAfter(fmt.Sprintf("%s:%d", host, number-1), 1); got != host+":0" {
		t.Errorf("port after %d, which is taken: %s, want any", number-1, got)
	}
	if a := get(t, http.DefaultClient, first.metrics[0]); !strings.Contains(a.body, "edge_requests_total") {
		t.Error("no metrics")
	}
}
