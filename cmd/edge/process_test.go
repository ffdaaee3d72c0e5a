package main

// Helpers of tests that run processes.

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/operate"
)

const patience = harness.Patience

// start runs edge with args in dir. The process ends with the test.
func start(t *testing.T, dir string, args ...string) *harness.Process {
	t.Helper()
	return startCommand(t, dir, nil, "edge", args...)
}

// startCommand runs a command in dir. Its environment is env and the test's own, without settings.
func startCommand(t *testing.T, dir string, env []string, name string, args ...string) *harness.Process {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, environ(env...)
	return harness.Start(t, cmd)
}

// A node is a running edge node.
type node struct {
	*harness.Process
	http, https, metrics, admin, gossip string // its addresses
	rules                               string // its rules file
}

// Rules that refuse nobody in a test, and rules that are easily exceeded.
const (
	generous    = "rules:\n  - {id: all, characteristics: [ip], limits: [{threshold: 100000, period: 1m}]}\n"
	fiftyAnHour = "rules:\n  - {id: all, characteristics: [ip], limits: [{threshold: 50, period: 1h}], mitigation_timeout: 1h}\n"
	oneAWeek    = `rules:
  - {id: once, match: {paths: [/once]}, characteristics: [ip], limits: [{threshold: 1, period: 7d}], response: {status: 418, body: "no"}}
  - {id: all, characteristics: [ip], limits: [{threshold: 100000, period: 1m}]}
`
)

// startNode writes the rules to a file and runs edge node with it.
func startNode(t *testing.T, rules string, args ...string) *node {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, file, rules)
	return startNodeOf(t, file, args...)
}

// startNodeOf runs edge node with a rules file.
func startNodeOf(t *testing.T, rules string, args ...string) *node {
	t.Helper()
	args = append([]string{"node", "--name=n1", "--rules=" + rules, "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"}, args...)
	n := &node{Process: start(t, t.TempDir(), args...), rules: rules}
	m := n.Wait(n.Stderr, `node started.*\n`)
	for name, addr := range map[string]*string{"http": &n.http, "https": &n.https, "metrics": &n.metrics, "admin": &n.admin, "gossip": &n.gossip} {
		if a := regexp.MustCompile(`\b` + name + `=(127\.0\.0\.1:\d+)`).FindStringSubmatch(m[0]); a != nil {
			*addr = a[1]
		}
	}
	return n
}

// status requests a path from a node and returns the status.
func (n *node) status(t *testing.T, path string) int {
	t.Helper()
	return get(t, http.DefaultClient, "http://"+n.http+path).StatusCode
}

// ask sends a request of a client to a node and returns the answer, which is nil if there is none.
func (n *node) ask(client string) *http.Response { return n.askFor(client, "/") }

// askFor is ask for a path.
func (n *node) askFor(client, path string) *http.Response {
	r, err := http.NewRequest("GET", "http://"+n.http+path, nil)
	if err != nil {
		return nil
	}
	r.Header.Set("X-Forwarded-For", client)
	resp, err := http.DefaultClient.Do(r)
	if err == nil {
		resp.Body.Close()
	}
	return resp
}

// statusFor is like ask, but returns the status of the answer, or 0 if there is none.
func (n *node) statusFor(client string) int {
	if resp := n.ask(client); resp != nil {
		return resp.StatusCode
	}
	return 0
}

// ready waits until a node reports ready.
func (n *node) ready(t *testing.T) {
	t.Helper()
	eventually(t, "the node is ready", func() bool {
		a, err := try(http.DefaultClient, "http://"+n.metrics+"/readyz")
		return err == nil && a.StatusCode == http.StatusOK
	})
}

// A pointOfPresence is several edge node processes that gossip and share two shards.
type pointOfPresence struct {
	t      *testing.T
	dir    string
	shards []string
	rules  string
	keys   string // file
	nodes  []*node
}

// ownShards stands for the shards inside the nodes.
var ownShards = []string{"own", "own"}

// startProcesses starts a PoP of edge node processes. If no shards are given, it starts two.
func startProcesses(t *testing.T, nodes int, rules string, shards ...string) *pointOfPresence {
	t.Helper()
	p := &pointOfPresence{t: t, dir: t.TempDir(), shards: shards, nodes: make([]*node, nodes)}
	for len(p.shards) < 2 {
		_, addr := startShard(t)
		p.shards = append(p.shards, addr)
	}
	p.rules, p.keys = p.dir+"/rules.yaml", p.dir+"/keys"
	write(t, p.rules, rules)
	write(t, p.keys, gossipKey(1))
	write(t, p.dir+"/secret", "a secret of the tests")
	for i := range nodes {
		p.start(i)
	}
	p.whole()
	return p
}

func gossipKey(n byte) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune('a'+n)), 32))) + "\n"
}

// start starts the ith node, which joins the others.
func (p *pointOfPresence) start(i int) {
	p.t.Helper()
	args := []string{fmt.Sprint("--name=n", i+1), "--origin=" + newOrigin(p.t).URL, "--secret-file=" + p.dir + "/secret",
		"--gossip-listen=127.0.0.1:0", "--gossip-key-file=" + p.keys, "--trusted-proxy=127.0.0.0/8"}
	if p.shards[0] == ownShards[0] {
		args = append(args, "--shard-listen=127.0.0.1:0")
	} else {
		args = append(args, "--shard="+strings.Join(p.shards, ","))
	}
	for j, other := range p.nodes {
		if j != i && other != nil {
			args = append(args, "--join="+other.gossip)
		}
	}
	p.nodes[i] = startNodeOf(p.t, p.rules, args...)
}

// whole waits until all nodes are peers of each other.
func (p *pointOfPresence) whole() {
	p.t.Helper()
	for _, n := range p.nodes {
		eventually(p.t, "all nodes are peers", func() bool {
			return value(p.t, metrics(p.t, n.metrics), "edge_gossip_nodes") == float64(len(p.nodes))
		})
	}
}

// exceed sends requests of a client to the nodes in turn until one is refused, at most maxRequests, and returns how
// many passed. If none is refused, all nodes must mitigate the client without another request, however late
// they count on a busy machine. In the end every node refuses the client.
func (p *pointOfPresence) exceed(client string, maxRequests int) (passed int) {
	p.t.Helper()
	records := func(n *node) float64 { return value(p.t, metrics(p.t, n.metrics), "edge_mitigation_records") }
	var before []float64
	for _, n := range p.nodes {
		before = append(before, records(n))
	}
	status := http.StatusOK
	for ; passed < maxRequests; passed++ {
		if status = p.nodes[passed%len(p.nodes)].statusFor(client); status != http.StatusOK {
			break
		}
	}
	if status != http.StatusOK && status != http.StatusTooManyRequests {
		p.t.Fatalf("%s got status %d", client, status)
	}
	for i, n := range p.nodes {
		eventually(p.t, fmt.Sprintf("%s is mitigated after %d requests", client, passed), func() bool {
			return status != http.StatusOK || records(n) > before[i]
		})
		eventually(p.t, "every node refuses", func() bool { return n.statusFor(client) == http.StatusTooManyRequests })
	}
	return passed
}

// shardsAre waits until every node knows this many shards and ok holds for all of them.
func (p *pointOfPresence) shardsAre(what string, shards int, ok func(operate.Shard) bool) {
	p.t.Helper()
	for _, n := range p.nodes {
		eventually(p.t, what, func() bool {
			var answer struct{ Shards []operate.Shard }
			if err := json.Unmarshal([]byte(get(p.t, http.DefaultClient, "http://"+n.admin+"/api/v1/shards").body), &answer); err != nil {
				p.t.Fatal(err)
			}
			return len(answer.Shards) == shards && !slices.ContainsFunc(answer.Shards, func(s operate.Shard) bool { return !ok(s) })
		})
	}
}

// newOrigin starts a site that answers with a description of the request.
func newOrigin(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s\nX-Forwarded-For: %s\n%s", r.Method, r.URL, r.Proto, r.Header.Get("X-Forwarded-For"), body)
	}))
	t.Cleanup(s.Close)
	return s
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// replace replaces a file atomically, as editors and deployment tools do.
func replace(t *testing.T, file, text string) {
	t.Helper()
	write(t, file+".new", text)
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// An answer is a response with its whole body.
type answer struct {
	*http.Response
	body string
}

// get returns the answer of url.
func get(t *testing.T, c *http.Client, url string) answer {
	t.Helper()
	a, err := try(c, url)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func try(c *http.Client, url string) (answer, error) {
	resp, err := c.Get(url)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp, string(body)}, err
}

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	harness.Until(t, what, patience, 50*time.Millisecond, ok)
}

// metrics reads a page of metrics.
func metrics(t *testing.T, addr string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(get(t, http.DefaultClient, "http://"+addr+"/metrics").body))
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// value returns the value of a metric, which has these labels if any are given.
func value(t *testing.T, families map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	t.Helper()
	for _, m := range families[name].GetMetric() {
		all := true
		for i := 0; i < len(labels); i += 2 {
			all = all && slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == labels[i] && l.GetValue() == labels[i+1] })
		}
		if all {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
		}
	}
	t.Fatalf("missing metric %s %v", name, labels)
	return 0
}
