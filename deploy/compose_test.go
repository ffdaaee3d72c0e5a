//go:build linux

package deploy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/harness"
)

// The PoP of docker-compose.yml refuses an attacker on all nodes and no other client, even while a node
// and a memcached are down.
//
// No image is pulled: standin_test.go describes the images that run instead.
func TestCompose(t *testing.T) {
	t.Parallel()
	statAllFiles(t)
	p := startPoP(t)
	attacker, innocent := p.newClient("attacker"), p.newClient("innocent")

	// The front tells nodes the client's address, and they tell the origin.
	for _, c := range []*client{attacker, innocent} {
		if a := c.ask(1)[0]; a.status != http.StatusOK || a.body != "the origin answers "+c.addr+"\n" {
			t.Fatalf("%s: %d %q, want 200 with its address %s", c.name, a.status, a.body, c.addr)
		}
	}
	for _, node := range nodes {
		eventually(t, node+" sees three nodes", func() bool { return innocent.metric(node, "edge_gossip_nodes") == "3" })
	}

	// The attacker is refused after 50 requests, by every node, whatever address it claims.
	const threshold = 50
	passed := 1
	eventually(t, "the attacker is refused", func() bool {
		for _, a := range attacker.ask(15) {
			if a.status == http.StatusOK {
				passed++
				continue
			}
			return true
		}
		return false
	})
	if passed < threshold || passed > threshold+15 {
		t.Errorf("%d requests of the attacker passed, want %d or a few more", passed, threshold)
	}
	eventually(t, "all nodes refuse the attacker", func() bool { return attacker.refusedBy(6) == "edge-1 edge-2 edge-3" })
	for _, a := range attacker.ask(6, "X-Forwarded-For: 203.0.113.7") {
		if a.status != http.StatusTooManyRequests || a.retryAfter == "" {
			t.Errorf("%s answers the attacker %d, want 429", a.node, a.status)
		}
	}
	claim := "PROXY TCP4 203.0.113.7 203.0.113.8 1 1"
	if a := attacker.send(1, "edge-1", []string{claim, "GET / HTTP/1.1", "Host: pop.example", "Connection: close"})[0]; a.status == http.StatusOK {
		t.Error("a node trusts a PROXY header from a client")
	}
	if got := innocent.passedBy(6); got != "edge-1 edge-2 edge-3" {
		t.Errorf("nodes that let the innocent client pass: %s, want all", got)
	}

	// Clients outside of Docker use the ports of this machine.
	outside := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience(t)}
	if status, body := get(t, outside, "http://"+p.port("front", "8080")); status != http.StatusOK || !strings.HasPrefix(body, "the origin answers ") {
		t.Errorf("from outside: %d %q, want 200 from the origin", status, body)
	}
	if status, body := get(t, outside, "http://"+p.port("grafana", "3000")+"/api/health"); status != http.StatusOK {
		t.Errorf("Grafana: %d %q", status, body)
	}
	prom := prometheus{t, outside, "http://" + p.port("prometheus", "9090")}
	eventually(t, "Prometheus sees three nodes", func() bool { return prom.value(`sum(up{job="edge"})`) == "3" })
	eventually(t, "Prometheus sees requests refused", func() bool {
		return prom.value(`count(sum by (instance) (edge_requests_total{rule="everything",verdict="blocked"}) > 0)`) == "3"
	})
	prom.checkAlerts()
	prom.checkDashboard(func() { attacker.ask(1) })

	// A node and a memcached are down: the attacker is refused, the innocent client passes.
	p.docker("kill", p.container("edge-2"), p.container("memcached-2"))
	if got := innocent.passedBy(10); got != "edge-1 edge-3" {
		t.Errorf("nodes that let the innocent client pass without edge-2: %s", got)
	}
	if got := attacker.refusedBy(6); got != "edge-1 edge-3" {
		t.Errorf("nodes that refuse the attacker without edge-2: %s", got)
	}
	for _, node := range []string{"edge-1", "edge-3"} {
		eventually(t, node+" sees two nodes", func() bool { return innocent.metric(node, "edge_gossip_nodes") == "2" })
	}
	eventually(t, "Prometheus sees two nodes", func() bool { return prom.value(`sum(up{job="edge"})`) == "2" })
	if got := innocent.passedBy(6); got != "edge-1 edge-3" {
		t.Errorf("nodes that let the innocent client pass, some time after edge-2 was killed: %s", got)
	}

	// The secret survives a restart of the PoP, and only nodes can read it.
	before := p.keys()
	p.docker("start", "-a", p.container("keys"))
	if after := p.keys(); after != before {
		t.Errorf("keys\n%s\nwant\n%s", after, before)
	}
	if got := len(regexp.MustCompile(`(?m)^-rw-------.* 65532 +65532 `).FindAllString(before, -1)); got != 2 {
		t.Errorf("the keys are not two files that only nodes can read:\n%s", before)
	}

	// Both are back. A node is ready once it knows the mitigations.
	p.docker("start", p.container("edge-2"), p.container("memcached-2"))
	p.waitHealthy(10)
	for _, node := range nodes {
		eventually(t, node+" sees three nodes again", func() bool { return innocent.metric(node, "edge_gossip_nodes") == "3" })
	}
	eventually(t, "the front uses edge-2 again", func() bool { return strings.Contains(attacker.refusedBy(3), "edge-2") })
	// For some requests, HAProxy prefers a server that is back.
	if got := attacker.refusedBy(30); got != "edge-1 edge-2 edge-3" {
		t.Errorf("nodes that refuse the attacker with edge-2 back: %s, want all", got)
	}
	if got := innocent.passedBy(12); got != "edge-1 edge-2 edge-3" {
		t.Errorf("nodes that let the innocent client pass with edge-2 back: %s, want all", got)
	}
	eventually(t, "Prometheus sees three nodes again", func() bool { return prom.value(`sum(up{job="edge"})`) == "3" })

	// The nodes start again, with Redis.
	p.env = append(p.env, "COMPOSE_PROFILES=redis", "POP_SHARD=redis://redis-1:6379,redis://redis-2:6379,redis://redis-3:6379")
	p.compose("up", "-d")
	p.waitHealthy(13)
	for _, node := range nodes {
		eventually(t, node+" sees three nodes with Redis", func() bool { return innocent.metric(node, "edge_gossip_nodes") == "3" })
	}
	another := p.newClient("another")
	passed = 0
	eventually(t, "another attacker is refused", func() bool {
		answers := another.ask(15)
		passed += len(slices.DeleteFunc(answers, func(a answer) bool { return a.status != http.StatusOK }))
		return len(answers) > 0 && another.refusedBy(6) == "edge-1 edge-2 edge-3"
	})
	if passed < threshold-15 || passed > threshold+15 {
		t.Errorf("%d requests of another attacker passed with Redis, want about %d", passed, threshold)
	}
	shards := p.docker("exec", p.container("edge-1"), "/edge", "shards")
	if n := strings.Count(shards, "redis://redis-"); n != 3 || strings.Contains(shards, "memcached") {
		t.Errorf("edge shards with Redis:\n%s", shards)
	}
	if got := innocent.passedBy(12); got != "edge-1 edge-2 edge-3" {
		t.Errorf("nodes that let the innocent client pass with Redis: %s, want all", got)
	}
}

var nodes = []string{"edge-1", "edge-2", "edge-3"}

// A machine runs one of the test's PoPs at a time, so a test can remove the leftovers of a killed one. Their projects
// differ, since an engine may keep the network of an earlier one.
const projects = "edge-compose-test-"

var project = projects + strconv.Itoa(os.Getpid())

// A dockerPoP is a PoP that runs under Docker.
type dockerPoP struct {
	t     *testing.T
	tool  []string // docker-compose, or docker compose
	env   []string
	image string // of the nodes
}

// startPoP starts the PoP, which ends with the test, and waits until it is healthy.
func startPoP(t *testing.T) *dockerPoP {
	t.Helper()
	p := &dockerPoP{t: t, tool: composeTool(t), image: projects + "node"}
	lock(t)
	standIns(t)
	p.env = append(os.Environ(),
		"POP_PORT=0", "POP_PROMETHEUS_PORT=0", "POP_GRAFANA_PORT=0", "POP_ORIGIN=", // any free ports
		"POP_NETWORK="+freeNetwork(t), "POP_IMAGE="+p.image,
		"DOCKER_BUILDKIT=0", // the builder that is in every engine
	)
	p.remove()
	t.Cleanup(func() {
		if t.Failed() {
			logs, _ := p.tryCompose("logs", "--no-color", "--tail=40")
			t.Log(logs)
		}
		p.remove()
	})
	p.compose("build", "edge-1")
	const about = `{{.Config.User}} {{index .Config.Labels "org.opencontainers.image.source"}}`
	if got, want := p.docker("image", "inspect", "--format", about, p.image), "65532:65532 https://github.com/edgelimit/edge"; got != want {
		t.Errorf("the image of a node has user and source %q, want %q", got, want)
	}
	if v := p.docker("run", "--rm", "--network", "none", "--read-only", "--cap-drop", "ALL", p.image, "version"); !strings.HasPrefix(v, "edge ") {
		t.Errorf("edge version in the image of a node: %q", v)
	}
	p.compose("up", "-d")
	p.waitHealthy(10)
	return p
}

// remove removes everything that this test or an earlier one has created.
func (p *dockerPoP) remove() {
	p.removeContainers("name=^" + projects)
	for _, network := range strings.Fields(p.tryDocker("network", "ls", "-q", "--filter", "name=^"+projects)) {
		// Some engines never remove a network if two of its containers ended at the same time.
		if out, err := command(p.t, nil, nil, "docker", "network", "rm", network); err != nil {
			p.t.Logf("a network remains: %v\n%s", err, out)
		}
	}
	for _, volume := range strings.Fields(p.tryDocker("volume", "ls", "-q", "--filter", "name=^"+projects)) {
		if out, err := command(p.t, nil, nil, "docker", "volume", "rm", volume); err != nil {
			p.t.Errorf("%v\n%s", err, out)
		}
	}
	p.tryDocker("rmi", p.image)
	// The builder leaves containers and images with the labels of the stand-in that it started from.
	p.removeContainers("label=" + standInLabel)
	p.tryDocker("image", "prune", "-f", "--filter", "label="+standInLabel)
}

// keys describes the files in the volume of the secret and the gossip key.
func (p *dockerPoP) keys() string {
	p.t.Helper()
	return p.docker("run", "--rm", "--network", "none", "--volume", project+"_keys:/keys:ro", "--user", "0", "--entrypoint", "sh", memcachedImage,
		"-c", "ls -ln /keys; cd /keys; sha256sum *")
}

// removeContainers removes containers, running or not, one after the other.
func (p *dockerPoP) removeContainers(filter string) {
	for _, id := range strings.Fields(p.tryDocker("ps", "-aq", "--filter", filter)) {
		p.tryDocker("rm", "-f", id)
	}
}

func (p *dockerPoP) compose(args ...string) string {
	p.t.Helper()
	out, err := p.tryCompose(args...)
	if err != nil {
		p.t.Fatalf("%v\n%s", err, out)
	}
	return out
}

func (p *dockerPoP) tryCompose(args ...string) (string, error) {
	args = slices.Concat(p.tool[1:], []string{"-f", "../docker-compose.yml", "-p", project}, args)
	return command(p.t, p.env, nil, p.tool[0], args...)
}

func (p *dockerPoP) docker(args ...string) string {
	p.t.Helper()
	out, err := command(p.t, nil, nil, "docker", args...)
	if err != nil {
		p.t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// tryDocker runs a command that may fail.
func (p *dockerPoP) tryDocker(args ...string) string {
	out, _ := command(p.t, nil, nil, "docker", args...)
	return out
}

// container returns the ID of the container of a service.
func (p *dockerPoP) container(service string) string {
	p.t.Helper()
	return p.docker("ps", "-aq", "--filter", "label=com.docker.compose.project="+project, "--filter", "label=com.docker.compose.service="+service)
}

// port returns the address on this machine of a port of a service.
func (p *dockerPoP) port(service, port string) string {
	p.t.Helper()
	first, _, _ := strings.Cut(p.docker("port", p.container(service), port), "\n")
	addr, err := netip.ParseAddrPort(first)
	if err != nil {
		p.t.Fatal(err)
	}
	if addr.Addr().IsUnspecified() {
		addr = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), addr.Port())
	}
	return addr.String()
}

// waitHealthy waits until this many services are healthy: nodes, memcached, origin, front, Prometheus, Grafana, and Redis
// if its profile is chosen.
func (p *dockerPoP) waitHealthy(services int) {
	p.t.Helper()
	var last string
	defer func() {
		if p.t.Failed() {
			p.t.Log(last)
		}
	}()
	eventually(p.t, "all services are healthy", func() bool {
		last = p.docker("ps", "--filter", "label=com.docker.compose.project="+project, "--format", "{{.Names}} {{.Status}}")
		return strings.Count(last, "(healthy)") == services
	})
}

// composeTool returns the command of Docker Compose. Without a Docker engine it skips the test; without the
// command it calls harness.Unavailable.
func composeTool(t *testing.T) []string {
	t.Helper()
	if out, err := command(t, nil, nil, "docker", "info"); err != nil {
		t.Skipf("no Docker engine is running: %v\n%s", err, out)
	}
	for _, tool := range [][]string{{"docker-compose"}, {"docker", "compose"}} {
		if _, err := command(t, nil, nil, tool[0], append(tool[1:], "version")...); err == nil {
			return tool
		}
	}
	harness.Unavailable(t, "docker-compose is not installed")
	return nil
}

// lock lets one test at a time use the project's name and the names of the images.
func lock(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(os.TempDir(), projects+"lock"), os.O_CREATE|os.O_RDONLY, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // which unlocks it
	eventually(t, "another test of the PoP has ended", func() bool {
		return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
	})
}

// freeNetwork returns the first three octets of a network that overlaps none of Docker's networks.
func freeNetwork(t *testing.T) string {
	t.Helper()
	ids, err := command(t, nil, nil, "docker", "network", "ls", "-q")
	if err != nil {
		t.Fatalf("%v\n%s", err, ids)
	}
	// The command fails if a network vanishes meanwhile, but prints the others.
	out, _ := command(t, nil, nil, "docker", append([]string{"network", "inspect", "--format", "{{range .IPAM.Config}}{{.Subnet}} {{end}}"}, strings.Fields(ids)...)...)
	var taken []netip.Prefix
	for _, text := range strings.Fields(out) {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			taken = append(taken, prefix)
		}
	}
	for i := 100; i < 250; i++ {
		first := fmt.Sprintf("10.89.%d", i)
		ours := netip.MustParsePrefix(first + ".0/24")
		if !slices.ContainsFunc(taken, ours.Overlaps) {
			return first
		}
	}
	t.Fatal("no network is free")
	return ""
}

// patience returns how long a test waits for one thing: until its deadline, less the time to clean up. A busy
// machine builds for minutes.
func patience(t *testing.T) time.Duration {
	const cleaning = 90 * time.Second
	deadline, ok := t.Deadline()
	if !ok {
		return time.Hour
	}
	return max(time.Until(deadline)-cleaning, cleaning/3)
}

// command runs a command and returns its output, trimmed. If env is not nil, it replaces the test's environment.
func command(t *testing.T, env []string, stdin io.Reader, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience(t))
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Stdin = env, stdin
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(out.String()), err
}

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	harness.Until(t, what, patience(t), 100*time.Millisecond, ok)
}
