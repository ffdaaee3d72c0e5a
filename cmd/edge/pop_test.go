package main

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/internal/harness"
)

// A cluster is a running edge pop, as its output describes it.
type cluster struct {
	*harness.Process
	clients *node
	nodes   []*node
	shards  []string // addresses
}

func startPop(t *testing.T, args ...string) *cluster {
	t.Helper()
	c := &cluster{Process: start(t, t.TempDir(), append([]string{"pop", "--listen=127.0.0.1:0"}, args...)...)}
	text := c.Wait(c.Stdout, `(?s)^A PoP of \d nodes? is running\..*Press Ctrl-C to stop\.\n`)[0]
	for _, m := range regexp.MustCompile(`(?m)^  node-\d +http://(\S+)   metrics http://(\S+)/metrics   page http://\S+/(?:   shard (\S+))?$`).FindAllStringSubmatch(text, -1) {
		c.nodes = append(c.nodes, &node{http: m[1], metrics: m[2]})
		if m[3] != "" {
			c.shards = append(c.shards, m[3])
		}
	}
	c.clients = &node{http: regexp.MustCompile(`(?m)^  clients  http://(\S+)   each new connection`).FindStringSubmatch(text)[1]}
	if m := regexp.MustCompile(`(?m)^  shards   (.*)$`).FindStringSubmatch(text); m != nil {
		c.shards = strings.Split(m[1], ", ")
	}
	return c
}

// commands returns how many commands of each kind the shards have received.
func (c *cluster) commands(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, addr := range c.shards {
		for name, value := range statsOf(t, addr) {
			if regexp.MustCompile(`^(cmd|get|incr|decr|cas|delete|touch)_`).MatchString(name) {
				all[addr+" "+name] = value
			}
		}
	}
	return all
}

// Every node refuses a client that exceeds the rule, without a command to a shard. Another client passes, even after
// a shard has died.
func TestPop(t *testing.T) {
	t.Parallel()
	for name, memcached := range map[string]bool{"its own shards": false, "memcached": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir+"/rules.yaml", fiftyAnHour)
			args := []string{"--rules=" + dir + "/rules.yaml", "--trusted-proxy=127.0.0.1"}
			var shards []string
			var dies *harness.Server
			for range 3 {
				if memcached {
					dies = harness.StartMemcached(t)
					shards = append(shards, dies.Addr)
				}
			}
			if memcached {
				args = append(args, "--shard="+strings.Join(shards, ","))
			}
			c := startPop(t, args...)
			if len(c.nodes) != 3 || len(c.shards) != 3 || memcached && !cmp.Equal(c.shards, shards) {
				t.Fatalf("nodes %v, shards %v; want 3 of each", c.nodes, c.shards)
			}
			const guilty, innocent = "192.0.2.1", "192.0.2.2"
			for i := range 51 { // the last one exceeds the limit
				if status := c.clients.statusFor(guilty); status != http.StatusOK {
					t.Fatalf("request %d: status %d, want 51 to pass", i+1, status)
				}
			}
			refused := func(n int) {
				t.Helper()
				for i := range n {
					if c.clients.statusFor(guilty) != http.StatusTooManyRequests || c.nodes[i%len(c.nodes)].statusFor(guilty) != http.StatusTooManyRequests {
						t.Error("a mitigated client passes")
					}
				}
			}
			for i, n := range c.nodes {
				eventually(t, "each node refuses", func() bool { return n.statusFor(guilty) == http.StatusTooManyRequests })
				a := n.ask(guilty)
				if after, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || after < 1 || after > 2*3600 || a.Header.Get("X-Edge-Node") != fmt.Sprint("node-", i+1) {
					t.Errorf("node %d refuses with %v", i+1, a.Header)
				}
			}
			eventually(t, "the shards get no more commands", func() bool {
				before := c.commands(t)
				refused(3)
				return maps.Equal(before, c.commands(t))
			})
			before := c.commands(t)
			refused(60)
			if diff := cmp.Diff(before, c.commands(t)); diff != "" {
				t.Errorf("commands to shards while the client is refused:\n%s", diff)
			}
			if memcached {
				dies.Kill()
			}
			for range 6 {
				if status := c.clients.statusFor(innocent); status != http.StatusOK {
					t.Errorf("the innocent client: status %d", status)
				}
			}
			// This holds whichever shard owns the client's key: the nodes count a dead shard's keys alone and tell
			// each other.
			for i := range 5 {
				attacker := fmt.Sprint("198.51.100.", i)
				eventually(t, "an attacker is refused", func() bool { return c.clients.statusFor(attacker) == http.StatusTooManyRequests })
			}
			c.Terminate()
		})
	}
}

// The printed commands work when pasted, and show what they promise.
func TestPopPrintsCommands(t *testing.T) {
	harness.Installed(t, "bash")
	harness.Installed(t, "curl")
	t.Parallel()
	c := startPop(t, "--nodes=2")
	_, try, _ := strings.Cut(c.Stdout.String(), "Try, in another terminal:\n")
	// The sample rules refuse a client as long as its estimate exceeds the threshold, which may be until shortly after
	// the end of a minute.
	now := time.Now()
	if left := now.Truncate(time.Minute).Add(time.Minute).Sub(now); left < 10*time.Second {
		time.Sleep(left)
	}
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
	for i, want := range []string{`^(401 ){5,8}(429 )*$`, `^(200 )+(429 )+$`, `^HTTP/1.1 429 `, `(?m)^STAT cmd_get \d+`, `(?m)^[0-9a-f]{32}  .*  everything  block   127\.0\.0\.1  `} {
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

// With the user's own rules and origin, nothing about the samples is printed, and SIGHUP reloads the rules. Without files
// to reload, a PoP ends with its terminal.
func TestPopWithOwnRules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/rules.yaml", fiftyAnHour)
	c := startPop(t, "--nodes=1", "--rules="+dir+"/rules.yaml", "--origin="+newOrigin(t).URL, "--ratelimit-headers=both")
	limit := func(want string) {
		t.Helper()
		if a := get(t, http.DefaultClient, "http://"+c.clients.http+"/x"); !strings.HasPrefix(a.body, "GET /x HTTP/1.1\n") || a.Header.Get("X-RateLimit-Limit") != want {
			t.Errorf("answer %q with %v", a.body, a.Header)
		}
	}
	limit("50")
	for _, not := range []string{"sample", "demo", "login", "seq 60"} {
		if text := c.Stdout.String(); strings.Contains(text, not) {
			t.Errorf("the text has %q:\n%s", not, text)
		}
	}
	mark := c.Stderr.Len()
	replace(t, dir+"/rules.yaml", strings.Replace(fiftyAnHour, "50", "8", 1))
	c.Signal(syscall.SIGHUP)
	c.WaitSince(c.Stderr, mark, `rules loaded`)
	limit("8")

	// A port that is in use is not chosen.
	host, port, _ := strings.Cut(c.nodes[0].http, ":")
	number, _ := strconv.Atoi(port)
	if got := portAfter(fmt.Sprintf("%s:%d", host, number-1), 1); got != host+":0" {
		t.Errorf("port after %d, which is in use: %s, want any", number-1, got)
	}
	c.Terminate()

	p := startCommand(t, dir, nil, "nohup", "edge", "pop", "--nodes=1", "--listen=127.0.0.1:0", "--rules=rules.yaml")
	p.Wait(p.Stdout, `Press Ctrl-C to stop`)
	p.Signal(syscall.SIGHUP)
	p.Signal(syscall.SIGTERM)
	if code := p.End(); code != 0 || strings.Contains(p.Stderr.String(), "rules loaded") {
		t.Errorf("after a SIGHUP under nohup: exit code %d, %s", code, p.Stderr)
	}

	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // so that the next process does not ignore it, even under nohup
	c = startPop(t, "--nodes=1")
	c.Signal(syscall.SIGHUP)
	if code := c.End(); code != -1 {
		t.Errorf("exit code after SIGHUP = %d, want -1, for a signal", code)
	}
}
