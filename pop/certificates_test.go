package pop

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/edgelimit/edge/rule"
)

const day = 24 * time.Hour

// An issued is a certificate with its key.
type issued struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue returns a certificate for names that is valid for 60 days until end. Without an issuer it signs itself.
func issue(t *testing.T, serial int64, issuer *issued, end time.Time, names ...string) *issued {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: end.Add(-60 * day), NotAfter: end, IsCA: true, BasicConstraintsValid: true,
	}
	made := &issued{template, newKey(t)}
	if issuer == nil {
		issuer = made
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.cert, &made.key.PublicKey, issuer.key)
	if err == nil {
		made.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// pemOf returns the chain and the key of its first certificate.
func pemOf(t *testing.T, chain ...*issued) (certs, key string) {
	t.Helper()
	for _, i := range chain {
		certs += string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.cert.Raw}))
	}
	der, err := x509.MarshalPKCS8PrivateKey(chain[0].key)
	if err != nil {
		t.Fatal(err)
	}
	return certs, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// put replaces a file, and creates its directory.
func put(t *testing.T, file, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file+".new", []byte(text), 0o640)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// putPair writes NAME.crt with a chain and NAME.key with its key.
func putPair(t *testing.T, name string, chain ...*issued) {
	t.Helper()
	certs, key := pemOf(t, chain...)
	put(t, name+".crt", certs)
	put(t, name+".key", key)
}

// A logged is what a node has logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// take returns what was logged since the last call.
func (l *logged) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

// startTLS starts a node with these certificates, in front of an origin that nobody serves.
func startTLS(t *testing.T, log io.Writer, now func() time.Time, certs ...string) *Node {
	t.Helper()
	n, err := New(Options{
		Name: "n1", Rules: new(rule.Set), Origin: "http://127.0.0.1:1", Listen: "127.0.0.1:0", TLSListen: "127.0.0.1:0", MetricsListen: "127.0.0.1:0",
		TLSCerts: certs, Logger: slog.New(slog.NewTextHandler(log, nil)), Now: now,
	})
	if err == nil {
		err = n.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = n.Stop(ctx)
	})
	return n
}

// serial returns the serial number of the certificate that a client gets if it asks for name.
func serial(addr net.Addr, name string) (int64, error) {
	conn, err := tls.Dial("tcp", addr.String(), &tls.Config{ServerName: name, InsecureSkipVerify: true})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}

// Clients get the certificate of their server name, of a wildcard that covers it, or the first one.
func TestCertificateOfName(t *testing.T) {
	dir := t.TempDir()
	end := time.Now().Add(30 * day)
	putPair(t, dir+"/first", issue(t, 1, nil, end, "first.example"))
	putPair(t, dir+"/certs/wild", issue(t, 2, nil, end, "*.Example.com", "example.net"))
	putPair(t, dir+"/certs/exact", issue(t, 3, nil, end, "www.example.com", "*.deep.example.com"))
	n := startTLS(t, io.Discard, nil, dir+"/first.crt:"+dir+"/first.key", dir+"/certs")
	for name, want := range map[string]int64{
		"first.example": 1, "www.example.com": 3, "WWW.Example.COM": 3, "a.example.com": 2, "a.b.example.com": 1, "a.deep.example.com": 3,
		"deep.example.com": 2, "example.com": 1, "example.net": 2, "a.example.net": 1, "unknown": 1, "": 1,
	} {
		if got, err := serial(n.Addr("https"), name); got != want || err != nil {
			t.Errorf("%q: certificate %d, %v; want %d", name, got, err, want)
		}
	}
	set := n.files.certificates.Load()
	long := strings.Repeat("a", 60) + ".example.com"
	if allocs := testing.AllocsPerRun(100, func() { set.find(long) }); allocs != 0 || set.find(long).Leaf.SerialNumber.Int64() != 2 {
		t.Errorf("finding a certificate takes %v allocations, want 0", allocs)
	}
}

// While certificates are replaced, no handshake fails, and a client gets an old one or a new one.
func TestCertificatesReloadUnderLoad(t *testing.T) {
	dir := t.TempDir()
	end := time.Now().Add(30 * day)
	putPair(t, dir+"/a", issue(t, 1, nil, end, "a.example"))
	putPair(t, dir+"/b", issue(t, 101, nil, end, "b.example"))
	n := startTLS(t, io.Discard, nil, dir)
	stop := make(chan struct{})
	var clients sync.WaitGroup
	var handshakes atomic.Int64
	for _, c := range []struct {
		name string
		from int64
	}{{"a.example", 1}, {"b.example", 101}} {
		clients.Go(func() {
			for last := c.from; ; handshakes.Add(1) {
				select {
				case <-stop:
					return
				default:
				}
				got, err := serial(n.Addr("https"), c.name)
				if err != nil || got < last || got > c.from+10 {
					t.Errorf("%s: certificate %d after %d, %v", c.name, got, last, err)
					return
				}
				last = got
			}
		})
	}
	for i := range int64(10) {
		putPair(t, dir+"/a", issue(t, 2+i, nil, end, "a.example"))
		putPair(t, dir+"/b", issue(t, 102+i, nil, end, "b.example"))
		if err := n.Reload(); err != nil {
			t.Error(err)
		}
		for before := handshakes.Load(); handshakes.Load() < before+4; {
			time.Sleep(time.Millisecond)
			if t.Failed() {
				break
			}
		}
	}
	close(stop)
	clients.Wait()
	for name, want := range map[string]int64{"a.example": 11, "b.example": 111} {
		if got, err := serial(n.Addr("https"), name); got != want || err != nil {
			t.Errorf("%s: certificate %d, %v; want %d", name, got, err, want)
		}
	}
}

// A directory may have the files of several clients of ACME.
func TestCertificateDirectories(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"b.crt", "b.key", "b.issuer.crt", "b.json", "b.pem", // lego
		"c.pem", "c.key",
		"live/d/cert.pem", "live/d/chain.pem", "live/d/fullchain.pem", "live/d/privkey.pem", "README",
		"ca.crt", ".hidden.crt", ".hidden.key", "..data/tls.crt", "..data/tls.key", "..data/privkey.pem",
		"empty/README",
	} {
		put(t, filepath.Join(dir, name), "")
	}
	if err := os.Symlink("live/d", dir+"/d"); err != nil {
		t.Fatal(err)
	}
	o := Options{TLSCert: "a.pem", TLSKey: "a.key", TLSCerts: []string{dir, "e.pem:f.pem"}}
	all, err := o.pairs()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range all {
		got = append(got, strings.ReplaceAll(p.certSetting+" "+p.cert+" "+p.keySetting+" "+p.key, dir+"/", ""))
	}
	want := []string{
		"tls-cert a.pem tls-key a.key", "tls-certs b.crt tls-certs b.key", "tls-certs c.pem tls-certs c.key",
		"tls-certs d/fullchain.pem tls-certs d/privkey.pem", "tls-certs e.pem tls-certs f.pem",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Each mistake is an error that names the file and what to do. Then the previous certificates stay in use, all of them.
func TestCertificateMistakes(t *testing.T) {
	dir := t.TempDir()
	end := time.Now().Add(30 * day)
	root := issue(t, 1, nil, end, "root")
	good, other := issue(t, 2, root, end, "a.example"), issue(t, 3, root, end, "b.example")
	chain, key := pemOf(t, good, root)
	_, otherKey := pemOf(t, other)
	reversed, _ := pemOf(t, root, good)
	const legacy = "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END EC PRIVATE KEY-----\n"
	for name, c := range map[string]struct {
		spelled   string
		cert, key string // the files; empty: missing
		mode      os.FileMode
		want      string
	}{
		"the key of another": {"", chain, otherKey, 0o600,
			"invalid tls-certs: DIR/x.key is not the key of the first certificate in DIR/x.crt; intermediate certificates come after that"},
		"reversed chain": {"", reversed, key, 0o600,
			"invalid tls-certs: DIR/x.key is not the key of the first certificate in DIR/x.crt; intermediate certificates come after that"},
		"key with a passphrase": {"", chain, strings.NewReplacer("PRIVATE", "ENCRYPTED PRIVATE", "MIG", "AAA").Replace(key), 0o600,
			"invalid tls-certs: DIR/x.key has a passphrase, which a node cannot ask for; to remove it: openssl pkey -in DIR/x.key -out NEW"},
		"old key with a passphrase": {"", chain, legacy, 0o600, "DIR/x.key has a passphrase, which"},
		"swapped":                   {"", key, chain, 0o600, "DIR/x.crt with DIR/x.key: failed to find certificate PEM data in certificate input, but did find a private key"},
		"no PEM":                    {"", "x", key, 0o600, "DIR/x.crt with DIR/x.key: failed to find any PEM data in certificate input"},
		"key for all to read":       {"", chain, key, 0o644, "DIR/x.key holds a secret but has mode 0644: only its owner and its group may read it"},
		"no certificate":            {"", "", key, 0o600, "invalid tls-certs: DIR/x.pem: no such file or directory"},
		"no key":                    {"DIR/x.crt:DIR/x.key", chain, "", 0, "invalid tls-certs: DIR/x.key: no such file or directory"},
		"no pair":                   {"", chain, "", 0, "DIR has no certificates: it must have NAME.crt or NAME.pem with NAME.key, or NAME/fullchain.pem with NAME/privkey.pem"},
		"a file":                    {"DIR/x.crt", chain, key, 0o600, "invalid tls-certs: DIR/x.crt must be a directory, or two files CERT:KEY"},
		"no directory":              {"DIR/y", chain, key, 0o600, "invalid tls-certs: DIR/y: no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			sub, safe := filepath.Join(dir, strings.ReplaceAll(name, " ", "-")), t.TempDir()
			putPair(t, safe+"/a", good, root)
			f := newFiles(&Options{TLSCerts: []string{safe}, Logger: slog.New(slog.DiscardHandler)}, nil, prometheus.NewRegistry())
			if err := f.loadCertificates(); err != nil {
				t.Fatal(err)
			}
			put(t, sub+"/README", "")
			if c.cert != "" {
				put(t, sub+"/x.crt", c.cert)
			}
			if c.key != "" {
				put(t, sub+"/x.key", c.key)
				if err := os.Chmod(sub+"/x.key", c.mode); err != nil {
					t.Fatal(err)
				}
			}
			putPair(t, safe+"/a", issue(t, 4, root, end, "a.example"), root)
			spelled := strings.ReplaceAll(c.spelled, "DIR", sub)
			if spelled == "" {
				spelled = sub
			}
			f.o.TLSCerts = append(f.o.TLSCerts, spelled)
			err := f.loadCertificates()
			if want := strings.ReplaceAll(c.want, "DIR", sub); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %s", err, want)
			}
			if got := f.certificates.Load().find("a.example").Leaf.SerialNumber.Int64(); got != 2 {
				t.Errorf("certificate %d, want the previous one, 2", got)
			}
		})
	}
}

// Mistakes that may be meant, and certificates that are not valid, do not keep a node from starting: it logs them, and
// reports the latter until they are replaced.
func TestCertificateWarnings(t *testing.T) {
	dir := t.TempDir()
	start := time.Now()
	var passed atomic.Int64
	var log logged
	root := issue(t, 1, nil, start.Add(365*day), "root")
	putPair(t, dir+"/a", issue(t, 0xA0B1, root, start.Add(20*day), "a.example", "www.a.example", "A.example"), root)
	putPair(t, dir+"/b", issue(t, 3, root, start.Add(-day), "b.example"))
	putPair(t, dir+"/c", issue(t, 4, nil, start.Add(61*day), "c.example"))
	putPair(t, dir+"/d", issue(t, 5, nil, start.Add(30*day), "www.a.example"))
	n := startTLS(t, &log, func() time.Time { return start.Add(time.Duration(passed.Load())) }, dir)
	text := log.take()
	for _, want := range []string{
		`level=INFO msg="certificate loaded" name=a.example serial=A0B1 not_after=\S+ file=` + dir + `/a.crt\n`,
		`level=INFO msg="certificate loaded" name=www.a.example serial=05 `,
		`level=WARN msg="the certificate of the issuer is not in the file; append it, or give the full chain, unless all clients have it" issuer="CN=root" file=` + dir + `/b.crt\n`,
		`level=WARN msg="two certificates have names in common; the one that expires last is used for them; remove the other, unless it has more names" files="\[` + dir + `/a.crt ` + dir + `/d.crt\]"\n`,
		`level=WARN msg="clients refuse the certificate of b.example \(` + dir + `/b.crt, valid from \S+Z until \S+Z\) ` +
			`and c.example \(` + dir + `/c.crt, valid from \S+Z until \S+Z\): renew it, or correct the clock; see docs/problems.md#certificate" problem=certificate\n`,
	} {
		if len(regexp.MustCompile(want).FindAllString(text, -1)) != 1 {
			t.Errorf("want once: %s", want)
		}
	}
	if n := strings.Count(text, "level=WARN"); n != 3 {
		t.Errorf("%d warnings, want 3", n)
	}
	if t.Failed() {
		t.Log(text)
	}
	for name, want := range map[string]int64{"a.example": 0xA0B1, "www.a.example": 5, "b.example": 3, "c.example": 4} {
		if got, err := serial(n.Addr("https"), name); got != want || err != nil {
			t.Errorf("%q: certificate %d, %v; want %d", name, got, err, want)
		}
	}
	if got, err := testutil.GatherAndCount(n.registry, "edge_tls_certificate_not_after_seconds"); got != 4 || err != nil {
		t.Errorf("%d certificates in metrics, %v; want 4", got, err)
	}
	problems := func() string {
		n.noteCertificates()
		return strings.Join(n.Operator().Status().Problems, "\n")
	}
	if got := problems(); !strings.Contains(got, "the certificate of b.example (") || strings.Contains(got, " a.example") {
		t.Errorf("problems: %s", got)
	}

	// A reload logs only what is new.
	putPair(t, dir+"/b", issue(t, 6, root, start.Add(60*day), "b.example"), root)
	if err := os.Remove(dir + "/c.key"); err != nil {
		t.Fatal(err)
	}
	if err := n.Reload(); err != nil {
		t.Fatal(err)
	}
	if text := log.take(); strings.Count(text, "certificate loaded") != 1 || strings.Contains(text, "WARN") || !strings.Contains(text, `msg="problem resolved" problem=certificate`) {
		t.Errorf("after a renewal: %s", text)
	}
	var names []string
	for _, c := range n.Operator().Status().Certificates {
		names = append(names, c.Name+" "+c.Serial)
	}
	if diff := cmp.Diff([]string{"a.example A0B1", "www.a.example 05", "b.example 06"}, names); diff != "" {
		t.Error(diff)
	}

	// A new certificate that comes first has names in common with two others, of which one expires later.
	putPair(t, dir+"/0", issue(t, 7, root, start.Add(25*day), "www.a.example"), root)
	if err := n.Reload(); err != nil {
		t.Fatal(err)
	}
	if text := log.take(); strings.Count(text, "two certificates have names in common") != 2 {
		t.Errorf("after a new certificate: %s", text)
	}
	if got := n.files.certificates.Load().find("").Leaf.SerialNumber.Int64(); got != 5 {
		t.Errorf("without a name: certificate %d, want 5", got)
	}

	// A certificate expires while the node runs.
	passed.Store(int64(20*day + time.Second))
	if got := problems(); !strings.Contains(got, "clients refuse the certificate of a.example (") {
		t.Errorf("problems: %s", got)
	}
	resp, err := http.Get("http://" + n.Addr("metrics").String() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || !strings.Contains(string(body), "clients refuse the certificate of a.example (") {
		t.Errorf("/readyz: %s, %s", resp.Status, body)
	}
}

// Certificates without names of hosts are shown under their addresses, common names or files.
func TestCertificateNames(t *testing.T) {
	dir := t.TempDir()
	for i, c := range []struct {
		template x509.Certificate
		want     string
	}{
		{x509.Certificate{IPAddresses: []net.IP{netip.MustParseAddr("192.0.2.1").AsSlice()}}, "192.0.2.1"},
		{x509.Certificate{Subject: pkix.Name{CommonName: "Old.example"}}, "Old.example"},
		{x509.Certificate{}, dir + "/x.crt"},
	} {
		c.template.SerialNumber, c.template.NotAfter = big.NewInt(int64(i)), time.Now().Add(day)
		key := newKey(t)
		der, err := x509.CreateCertificate(rand.Reader, &c.template, &c.template, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		putPair(t, dir+"/x", &issued{cert, key})
		reg := prometheus.NewRegistry()
		f := newFiles(&Options{TLSCerts: []string{dir}, Logger: slog.New(slog.DiscardHandler)}, nil, reg)
		if err := f.loadCertificates(); err != nil {
			t.Fatal(err)
		}
		if got := f.certificates.Load().shown[0].Name; got != c.want {
			t.Errorf("name %q, want %q", got, c.want)
		}
		if problems, err := testutil.GatherAndLint(reg); len(problems) > 0 || err != nil {
			t.Error(problems, err)
		}
	}
}

// A socket for TLS that the service manager passes is of no use without certificates, but does no harm.
func TestNoCertificates(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	f := newFiles(&Options{}, nil, prometheus.NewRegistry())
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		go func() {
			_, _ = tls.Dial("tcp", ln.Addr().String(), &tls.Config{InsecureSkipVerify: true, MaxVersion: version})
		}()
		conn, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if err := tls.Server(conn, f.tls()).Handshake(); err == nil {
			t.Errorf("version %x: no error", version)
		}
		conn.Close()
	}
}
