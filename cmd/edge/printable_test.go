package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode"

	"github.com/edgelimit/edge/internal/lograte"
	"github.com/edgelimit/edge/operate"
)

// hostile is what a client may send: an escape sequence of terminals in C1 controls, one that changes the writing
// direction, and a character that nobody sees.
const hostile = "\u009b2J\u202e\u200b\x7f"

// hidden reports whether output has characters that a terminal obeys or does not show.
func hidden(output string) bool {
	return strings.ContainsFunc(output, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })
}

// Commands show what clients have sent without the characters that a terminal would obey.
func TestCommandsShowPrintableText(t *testing.T) {
	m := operate.Mitigation{Key: "4ec82b34d3119a04a0596a29590db008", Client: "192.0.2.1", Method: "GET", Host: hostile, Path: "/" + hostile, Why: "51 in 1m" + hostile, Node: hostile, Rule: hostile}
	answers := map[string]any{
		"/api/v1/explain":     operate.Explanation{Keys: []operate.KeyState{{Rule: "login", Key: m.Key, Mitigation: &m, Problem: hostile}}},
		"/api/v1/mitigations": operate.Mitigations{Mitigations: []operate.Mitigation{m}, Total: 1},
		"/api/v1/status":      operate.Status{Node: "n1", Ready: true, Problems: []string{hostile}, Mitigations: map[string]int{hostile: 1}},
		"/api/v1/shards":      operate.Shards{Shards: []operate.Shard{{Addr: hostile, InRing: true}}},
	}
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			_, _ = io.WriteString(w, "ready\n"+hostile+"\n")
			return
		}
		if answer, ok := answers[r.URL.Path]; !ok || json.NewEncoder(w).Encode(answer) != nil {
			t.Errorf("asked for %s", r.URL)
		}
	}))
	defer node.Close()
	addr := strings.TrimPrefix(node.URL, "http://")
	for _, args := range []string{"explain 192.0.2.1 --node", "explain 192.0.2.1 --json --node", "mitigations --node", "mitigations --json --node",
		"status --node", "status --json --node", "shards --node", "shards --json --node", "healthcheck"} {
		var stdout, stderr bytes.Buffer
		run(append(strings.Fields(args), addr), &stdout, &stderr)
		if hidden(stdout.String()) || hidden(stderr.String()) {
			t.Errorf("edge %s: %q, %q", args, stdout.String(), stderr.String())
		}
		if !strings.Contains(stdout.String(), `\u009b2J\u202e\u200b\u007f`) {
			t.Errorf("edge %s shows nothing of what a client sent: %q, %q", args, stdout.String(), stderr.String())
		}
		if strings.Contains(args, "--json") && !json.Valid(stdout.Bytes()) {
			t.Errorf("edge %s: not JSON: %q", args, stdout.String())
		}
	}
}

// Errors and both formats of the log have no such characters, either.
func TestLogsHavePrintableText(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		b := lograte.NewBacklog(&out)
		(&logging{format: format}).logger(b).Info("request", "uri", "/"+hostile, slog.Group(hostile, "a", 1))
		go b.Run(slog.New(slog.DiscardHandler))
		b.Stop()
		if hidden(out.String()) || !strings.Contains(out.String(), `\u009b2J\u202e\u200b`) || format == "json" && !json.Valid(out.Bytes()) {
			t.Errorf("%s: %q", format, out.String())
		}
	}
	var stdout, stderr bytes.Buffer
	if run([]string{"check", hostile + ".yaml"}, &stdout, &stderr); hidden(stderr.String()) || stderr.Len() == 0 {
		t.Errorf("error: %q", stderr.String())
	}
}
