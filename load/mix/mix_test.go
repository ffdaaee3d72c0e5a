package mix_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/load/mix"
)

func parse(t testing.TB, text string) *mix.Mix {
	t.Helper()
	m, err := mix.Parse("m.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// requests returns all requests of a mix.
func requests(m *mix.Mix) (list []mix.Request) {
	s := m.Source()
	for r := (mix.Request{}); s.Next(&r); {
		list = append(list, r)
	}
	return list
}

func load(t testing.TB, spec string) *mix.Mix {
	t.Helper()
	m, err := mix.Load(spec, 0)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The output of a mix must never change by accident: people compare results across machines and years. These
// are the SHA-256 of the output of all files in testdata. If they change on purpose, the changelog says so.
func TestOutputIsStable(t *testing.T) {
	for _, test := range []struct {
		name, file string
		format     string
		want       string
	}{
		{"trace", "all", mix.Trace, "8790860f094684f2bc5d835c0e7c13fdf89cf25bc629c767fb66ee6c41db1acf"},
		{"combined", "all", mix.Combined, "1f2ab5e896bf19098fef283233dfd3a0650b77660cb222e14a1901e1dbca1f2b"},
		{"json", "all", mix.JSON, "db9dfd4f88704b0611b9ffc0edea8b606650e345f36c9ca1282ef1236fa7a0df"},
		{"spread", "spread", mix.JSON, "45d506ba58b2583c9cb44cf87d47fc03b5deae78d9dd55b14a7e1e2fcf9af487"},
	} {
		h := sha256.New()
		n, err := mix.Write(h, load(t, "testdata/"+test.file+".yaml"), test.format)
		if got := fmt.Sprintf("%x", h.Sum(nil)); err != nil || got != test.want {
			t.Errorf("%s: wrote %d requests with the sum %s, %v, want %s", test.name, n, got, err, test.want)
		}
	}
}

// Everything else depends on the order by time, and by component for equal times.
func TestOrder(t *testing.T) {
	for _, spec := range append(mix.Names(), "testdata/all.yaml") {
		m := load(t, spec)
		m.Requests = 200_000
		begin, end := m.Start().UnixMicro(), m.Start().Add(m.Duration()).UnixMicro()
		before, n := mix.Request{}, uint64(0)
		s := m.Source()
		for r := (mix.Request{}); s.Next(&r); before, n = r, n+1 {
			if r.Time < begin || r.Time >= end {
				t.Fatalf("%s: request %d is at %d, outside of the mix from %d to %d", spec, n, r.Time, begin, end)
			}
			if r.Time < before.Time || r.Time == before.Time && r.Component < before.Component {
				t.Fatalf("%s: request %d: %+v after %+v", spec, n, r, before)
			}
		}
		if n == 0 || n > m.Requests {
			t.Errorf("%s: %d requests, want 1 to %d", spec, n, m.Requests)
		}
	}
}

func TestSeed(t *testing.T) {
	m := load(t, "testdata/all.yaml")
	first, again := requests(m), requests(m)
	if !slices.Equal(first, again) {
		t.Error("two sources of one mix generate different requests")
	}
	m.Seed++
	if other := requests(m); slices.Equal(first, other) {
		t.Error("another seed generates the same requests")
	}
}

// Removing components, for example to look for a cause, does not change the requests of the others.
func TestComponentsAreIndependent(t *testing.T) {
	const head = "duration: 5m\ncomponents:\n"
	const one = "- name: one\n  zipf: {clients: 50, rate: 10/s, exponent: 1}\n  addresses: [192.0.2.0/24]\n  request: {paths: [/, /a, /b]}\n"
	const other = "- name: other\n  pages: {clients: 50}\n"
	type seen struct {
		time int64
		addr netip.Addr
		path string
	}
	only := func(m *mix.Mix) (list []seen) {
		for _, r := range requests(m) {
			if m.Components()[r.Component].Name == "one" {
				list = append(list, seen{r.Time, m.Addr(r.Client), r.Path})
			}
		}
		return list
	}
	alone := only(parse(t, head+one))
	for _, text := range []string{head + one + other, head + other + one} {
		if together := only(parse(t, text)); len(alone) == 0 || !slices.Equal(alone, together) {
			t.Errorf("%d requests alone, %d with another component, or their contents differ", len(alone), len(together))
		}
	}
}

func TestMaxRequests(t *testing.T) {
	m := load(t, "testdata/all.yaml")
	all := requests(m)
	m.Requests = 100
	if diff := cmp.Diff(all[:100], requests(m)); diff != "" {
		t.Errorf("the first 100 requests: %s", diff)
	}
	m.Requests = uint64(len(all)) + 1
	if got := len(requests(m)); got != len(all) {
		t.Errorf("%d requests with a maximum of %d, want %d", got, m.Requests, len(all))
	}
}

func TestLoad(t *testing.T) {
	if _, err := mix.Load("testdata/none.yaml", 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Load of a missing file = %v", err)
	}
	const want = "mix: open attac: no such file or directory, and no bundled mix has that name: did you mean attack?"
	if _, err := mix.Load("attac", 0); err == nil || err.Error() != want {
		t.Errorf("Load(attac) = %v, want %s", err, want)
	}
	for _, name := range mix.Names() {
		load(t, name)
	}
}

func TestAddresses(t *testing.T) {
	m := load(t, "testdata/all.yaml")
	owner := map[netip.Addr]uint64{}
	for _, r := range requests(m) {
		addr := m.Addr(r.Client)
		if client, known := owner[addr]; known && client != r.Client {
			t.Fatalf("%v is client %d and client %d", addr, client, r.Client)
		}
		owner[addr] = r.Client
		c := m.Components()[r.Component]
		if r.Client < c.First || r.Client-c.First >= c.Clients {
			t.Fatalf("client %d is not one of %+v", r.Client, c)
		}
		if c.Name == "random" && !netip.MustParsePrefix("192.0.2.0/28").Contains(addr) && !netip.MustParsePrefix("2001:db8:1::/60").Contains(addr) {
			t.Fatalf("client %d has the address %v, outside of its networks", r.Client, addr)
		}
	}
	if addr := m.Addr(1 << 60); addr.IsValid() {
		t.Errorf("an invalid client has the address %v", addr)
	}

	// A limiter treats a /64 as one client.
	m = parse(t, "duration: 1s\ncomponents:\n- name: all\n  steady: {clients: 65536, rate: 1/s}\n  addresses: [2001:db8::/48]\n")
	networks := map[netip.Prefix]bool{}
	for client := range uint64(65536) {
		p, err := m.Addr(client).Prefix(64)
		if err != nil {
			t.Fatal(err)
		}
		networks[p] = true
	}
	if len(networks) != 65536 {
		t.Errorf("65536 clients are in %d networks", len(networks))
	}
}

func TestNextAllocations(t *testing.T) {
	s := load(t, "testdata/all.yaml").Source()
	var r mix.Request
	if n := testing.AllocsPerRun(10_000, func() { s.Next(&r) }); n != 0 {
		t.Errorf("Next allocates %v times", n)
	}
}

func TestWriteFormats(t *testing.T) {
	const text = `duration: 1m
start: 2026-03-29T01:59:59Z
components:
- name: v4
  steady: {clients: 1, rate: 1/2s}
  addresses: [192.0.2.7/32]
  request: {hosts: [example.com], methods: [PUT], paths: [/a?b=c], status: 204, user_agents: [curl/8.5.0 (x; y)]}
- name: keys
  random_keys: {rate: 1/s}
  addresses: [2001:db8::/40]
requests: 3
`
	for _, test := range []struct {
		name   string
		format string
		want   string
	}{
		{"trace", mix.Trace, "1774749599\t1\n1774749600\t0\n1774749600\t2\n"},
		{"combined", mix.Combined, `2001:db8:c5:3136:e6ef:3000:fee1:8bbb - - [29/Mar/2026:01:59:59 +0000] "GET / HTTP/1.1" 200 23301 "-" "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
192.0.2.7 - - [29/Mar/2026:02:00:00 +0000] "PUT /a?b=c HTTP/1.1" 204 10437 "-" "curl/8.5.0 (x; y)"
2001:db8:b0:8e5e:4c6d:5d6d:7f32:e199 - - [29/Mar/2026:02:00:00 +0000] "GET / HTTP/1.1" 200 23301 "-" "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
`},
		{"json", mix.JSON, `{"time":"2026-03-29T01:59:59.827458Z","remote_addr":"2001:db8:c5:3136:e6ef:3000:fee1:8bbb","request_method":"GET","host":"www.example.com","request_uri":"/","status":200,"body_bytes_sent":23301,"http_user_agent":"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"}
{"time":"2026-03-29T02:00:00.000000Z","remote_addr":"192.0.2.7","request_method":"PUT","host":"example.com","request_uri":"/a?b=c","status":204,"body_bytes_sent":10437,"http_user_agent":"curl/8.5.0 (x; y)"}
{"time":"2026-03-29T02:00:00.300364Z","remote_addr":"2001:db8:b0:8e5e:4c6d:5d6d:7f32:e199","request_method":"GET","host":"www.example.com","request_uri":"/","status":200,"body_bytes_sent":23301,"http_user_agent":"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"}
`},
	} {
		var b bytes.Buffer
		n, err := mix.Write(&b, parse(t, text), test.format)
		if diff := cmp.Diff(test.want, b.String()); diff != "" || n != 3 || err != nil {
			t.Errorf("%s: %d requests, %v:\n%s", test.name, n, err, diff)
		}
	}
}

// A line of JSON has all properties of the request.
func TestWriteJSON(t *testing.T) {
	m := load(t, "testdata/all.yaml")
	var b bytes.Buffer
	if _, err := mix.Write(&b, m, mix.JSON); err != nil {
		t.Fatal(err)
	}
	for i, r := range requests(m) {
		text, err := b.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		if i%10 > 0 {
			continue // every tenth shows enough of each component
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		var line struct {
			Time   time.Time  `json:"time"`
			Addr   netip.Addr `json:"remote_addr"`
			Method string     `json:"request_method"`
			Host   string     `json:"host"`
			Path   string     `json:"request_uri"`
			Status int        `json:"status"`
			Size   int        `json:"body_bytes_sent"`
			Agent  string     `json:"http_user_agent"`
		}
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		got := mix.Request{Time: line.Time.UnixMicro(), Client: r.Client, Component: r.Component,
			Method: line.Method, Host: line.Host, Path: line.Path, Agent: line.Agent, Status: line.Status}
		if got != r || line.Addr != m.Addr(r.Client) || line.Size == 0 {
			t.Fatalf("line %d is %+v, want %+v from %v", i+1, line, r, m.Addr(r.Client))
		}
	}
}

// A trace has the numbers of the clients in the mix.
func TestTraceNumbers(t *testing.T) {
	m := load(t, "testdata/all.yaml")
	var b bytes.Buffer
	if _, err := mix.Write(&b, m, mix.Trace); err != nil {
		t.Fatal(err)
	}
	for i, r := range requests(m) {
		line, err := b.ReadString('\n')
		want := fmt.Sprintf("%d\t%d\n", r.Time/1e6, r.Client)
		if line != want || err != nil {
			t.Fatalf("line %d is %q, %v, want %q", i+1, line, err, want)
		}
	}
	if b.Len() > 0 {
		t.Errorf("%d bytes are left", b.Len())
	}
}

func TestWriteOnFullDisk(t *testing.T) {
	failing := errors.New("no space")
	full := writerFunc(func([]byte) (int, error) { return 0, failing })
	if _, err := mix.Write(full, load(t, "testdata/all.yaml"), mix.Trace); !errors.Is(err, failing) {
		t.Errorf("Write on a full disk = %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// This measures the cost per request of the largest mix, in each format.
func BenchmarkWrite(b *testing.B) {
	for _, format := range mix.Formats() {
		b.Run(format, func(b *testing.B) {
			m := load(b, "cloudflare")
			m.Requests = uint64(b.N)
			b.ReportAllocs()
			if _, err := mix.Write(io.Discard, m, format); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// This measures the cost per request of the largest mix for the sender.
func BenchmarkNext(b *testing.B) {
	s := load(b, "cloudflare").Source()
	var r mix.Request
	b.ReportAllocs()
	for b.Loop() {
		s.Next(&r)
	}
}
