package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/internal/harness"
)

// The examples in the help and the README's commands work when pasted.
func TestExamples(t *testing.T) {
	t.Parallel()
	harness.Installed(t, "bash")
	harness.Installed(t, "jq")
	var examples strings.Builder
	var add func(cmd *cobra.Command)
	add = func(cmd *cobra.Command) {
		examples.WriteString(strings.ReplaceAll(cmd.Example, "\\\n", " ") + "\n")
		for _, c := range cmd.Commands() {
			add(c)
		}
	}
	add(newRoot(io.Discard, io.Discard))
	for line := range strings.Lines(strings.Join(blocks(t, "../../README.md", "sh"), "")) {
		if strings.HasPrefix(line, "edge ") {
			examples.WriteString(line)
		}
	}
	asked := startNode(t, generous, "--origin=http://"+harness.ReservePort(t))
	tried := map[string]bool{}
	for line := range strings.Lines(examples.String()) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "  #")
		if line = strings.TrimSpace(line); tried[line] || line == "" || line[0] == '#' {
			continue
		}
		tried[line] = true
		t.Run(strings.ReplaceAll(line, ",", " "), func(t *testing.T) {
			t.Parallel()
			if asks.MatchString(line) {
				tryAsking(t, line, asked)
			} else {
				tryExample(t, line, asked)
			}
		})
	}
	if len(tried) < 40 {
		t.Errorf("%d examples, want at least 40", len(tried))
	}
}

// asks matches commands that ask a node.
var asks = regexp.MustCompile(`^edge (mitigations|explain|status|shards|nodes|rules|reload|changes)`)

// tryAsking runs an example that asks a node. If it names a rule, key, ID or shard, or lifts, the node
// rejects it because it has none.
func tryAsking(t *testing.T, example string, n *node) {
	p := startCommand(t, t.TempDir(), nil, "bash", "-c", example+" --node "+n.admin)
	code, refused := p.End(), regexp.MustCompile("lift|7kq2-m9xd|rule=|--rule|header:|drain").MatchString(example)
	if strings.Contains(example, "lift 192.0.2.1") && code == 0 {
		return // another example has refused this client
	}
	if !refused && (code != 0 || p.Stdout.String() == "") || refused && (code != 1 || !strings.HasPrefix(p.Stderr.String(), "edge: node ")) {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, p.Stdout, p.Stderr)
	}
}

func tryExample(t *testing.T, example string, asked *node) {
	dir := t.TempDir()
	write(t, dir+"/rules.yaml", generous)
	write(t, dir+"/cases.yaml", "rules: [rules.yaml]\ncases: [{name: one passes, requests: [{at: 0s, expect: passed}]}]\n")
	write(t, dir+"/secret", "0123456789abcdef\n")
	write(t, dir+"/new.yaml", generous)
	write(t, dir+"/web.yaml", generous)
	var log strings.Builder
	for minute := range 60 {
		fmt.Fprintf(&log, `203.0.113.7 - - [02/Jan/2026:15:%02d:05 +0000] "GET /a?b=c HTTP/1.1" 200 512 "-" "curl/8.5.0"`+"\n", minute)
	}
	write(t, dir+"/access.log", log.String())
	if err := os.Mkdir(dir+"/rules.d", 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/rules.d/all.yaml", generous)
	for i := range 3 {
		name := fmt.Sprintf("node-%d", i+1)
		write(t, dir+"/"+name+".decisions", `{"event":"node","t":1,"version":1,"node":"`+name+`","reason":"start","secret":"a","share":1}
{"event":"rule","t":1,"ref":1,"rule":"all","definition":{"counts":"All requests","limits":[{"threshold":1,"period_s":1,"estimate":"weighted"}],"mitigation_timeout_s":0,"action":"block"}}
{"event":"decision","t":1,"ref":1,"rule":"all","key":"00000000000000000000000000000001","cost":1,"verdict":"passed","counted":true}
`)
	}
	write(t, dir+"/node.yaml", `
rules: rules.yaml
origin: http://127.0.0.1:3000
`)
	write(t, dir+"/nginx.conf", "limit_req_zone $binary_remote_addr zone=one:1m rate=1r/s;\nlimit_req zone=one;\n")
	write(t, dir+"/ingress.yaml", "kind: Ingress\nmetadata: {name: a, annotations: {nginx.ingress.kubernetes.io/limit-rps: '5'}}\n")
	write(t, dir+"/ratelimit.yaml", "domain: a\ndescriptors: [{key: remote_address, rate_limit: {unit: day, requests_per_unit: 5}}]\n")
	if strings.HasPrefix(example, "edge load") {
		server := httptest.NewServer(http.NotFoundHandler())
		defer server.Close()
		example = strings.NewReplacer("http://127.0.0.1:8080", server.URL, "-d 10s", "-d 500ms", "--duration 10s", "-d 500ms", "-d 2s", "-d 500ms", "p99_ms > 20", "p99_ms > 60000").Replace(example) // another test runs it in full
	}
	if strings.Contains(example, " merge ") {
		example = "edge replay accuracy --part 1/1 access.log > part-1.json && " + example
	}
	// Their ports may be in use on this machine.
	env := []string{"EDGE_LISTEN=127.0.0.1:0"}
	args := strings.Fields(example)
	if args[1] == "healthcheck" {
		env = []string{"EDGE_METRICS_LISTEN=" + asked.metrics}
	}
	example = strings.Replace(example, "generate attack --over", "generate attack --requests 1000 --over", 1)
	example = strings.Replace(example, "/etc/edge/", "", 1)
	demonstrates := strings.Contains(example, "--demo")
	example = strings.Replace(example, "--demo", "--demo=1s", 1) // another test runs it in full
	serves := !demonstrates && args[0] == "edge" && (args[1] == "node" || args[1] == "pop" || args[1] == "shard")
	if serves {
		example = "exec " + strings.TrimSuffix(example, "&")
		if args[1] != "pop" {
			env = append(env, "EDGE_METRICS_LISTEN=127.0.0.1:0", "EDGE_ADMIN_LISTEN=127.0.0.1:0")
		}
	}
	p := startCommand(t, dir, env, "bash", "-o", "pipefail", "-c", example)
	if serves {
		out, expr := p.Stdout, map[string]string{"pop": `Press Ctrl-C to stop`, "shard": `listens on`}[args[1]]
		if args[1] == "node" {
			out, expr = p.Stderr, `node started`
		}
		p.Wait(out, expr)
		p.Signal(syscall.SIGTERM)
	}
	if code := p.End(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if !serves && !demonstrates && p.Stderr.String() != "" && args[0] == "edge" {
		t.Errorf("stderr %q", p.Stderr)
	}
}
