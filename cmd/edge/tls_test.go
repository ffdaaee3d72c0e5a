package main

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A client of ACME renews an expired certificate behind a node that redirects: the authority reaches the client through the
// node, and the node loads the files that the client writes.
func TestRenewal(t *testing.T) {
	t.Parallel()
	acme := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, _ := strings.CutPrefix(r.URL.Path, "/.well-known/acme-challenge/")
		_, _ = io.WriteString(w, token+".thumbprint of "+r.Host)
	}))
	t.Cleanup(acme.Close)
	dir := t.TempDir()
	live := filepath.Join(dir, "a.example")
	if err := os.Mkdir(live, 0o755); err != nil {
		t.Fatal(err)
	}
	certify(t, 1, time.Now().Add(-time.Hour), live+"/fullchain.pem", live+"/privkey.pem")
	n := startNode(t, generous, "--origin="+newOrigin(t).URL, "--acme-origin="+acme.URL, "--tls-listen=127.0.0.1:0", "--tls-certs="+dir, "--tls-redirect=443")
	n.Wait(n.Stderr, `level=WARN msg="clients refuse the certificate of a\.example \(\S+/fullchain\.pem, valid from \S+ until \S+\): renew it, or correct the clock; see docs/problems\.md#certificate" problem=certificate\n`)

	c := &http.Client{Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	ask := func(path string) answer {
		r, err := http.NewRequest("GET", "http://"+n.http+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "a.example"
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer{resp, string(body)}
	}
	if a := ask("/page"); a.StatusCode != http.StatusMovedPermanently || a.Header.Get("Location") != "https://a.example/page" {
		t.Errorf("%s to %s", a.Status, a.Header.Get("Location"))
	}
	if a := ask("/.well-known/acme-challenge/token"); a.StatusCode != http.StatusOK || a.body != "token.thumbprint of a.example" {
		t.Errorf("the authority gets %s, %q", a.Status, a.body)
	}
	mark := n.Stderr.Len()
	certify(t, 0xABCDEF, time.Now().Add(90*24*time.Hour), live+"/fullchain.pem", live+"/privkey.pem")
	n.WaitSince(n.Stderr, mark, `level=INFO msg="certificate loaded" name=a\.example serial=ABCDEF `)
	n.WaitSince(n.Stderr, mark, `problem resolved.* problem=certificate\n`)
	conn, err := tls.Dial("tcp", n.https, &tls.Config{ServerName: "a.example", InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(); got != 0xABCDEF {
		t.Errorf("certificate %X, want the renewed one", got)
	}
	if out := output(t, n.rules, "edge", "status", "--node="+n.admin); !regexp.MustCompile(`(?m)^certificate +a\.example: serial ABCDEF, until 20\S+Z$`).MatchString(out) {
		t.Errorf("edge status: %s", out)
	}
	if a := get(t, http.DefaultClient, "http://"+n.metrics+"/metrics"); !strings.Contains(a.body, `edge_tls_certificate_not_after_seconds{name="a.example"} 1.`) {
		t.Error("no metric has the certificate")
	}
	n.Terminate()
}

// edge check reports certificates that a node would refuse to load, and warns about those that clients refuse.
func TestCheckCertificates(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/rules.yaml", "rules: []\n")
	settings := dir + "/node.yaml"
	write(t, settings, "name: edge-1\nrules: ["+dir+"/rules.yaml]\norigin: http://localhost:3000\ntls_listen: 127.0.0.1:0\ntls_certs: ["+dir+"/a.pem:"+dir+"/a.key]\n")
	check := func(status int, want string) {
		t.Helper()
		var stdout, stderr strings.Builder
		if got := run([]string{"check", settings}, &stdout, &stderr); got != status || !strings.Contains(stdout.String()+stderr.String(), want) {
			t.Errorf("status %d, want %d, and %q in %s%s", got, status, want, stdout.String(), stderr.String())
		}
	}
	check(2, "node.yaml:5:12: invalid tls_certs: "+dir+"/a.pem: no such file or directory\n")
	certify(t, 1, time.Now().Add(-time.Hour), dir+"/a.pem", dir+"/a.key")
	check(0, "clients refuse the certificate of a.example ("+dir+"/a.pem, valid from ")
	check(0, "node.yaml is valid: node edge-1 with 0 rules\n")
	writeCertificate(t, 1, dir+"/b.pem", dir+"/a.key")
	check(2, "node.yaml:5:12: invalid tls_certs: "+dir+"/a.key is not the key of the first certificate in "+dir+"/a.pem; ")
}
