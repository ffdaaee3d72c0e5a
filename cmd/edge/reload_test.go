package main

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
)

// threshold returns rules whose threshold is in every answer.
func threshold(q int) string {
	return fmt.Sprintf("rules:\n  - {id: all, characteristics: [ip], limits: [{threshold: %d, period: 1h}]}\n", q)
}

// thresholdOf returns the current threshold of n.
func thresholdOf(t *testing.T, n *node) int {
	t.Helper()
	policy := get(t, http.DefaultClient, "http://"+n.http+"/").Header.Get("RateLimit-Policy")
	m := regexp.MustCompile(`q=(\d+)`).FindStringSubmatch(policy)
	if m == nil {
		t.Fatalf("RateLimit-Policy %q", policy)
	}
	q, _ := strconv.Atoi(m[1])
	return q
}

// loads runs change, after which n must have loaded rules of threshold q.
func (n *node) loads(q int, change func()) {
	n.t.Helper()
	mark := n.Stderr.Len()
	change()
	n.WaitSince(n.Stderr, mark, `level=INFO msg="rules loaded" rules=1\n`)
	if got := thresholdOf(n.t, n); got != q {
		n.t.Errorf("threshold after a reload = %d, want %d", got, q)
	}
	if got := value(n.t, metrics(n.t, n.metrics), "edge_rules_last_reload_successful"); got != 1 {
		n.t.Errorf("edge_rules_last_reload_successful = %v, want 1", got)
	}
}

// refuses runs change, after which n must still use rules of threshold q and have logged the reason.
func (n *node) refuses(q int, why string, change func()) {
	n.t.Helper()
	mark := n.Stderr.Len()
	change()
	n.WaitSince(n.Stderr, mark, `level=ERROR msg="[^"]*previous (version|ones)[^"]* in force" err="?[^\n]*`+why)
	if got := thresholdOf(n.t, n); got != q {
		n.t.Errorf("threshold after a failed reload = %d, want %d", got, q)
	}
	if got := value(n.t, metrics(n.t, n.metrics), "edge_rules_last_reload_successful"); got != 0 {
		n.t.Errorf("edge_rules_last_reload_successful = %v, want 0", got)
	}
}

const badRules = "rules:\n  - {id: all, characteristics: [ip], limits: [{threshold: 0, period: 1h}]}\n"

func TestNodeReloadOnHangup(t *testing.T) {
	t.Parallel()
	n := startNode(t, threshold(100), "--origin="+newOrigin(t).URL)
	if got := thresholdOf(t, n); got != 100 {
		t.Fatalf("threshold = %d, want 100", got)
	}
	hangup := func(text string) func() {
		return func() {
			replace(t, n.rules, text)
			n.Signal(syscall.SIGHUP)
		}
	}
	n.loads(101, hangup(threshold(101)))
	n.refuses(101, regexp.QuoteMeta(n.rules)+`:2:\d+: threshold cannot be 0`, hangup(badRules))
	n.refuses(101, "no such file or directory", func() {
		if err := os.Remove(n.rules); err != nil {
			t.Fatal(err)
		}
		n.Signal(syscall.SIGHUP)
	})
	n.loads(102, hangup(threshold(102)))
	n.Terminate()
}

// A node keeps its rules if the new ones have more sub-windows than --max-nodes allows.
func TestNodeReloadOfTooManySubWindows(t *testing.T) {
	t.Parallel()
	packed := func(q, n int) string {
		return fmt.Sprintf("rules:\n  - {id: all, characteristics: [ip], limits: [{threshold: %d, period: 1h, sub_windows: %d}]}\n", q, n)
	}
	n := startNode(t, packed(90, 5), "--origin="+newOrigin(t).URL, "--max-nodes=129")
	n.refuses(90, regexp.QuoteMeta(n.rules)+`:2:1: rule all: the limit of 91 in 1h has 6 sub-windows, which are for at most 128 nodes[^\n]*\(write sub_windows: 5\)`, func() {
		replace(t, n.rules, packed(91, 6))
		n.Signal(syscall.SIGHUP)
	})
	n.loads(92, func() {
		replace(t, n.rules, packed(92, 5))
		n.Signal(syscall.SIGHUP)
	})
	n.Terminate()
}

func TestNodeReloadOnChange(t *testing.T) {
	t.Parallel()
	n := startNode(t, threshold(100), "--origin="+newOrigin(t).URL)
	n.loads(101, func() { write(t, n.rules, threshold(101)) })
	n.refuses(101, regexp.QuoteMeta(n.rules)+`:2:\d+: threshold cannot be 0`, func() { write(t, n.rules, badRules) })
	n.loads(102, func() { replace(t, n.rules, threshold(102)) })
	n.Terminate()
}

// Kubernetes mounts a ConfigMap as links to ..data, which is a link to the directory of the current version,
// and replaces that link.
func TestNodeReloadOnLinkSwitch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	version := func(name, text string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "rules.yaml"), text)
		link(t, name, filepath.Join(dir, "..data"))
	}
	version("..2001", threshold(100))
	link(t, filepath.Join("..data", "rules.yaml"), filepath.Join(dir, "rules.yaml"))
	n := startNodeOf(t, dir, "--origin="+newOrigin(t).URL)
	n.loads(101, func() { version("..2002", threshold(101)) })
	n.refuses(101, `rules\.yaml:2:\d+: threshold`, func() { version("..2003", badRules) })
	n.loads(102, func() { version("..2004", threshold(102)) })
	n.Terminate()
}

// link creates a link, or replaces it at once.
func link(t *testing.T, to, name string) {
	t.Helper()
	if err := os.Symlink(to, name+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

func TestNodeReloadCertificate(t *testing.T) {
	t.Parallel()
	first, second := newCertificate(t, "first"), newCertificate(t, "second")
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write(t, cert, first.cert)
	write(t, key, first.key)
	n := startNode(t, threshold(100), "--origin="+newOrigin(t).URL, "--listen=", "--tls-listen=127.0.0.1:0", "--tls-cert="+cert, "--tls-key="+key)
	shown := func() string {
		t.Helper()
		conn, err := tls.Dial("tcp", n.https, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if got := shown(); got != "first" {
		t.Fatalf("certificate %s, want first", got)
	}
	// Only half of the pair changes: the key of another certificate. The new rules are invalid, too. Both
	// errors are logged.
	mark := n.Stderr.Len()
	replace(t, cert, second.cert)
	replace(t, n.rules, badRules)
	n.Signal(syscall.SIGHUP)
	n.WaitSince(n.Stderr, mark, `level=ERROR msg="cannot reload the rules; the previous ones stay in force" err=.*threshold cannot be 0`)
	n.WaitSince(n.Stderr, mark, `level=ERROR msg="reload failed; the previous version stays in force" err="pop: loading the certificate: tls: private key`)
	if got := shown(); got != "first" {
		t.Errorf("certificate %s after a failed reload, want first", got)
	}
	// The node notices the other half.
	mark = n.Stderr.Len()
	replace(t, key, second.key)
	replace(t, n.rules, threshold(101))
	n.WaitSince(n.Stderr, mark, `msg="rules loaded"`)
	eventually(t, "the second certificate is shown", func() bool { return shown() == "second" }) // files are checked one by one
	n.Terminate()
}
