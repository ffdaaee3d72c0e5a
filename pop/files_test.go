package pop

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/rule"
)

// newKey returns a key for a certificate.
func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// writeCertificate writes a certificate with a serial number, and its key.
func writeCertificate(t *testing.T, key *ecdsa.PrivateKey, serial int64, certFile, keyFile string) {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(serial)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Replaced certificates and gossip keys are in use two seconds later, without a reload. If a certificate and
// its key do not match, the previous pair stays in use.
func TestCertificatesAndKeysAreWatched(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		cert, key, keys := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "gossip.keys")
		first, second, elsewhere := newKey(t), newKey(t), filepath.Join(dir, "elsewhere.pem")
		writeCertificate(t, first, 1, cert, key)
		one, two := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
		writeKeys := func(all ...[]byte) {
			text := "# the keys of the gossip\n"
			for _, key := range all {
				text += base64.StdEncoding.EncodeToString(key) + "\n"
			}
			if err := os.WriteFile(keys, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		writeKeys(one)
		var inUse atomic.Pointer[[][]byte]
		o := &Options{TLSCert: cert, TLSKey: key, Gossip: GossipOptions{KeyFile: keys}, Logger: slog.New(slog.DiscardHandler)}
		f := newFiles(o, nil, prometheus.NewRegistry())
		reload := func() error {
			return f.reload(func(rules *rule.Set, keys [][]byte) error {
				if rules != nil {
					t.Error("loaded rules without files")
				}
				if keys != nil {
					inUse.Store(&keys)
				}
				return nil
			})
		}
		if err := reload(); err != nil {
			t.Fatal(err)
		}
		go f.watch(t.Context(), reload)
		check := func(name string, serial int64, keys ...[]byte) {
			t.Helper()
			time.Sleep(3 * time.Second)
			pair, err := f.tls().GetCertificate(new(tls.ClientHelloInfo))
			if err != nil {
				t.Fatal(err)
			}
			if got := pair.Leaf.SerialNumber.Int64(); got != serial {
				t.Errorf("%s: uses certificate %d, want %d", name, got, serial)
			}
			if got, want := bytes.Join(*inUse.Load(), nil), bytes.Join(keys, nil); !bytes.Equal(got, want) {
				t.Errorf("%s: uses keys %x, want %x", name, got, want)
			}
		}
		check("nothing has changed", 1, one)
		writeCertificate(t, first, 2, cert, elsewhere)
		check("a certificate of the same key", 2, one)
		writeCertificate(t, second, 3, cert, elsewhere)
		check("a certificate of another key", 2, one)
		info, err := os.Stat(key)
		if err == nil { // as for files of a reproducible package
			err = os.Chtimes(elsewhere, time.Time{}, info.ModTime())
		}
		if err == nil {
			err = os.Rename(elsewhere, key)
		}
		if err != nil {
			t.Fatal(err)
		}
		check("its key", 3, one)
		writeKeys(two, one)
		check("keys of the gossip", 3, two, one)
		writeCertificate(t, second, 4, cert, elsewhere)
		for _, c := range []struct {
			name string
			mode os.FileMode
			want int64
		}{{"a key that all can read", 0o644, 3}, {"a corrected mode", 0o600, 4}} {
			if err := os.Chmod(key, c.mode); err != nil {
				t.Fatal(err)
			}
			check(c.name, c.want, two, one)
		}
	})
}

// Changes are loaded although another file keeps changing: within three seconds if a program writes to it, and at the
// next look if it renames a new file over it.
func TestChangingFilesDoNotHoldUpOthers(t *testing.T) {
	for _, c := range []struct {
		name    string
		replace bool // the changing file by a rename
		within  time.Duration
		warned  int // times, however long it goes on
	}{
		{"written in place", false, 3 * time.Second, 1},
		{"renamed", true, time.Second, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				write := func(name, text string) {
					t.Helper()
					if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				denied := func(n int) { // another size each time, since the bubble's seconds take no time
					name := "denied"
					if c.replace {
						name = "new"
					}
					write(name, strings.Repeat("203.0.113.7\n", n))
					if c.replace {
						if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "denied")); err != nil {
							t.Fatal(err)
						}
					}
				}
				const rules = "networks: {denied: {file: denied}}\nrules: [{id: %s, match: {networks: [denied]}, characteristics: [ip], limits: [{threshold: 1, period: 1m}]}]"
				write("denied", "203.0.113.7\n")
				write("rules.yaml", fmt.Sprintf(rules, "old"))
				var inForce atomic.Value
				var logged bytes.Buffer
				o := &Options{RuleFiles: []string{filepath.Join(dir, "rules.yaml")}, Logger: slog.New(slog.NewTextHandler(&logged, nil))}
				f := newFiles(o, func() int { return 1 }, prometheus.NewRegistry())
				reload := func() error {
					return f.reload(func(rules *rule.Set, _ [][]byte) error {
						if rules != nil {
							inForce.Store(rules.Rules()[0].ID)
						}
						return nil
					})
				}
				if err := reload(); err != nil {
					t.Fatal(err)
				}
				go f.watch(t.Context(), reload)
				time.Sleep(500 * time.Millisecond)
				write("rules2.yaml", fmt.Sprintf(rules, "new"))
				if err := os.Rename(filepath.Join(dir, "rules2.yaml"), filepath.Join(dir, "rules.yaml")); err != nil {
					t.Fatal(err)
				}
				for n := range int(c.within / time.Second) {
					denied(2 + n)
					time.Sleep(time.Second)
				}
				synctest.Wait()
				if got := inForce.Load(); got != "new" {
					t.Errorf("the rule in force is %v after %v, want the new one", got, c.within)
				}
				for n := range 10 {
					denied(10 + n)
					time.Sleep(time.Second)
				}
				synctest.Wait()
				if n := strings.Count(logged.String(), "files keep changing"); n != c.warned {
					t.Errorf("%d warnings about files that keep changing, want %d", n, c.warned)
				}
			})
		})
	}
}
