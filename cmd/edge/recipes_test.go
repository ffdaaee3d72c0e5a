package main

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/harness"
)

// A recipe is a section of docs/recipes.md: its rules and its command, if it has one.
type recipe struct{ rules, command string }

// recipes returns the recipes by heading.
func recipes(t *testing.T) map[string]recipe {
	t.Helper()
	text, err := os.ReadFile("../../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]recipe{}
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		heading, body, _ := strings.Cut(section, "\n")
		var r recipe
		for _, m := range regexp.MustCompile("(?ms)^```(yaml|sh)\n(.*?)^```$").FindAllStringSubmatch(body, -1) {
			if m[1] == "yaml" {
				r.rules = m[2] // the last ones
			} else {
				r.command = m[2]
			}
		}
		all[heading] = r
	}
	return all
}

// prepare writes the rules of a recipe, and returns their file. Its directory gets the other files, given as name, text, ….
func prepare(t *testing.T, rules string, files ...string) (rulesFile string) {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		write(t, filepath.Join(dir, files[i]), files[i+1])
	}
	rulesFile = filepath.Join(dir, "rules.yaml")
	write(t, rulesFile, rules)
	return rulesFile
}

// output runs a command in the directory of a rules file, and returns what it writes.
func output(t *testing.T, rules, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = filepath.Dir(rules), environ()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

// The rules that decide by the request alone do what the recipes say.
func TestRecipeRules(t *testing.T) {
	t.Parallel()
	all := recipes(t)
	for heading, cases := range map[string]string{
		"Exempt assets": `
- {at: 0s, count: 61, every: 100ms, expect: passed, path: /}
- {at: 7s, expect: blocked, path: /, rule: pages}
- {at: 8s, count: 1000, every: 10ms, expect: passed, path: /static/a.css}
- {at: 20s, expect: passed, path: /favicon.ico}`,
		"A month, a calendar day, nothing at all": `
- {at: 0s, client: 198.51.100.1, expect: passed, count: 100, every: 100ms}
- {at: 20s, client: 192.0.2.1, expect: denied}`,
	} {
		if all[heading].rules == "" {
			t.Fatalf("no recipe %q", heading)
		}
		file := prepare(t, all[heading].rules, "cases.yaml", "rules: [rules.yaml]\ncases:\n- name: recipe\n  requests:"+strings.ReplaceAll(cases, "\n", "\n  "))
		output(t, file, "edge", "check", "--test", "cases.yaml")
	}
	text, err := os.ReadFile("../../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		file := prepare(t, m[1], "plans.csv", "header:x-api-key,1m,1h\nk,1,2\n", "asn.txt", "192.0.2.0/24 AS64500\n")
		if out := output(t, file, "edge", "check", "rules.yaml"); strings.Contains(out, "never applies") {
			t.Errorf("rules that never apply:\n%s", out)
		}
	}
}

// Nodes load plans that the recipe's command exports from a database, while they serve requests. No request fails or is
// refused because of that.
func TestRecipePlans(t *testing.T) {
	t.Parallel()
	r := recipes(t)["Plans from a database"]
	file := prepare(t, r.rules, "plans.csv", "header:x-api-key,1m,1h\n")
	query := func(sql string) { output(t, file, "sqlite3", "plans.db", ".timeout 60000", sql) }
	query(`CREATE TABLE plans (api_key TEXT PRIMARY KEY, per_minute INTEGER, per_hour INTEGER);
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
		INSERT INTO plans SELECT 'k-' || i, 500000 + i % 1000, CASE WHEN i % 2 THEN 9000000 END FROM n`)
	startCommand(t, filepath.Dir(file), nil, "bash", "-c", r.command)
	harness.Until(t, "the plans are exported", patience, 10*time.Millisecond, func() bool {
		info, err := os.Stat(filepath.Join(filepath.Dir(file), "plans.csv"))
		return err == nil && info.Size() > 1e6
	})
	n, clients := startNodeOf(t, file, "--origin="+newOrigin(t).URL, "--trusted-proxy=127.0.0.1"), 0
	policy := func(key string) string {
		req, err := http.NewRequest("GET", "http://"+n.http, nil)
		if err != nil {
			t.Fatal(err)
		}
		clients++ // each request is from a new address, so that only the key is limited
		req.Header = http.Header{"X-Api-Key": {key}, "X-Forwarded-For": {netip.AddrFrom4([4]byte{10, 0, byte(clients >> 8), byte(clients)}).String()}}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("a request with the key %s gets %s", key, resp.Status)
		}
		return resp.Header.Get("RateLimit-Policy")
	}
	for change := range 5 {
		query(fmt.Sprintf("UPDATE plans SET per_minute = %d + per_minute; UPDATE plans SET per_minute = 7000000 + %d WHERE api_key = 'k-99999'", change, change))
		want := fmt.Sprintf(`"api/1m";q=%d;w=60, "api/1h";q=9000000;w=3600`, 7000000+change)
		harness.Until(t, "the node has plan "+want, patience, 10*time.Millisecond, func() bool { return strings.HasPrefix(policy("k-99999"), want) })
	}
	if got, want := policy("k-2"), `"api/1m";q=500012;w=60, "api/1h";q=1000;w=3600`; !strings.HasPrefix(got, want) {
		t.Errorf("a plan without a threshold for an hour: %s, want %s", got, want)
	}
	if got, want := policy("another"), `"api/1m";q=60;w=60, "api/1h";q=1000;w=3600`; !strings.HasPrefix(got, want) {
		t.Errorf("a key without a plan: %s, want %s", got, want)
	}
}

// The recipe's command makes labels of CAIDA's files.
func TestRecipeSystems(t *testing.T) {
	t.Parallel()
	r := recipes(t)["Autonomous systems from a free file"]
	file := prepare(t, r.rules)
	for name, text := range map[string]string{
		"routeviews-rv2-20261126-1200.pfx2as.gz": "192.0.2.0\t24\t64500\n198.51.100.0\t25\t64500_64501\n203.0.113.0\t24\t64502,64503\n",
		"routeviews-rv6-20261126-1200.pfx2as.gz": "2001:db8::\t32\t64504\n",
	} {
		var packed strings.Builder
		w := gzip.NewWriter(&packed)
		_, _ = io.WriteString(w, text)
		_ = w.Close()
		write(t, filepath.Join(filepath.Dir(file), name), packed.String())
	}
	output(t, file, "bash", "-c", r.command)
	got, err := os.ReadFile(filepath.Join(filepath.Dir(file), "asn.txt"))
	want := "192.0.2.0/24 AS64500\n198.51.100.0/25 AS64500_64501\n203.0.113.0/24 AS64502,64503\n2001:db8::/32 AS64504\n"
	if err != nil || string(got) != want {
		t.Errorf("labels %q, %v; want %q", got, err, want)
	}
	output(t, file, "edge", "check", "rules.yaml")
}

// A handshake counts, and what follows does not. An open connection stays open when its client is mitigated.
func TestRecipeSockets(t *testing.T) {
	t.Parallel()
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(conn, conn)
	}))
	t.Cleanup(origin.Close)
	n := startNodeOf(t, prepare(t, recipes(t)["WebSockets"].rules), "--origin="+origin.URL)
	open := func() (net.Conn, *bufio.Reader, int) {
		conn, err := net.Dial("tcp", n.http)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		br := bufio.NewReader(conn)
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		return conn, br, resp.StatusCode
	}
	conn, br, status := open()
	if status != http.StatusSwitchingProtocols {
		t.Fatalf("the first handshake gets %d", status)
	}
	echo := func() {
		t.Helper()
		_, _ = io.WriteString(conn, "hello")
		got := make([]byte, 5)
		if _, err := io.ReadFull(br, got); err != nil || string(got) != "hello" {
			t.Fatalf("what the origin sent is %q, %v", got, err)
		}
	}
	for range 1000 {
		echo()
	}
	if got := value(t, metrics(t, n.metrics), "edge_requests_counted_total", "rule", "sockets"); got != 1 {
		t.Errorf("%v requests counted, want the handshake alone", got)
	}
	harness.Until(t, "further handshakes are refused", patience, time.Millisecond, func() bool {
		_, _, status := open()
		return status == http.StatusTooManyRequests
	})
	echo()
}
