package redis_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/redis"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/internal/harness"
)

// connect returns a client of the shard at a URL.
func connect(t testing.TB, url string) *redis.Client {
	t.Helper()
	addr, err := redis.ParseAddress(url, func(file string) (string, error) {
		text, err := os.ReadFile(file)
		return string(text), err
	})
	if err != nil {
		t.Fatal(err)
	}
	s := redis.New(addr, wire.Options{Timeout: 10 * time.Second})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func item(name string, i int) counter.Item {
	return counter.Item([]byte(fmt.Sprintf("%s%0*d", name, 16-len(name), i)))
}

// increments returns a batch that adds 1 to each of n counters whose names begin with name.
func increments(name string, n int, create bool) *counter.Batch {
	b := new(counter.Batch)
	for i := range n {
		b.Increments = append(b.Increments, counter.Increment{Item: item(name, i), Delta: 1, TTL: 60, Create: create})
	}
	return b
}

func exchange(t testing.TB, s *redis.Client, b *counter.Batch) {
	t.Helper()
	if err := s.Exchange(b); err != nil {
		t.Fatal(err)
	}
}

// A batch creates counters, counts in them, stores records, replaces them by their version, and reads both.
func TestBatch(t *testing.T) {
	r := harness.StartRedis(t)
	s := connect(t, "redis://"+r.Addr+"/3")
	const n = 3000
	b := increments("new", n, true)
	b.Increments[7].Start = 40
	record := bytes.Repeat([]byte{'\n', 0, 'x', ' '}, 21)
	for i := range 100 {
		b.Stores = append(b.Stores, counter.Store{Item: item("record", i%50), Value: record, TTL: 60})
	}
	exchange(t, s, b)
	for i, op := range b.Increments {
		if want := map[int]uint64{7: 41}[i]; op.Outcome != counter.Done || op.Value != max(want, 1) {
			t.Fatalf("new counter %d is %d, outcome %d", i, op.Value, op.Outcome)
		}
	}
	for i, op := range b.Stores {
		if want := []counter.Outcome{counter.Done, counter.Absent}[i/50]; op.Outcome != want {
			t.Fatalf("store %d: outcome %d, want %d", i, op.Outcome, want)
		}
	}
	if got := r.Run("-n", "3", "GET", item("new", 7).String()); got != "41" {
		t.Errorf("the server has %s, want 41", got)
	}
	for _, name := range []string{item("new", 7).String(), item("record", 7).String()} {
		if ttl := r.Run("-n", "3", "TTL", name); ttl != "60" && ttl != "59" {
			t.Errorf("%s ends in %s s, want 60", name, ttl)
		}
	}
	read := &counter.Batch{Reads: []counter.Read{{Item: item("record", 1)}, {Item: item("none", 1)}, {Item: item("new", 7)}}}
	exchange(t, s, read)
	if op := read.Reads[0]; op.Outcome != counter.Done || !bytes.Equal(op.Value, record) || op.CAS == 0 {
		t.Errorf("the record reads %q, outcome %d", op.Value, op.Outcome)
	}
	if got := read.Reads[1].Outcome; got != counter.Absent {
		t.Errorf("a missing item: outcome %d, want Absent", got)
	}
	if value, ok := counter.ParseValue(read.Reads[2].Value); !ok || value != 41 {
		t.Errorf("the counter reads %d, want 41", value)
	}
	replace := &counter.Batch{Stores: []counter.Store{
		{Item: item("record", 1), Value: []byte("second"), TTL: 60, CAS: read.Reads[0].CAS},
		{Item: item("record", 1), Value: []byte("third"), TTL: 60, CAS: read.Reads[0].CAS},
	}}
	exchange(t, s, replace)
	if a, b := replace.Stores[0].Outcome, replace.Stores[1].Outcome; a != counter.Done || b != counter.Absent {
		t.Errorf("replaced twice by the same version: outcomes %d and %d, want Done and Absent", a, b)
	}
	if got := r.Run("-n", "3", "GET", item("record", 1).String()); got != "second" {
		t.Errorf("the record is %q, want the second", got)
	}
}

// A counter that the server has lost is created again with an expiry.
func TestLostCounterEnds(t *testing.T) {
	r := harness.StartRedis(t)
	s := connect(t, "redis://"+r.Addr)
	b := increments("lost", 3, true)
	exchange(t, s, b)
	r.Run("DEL", item("lost", 1).String())
	for i := range b.Increments {
		b.Increments[i].Create, b.Increments[i].Start = false, 1
	}
	b.Increments[2].TTL = 9 // no command makes this one end sooner
	exchange(t, s, b)
	for i, want := range []uint64{2, 1, 2} {
		if op := b.Increments[i]; op.Value != want || op.Outcome != counter.Done {
			t.Errorf("counter %d is %d, outcome %d, want %d", i, op.Value, op.Outcome, want)
		}
		if ttl := r.Run("TTL", item("lost", i).String()); ttl != "60" && ttl != "59" {
			t.Errorf("counter %d ends in %s s, want 60", i, ttl)
		}
	}
	again := increments("lost", 3, false)
	if exchange(t, s, again); again.Increments[1].Value != 2 {
		t.Errorf("the next batch makes a counter of 1 %d, want 2", again.Increments[1].Value)
	}
}

// A client greets the server once for each connection. A batch reads a bounded amount, and one that reads a number or a
// value that no node stores fails.
func TestReplies(t *testing.T) {
	r := harness.StartRedis(t)
	addr, err := redis.ParseAddress("redis://"+r.Addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	dialed := 0
	s := redis.New(addr, wire.Options{Timeout: 10 * time.Second, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialed++
		return new(net.Dialer).DialContext(ctx, network, addr)
	}})
	defer s.Close()
	reads := &counter.Batch{}
	for i := range 3 {
		r.Run("SETRANGE", item("long", i).String(), fmt.Sprint(100_000-1), "x")
		reads.Reads = append(reads.Reads, counter.Read{Item: item("long", i)})
	}
	for range 2 {
		if err := s.Probe(); err != nil {
			t.Error(err)
		}
	}
	if exchange(t, s, reads); dialed != 1 || len(reads.Values) != 100_000 {
		t.Errorf("%d connections, and %d bytes are read; want 1, and one value of 100,000", dialed, len(reads.Values))
	}
	r.Run("SET", item("n", 0).String(), "-5")
	r.Run("SETRANGE", item("long", 0).String(), fmt.Sprint(2<<20), "x")
	for _, b := range []*counter.Batch{increments("n", 1, false), reads} {
		if err := s.Exchange(b); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%d increments and %d reads: %v, want %v", len(b.Increments), len(b.Reads), err, wire.ErrMalformed)
		}
	}
}

// A connection on which TLS fails is closed.
func TestFailedHandshake(t *testing.T) {
	addr, err := redis.ParseAddress("rediss://h", nil)
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	defer far.Close()
	s := redis.New(addr, wire.Options{Timeout: 10 * time.Second, Dial: func(context.Context, string, string) (net.Conn, error) {
		go func() {
			_, _ = far.Read(make([]byte, 1))
			go io.Copy(io.Discard, far)
			_, _ = io.WriteString(far, "-ERR unknown command\r\n")
		}()
		return near, nil
	}})
	if err := s.Probe(); err == nil || !strings.Contains(err.Error(), "TLS") {
		t.Errorf("%v from a server without TLS", err)
	}
	if err := near.SetDeadline(time.Now()); err == nil {
		t.Error("the connection is still open")
	}
}

// Numbers are signed: a counter that reaches 2^63 is refused, and so is a key of another type.
func TestRefusedIncrements(t *testing.T) {
	r := harness.StartRedis(t)
	s := connect(t, "redis://"+r.Addr)
	r.Run("LPUSH", item("odd", 1).String(), "x")
	b := increments("odd", 5, true)
	b.Increments[0].Start = 1<<63 - 1
	b.Increments[2].Start = 1 << 63
	b.Increments[3].Delta = 1 << 63
	exchange(t, s, b)
	for i, want := range []counter.Outcome{counter.Refused, counter.Refused, counter.Refused, counter.Refused, counter.Done} {
		if got := b.Increments[i].Outcome; got != want {
			t.Errorf("increment %d: outcome %d, want %d", i, got, want)
		}
	}
}

// A full server refuses new counters, and one that evicts loses some.
func TestFullServer(t *testing.T) {
	r := harness.StartRedis(t, "--maxmemory", "2mb", "--maxmemory-policy", "noeviction")
	s := connect(t, "redis://"+r.Addr)
	for round := range 100 {
		b := increments(fmt.Sprint("r", round), 2000, true)
		exchange(t, s, b)
		if op := b.Increments[1999]; op.Outcome == counter.Refused {
			return
		} else if op.Outcome != counter.Done {
			t.Fatalf("outcome %d", op.Outcome)
		}
	}
	t.Error("200,000 counters fit in 2 MB")
}

// A server that answers but cannot count fails the exchange: nothing was counted, and the error says what to do.
func TestUnusableServers(t *testing.T) {
	primary := harness.StartRedis(t)
	_, port, _ := strings.Cut(primary.Addr, ":")
	for _, tt := range []struct {
		name, url, want string
		server          *harness.Server
	}{
		{"a password is missing", "redis://%s", "NOAUTH .*password", harness.StartRedis(t, "--requirepass", "secret")},
		{"the password is wrong", "redis://:guess@%s", "WRONGPASS .*correct", harness.StartRedis(t, "--requirepass", "secret")},
		{"a password is not wanted", "redis://:secret@%s", "ERR AUTH .*does not fit", primary},
		{"no such database", "redis://%s/99", "ERR DB index .*does not fit", primary},
		{"a replica", "redis://%s", "READONLY .*primary", harness.StartRedis(t, "--replicaof", "127.0.0.1 "+port, "--replica-serve-stale-data", "yes")},
		{"a member of a cluster", "redis://%s", "CLUSTERDOWN .*cluster", harness.StartRedis(t, "--cluster-enabled", "yes")},
		{"it cannot save", "redis://%s", "NOREPLICAS .*min-replicas", harness.StartRedis(t, "--min-replicas-to-write", "1")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := connect(t, fmt.Sprintf(tt.url, tt.server.Addr))
			b := increments("unusable", 3, true)
			err := s.Exchange(b)
			if !errors.Is(err, counter.ErrNotSent) || s.Unfit() == nil || !regexp.MustCompile(tt.want).MatchString(err.Error()) {
				t.Errorf("Exchange: %v, want ErrNotSent with %s", err, tt.want)
			}
			if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "guess") {
				t.Errorf("%v shows the password", err)
			}
			for _, op := range b.Increments {
				if op.Outcome != counter.NotSent {
					t.Errorf("outcome %d, want NotSent: nothing was counted", op.Outcome)
				}
			}
		})
	}
}

// certificate writes a certificate for 127.0.0.1 and its key.
func certificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	public, err := x509.CreateCertificate(rand.Reader, &template, &template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: public}, key: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// A user, a password in a file and TLS with certificates of both sides work as named in the URL.
func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	cert, key := certificate(t, dir)
	file := filepath.Join(dir, "password")
	if err := os.WriteFile(file, []byte("pass word\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tls := harness.ReservePort(t)
	_, port, _ := strings.Cut(tls, ":")
	r := harness.StartRedis(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert)
	r.Run("ACL", "SETUSER", "edge", "on", ">pass word", "~*", "+ping", "+select", "+script|load", "+set", "+get", "+incrby", "+expire", "+evalsha")
	for _, url := range []string{
		"redis://edge:pass%20word@" + r.Addr, "redis://edge@" + r.Addr + "?password_file=" + file,
		"rediss://edge@" + tls + "/1?password_file=" + file + "&ca=" + cert + "&cert=" + cert + "&key=" + key,
	} {
		s := connect(t, url)
		b := increments("secret", 3, true)
		b.Reads = []counter.Read{{Item: item("secret", 0)}}
		exchange(t, s, b)
		if s.Addr() != strings.SplitN(strings.Replace(url, "edge@", "", 1), "?", 2)[0] && !strings.Contains(url, "pass%20word") {
			t.Errorf("the address is shown as %s", s.Addr())
		}
		if strings.Contains(s.Addr(), "pass") {
			t.Errorf("%s shows the password", s.Addr())
		}
	}
}

// Update replaces a value, in a few tries if others write it at the same time.
func TestUpdate(t *testing.T) {
	r := harness.StartRedis(t)
	s := connect(t, "redis://"+r.Addr)
	drains := item("drains", 1)
	long := bytes.Repeat([]byte("0123456789abcdef"), 1<<12)
	tries := 0
	update := func(others int) error {
		tries = 0
		return s.Update(drains, func(old []byte) ([]byte, int32) {
			if tries++; tries <= others {
				r.Run("SET", drains.String(), fmt.Sprint("other ", tries))
			}
			return append(bytes.Clone(old), long...)[:1<<16], 60
		})
	}
	for others, want := range []int{1, 2, 3} {
		if err := update(others); err != nil || tries != want {
			t.Errorf("Update alongside %d other writers: %v after %d tries, want %d", others, err, tries, want)
		}
	}
	if got := r.Run("GET", drains.String()); !strings.HasPrefix(got, "other 2") || len(got) != 1<<16 {
		t.Errorf("the value has %d bytes and begins with %.20q", len(got), got)
	}
	if err := update(9); !errors.Is(err, counter.ErrUnknown) || tries != 3 {
		t.Errorf("Update alongside an eager writer: %v after %d tries, want ErrUnknown after 3", err, tries)
	}
	r.Run("CONFIG", "SET", "maxmemory", "1")
	if err := update(0); !errors.Is(err, counter.ErrNotSent) || tries != 1 {
		t.Errorf("Update of a full server: %v after %d tries, want ErrNotSent after 1", err, tries)
	}
}

// Errors about invalid addresses say what to write, and do not show secrets.
func TestAddresses(t *testing.T) {
	read := func(string) (string, error) { return "secret\n", nil }
	for url, want := range map[string]string{
		"redis://h": "redis://h:6379", "redis://[::1]:7/5": "redis://[::1]:7/5", "rediss://u:secret@h:7": "rediss://h:7",
		"redis://h/?password_file=f": "redis://h:6379",
	} {
		if addr, err := redis.ParseAddress(url, read); err != nil || addr.Name != want {
			t.Errorf("%s is %q, %v, want %q", url, addr.Name, err, want)
		}
	}
	for url, want := range map[string]string{
		"redis://":                             "must be redis://",
		"redis://h/x":                          "DB is a number",
		"redis://h:99999999999/":               "must be redis://",
		"redis://u:secret%zz@h":                "must be redis://",
		"redis://u@h":                          "user without a password",
		"redis://u:secret@h?password_file=f":   "one of them",
		"redis://h?ca=f":                       "needs rediss://",
		"redis://h?timeout=3":                  `unknown parameter "timeout"`,
		"rediss://h?cert=f":                    "give both",
		"rediss://h?ca=/nonexistent":           "no such file",
		"rediss://u:secret@h?ca=redis_test.go": "PEM",
	} {
		_, err := redis.ParseAddress(url, read)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want an error with %q and without the password", url, err, want)
		}
	}
}
