package accesslog_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"github.com/edgelimit/edge/analysis/accesslog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plain is a trace, and three are its entries.
const plain = "1767366245\ta\n1767366246\tb\n1767366247\ta\n"

var three = []line{{1767366245, "a"}, {1767366246, "b"}, {1767366247, "a"}}

// bzipped is plain, compressed with bzip2, for which Go has no compressor.
const bzipped = "QlpoOTFBWSZTWeibPZUAAANJAAAwP4AwACAAMQDTTQR6o9Iemo/PKnRHBkpELEiEPi7kinChIdE2eyo="

func gzipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zstded(t *testing.T, text string) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	return z.EncodeAll([]byte(text), nil)
}

func save(t *testing.T, data []byte) string {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

func TestCompression(t *testing.T) {
	bz, err := base64.StdEncoding.DecodeString(bzipped)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		stored []byte
	}{
		{"", []byte(plain)},
		{"gzip", gzipped(t, plain)},
		{"gzip", append(gzipped(t, plain[:20]), gzipped(t, plain[20:])...)},
		{"zstd", zstded(t, plain)},
		{"zstd", append(zstded(t, plain[:20]), zstded(t, plain[20:])...)},
		{"bzip2", bz},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := open(t, []string{save(t, test.stored)}, accesslog.Options{})
			var got []line
			if err := read(t.Context(), l, false, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(three, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := l.Stats().Files[0].Compression; got != test.name {
				t.Errorf("compression %q, want %q", got, test.name)
			}
			if read, total := l.Progress(); read != int64(len(test.stored)) || total != read {
				t.Errorf("progress %d of %d, want all of %d", read, total, len(test.stored))
			}
		})
	}
}

// A truncated compressed file is read up to where it breaks off, and the statistics say so.
func TestTruncated(t *testing.T) {
	var long strings.Builder
	for i := range 40_000 {
		fmt.Fprintf(&long, "%d\t%d\n", 1767366245+i, i*i%9973)
	}
	for name, stored := range map[string][]byte{"gzip": gzipped(t, long.String()), "zstd": zstded(t, long.String())} {
		l := open(t, []string{save(t, stored[:len(stored)*3/4])}, accesslog.Options{})
		var got []line
		if err := read(t.Context(), l, false, &got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := len(got); n < 10_000 || n >= 40_000 {
			t.Errorf("%s: %d entries, want most of 40000", name, n)
		}
		if f := l.Stats().Files[0]; !f.BrokenOff || f.Malformed > 0 || f.Compression != name {
			t.Errorf("%s: %+v, want a file that breaks off", name, f)
		}
	}
}

// What follows compressed data, and NULs before and within a log, are not part of it.
func TestZeros(t *testing.T) {
	for name, stored := range map[string][]byte{
		"after gzip":     append(gzipped(t, plain), make([]byte, 1000)...),
		"text after it":  append(gzipped(t, plain), plain...),
		"between gzip":   slices.Concat(gzipped(t, plain[:13]), make([]byte, 100), gzipped(t, plain[13:])),
		"before the log": append(make([]byte, 3<<20), plain...),
		"within the log": slices.Concat([]byte(plain[:13]), make([]byte, 3<<20), []byte(plain[13:])),
	} {
		l := open(t, []string{save(t, stored)}, accesslog.Options{})
		var got []line
		if err := read(t.Context(), l, false, &got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(three, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A pattern may be in several strings, as log_format often is.
func TestPatternInStrings(t *testing.T) {
	const line = `203.0.113.7 - - [02/Jan/2026:15:04:05 +0000] "GET /a HTTP/1.1" 200 5 "-" "curl" "-"`
	got := result(t, line, accesslog.Options{Format: "$remote_addr - $remote_user [$time_local] \"$request\" '\n    '$status $bytes"})
	want := "2026-01-02T15:04:05Z \"203.0.113.7\" = 203.0.113.7\n\t\"GET\" \"\" \"/a\" \"\" 200\npattern: 1 entries in 1 lines, 0 malformed\n"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Standard input is read once, in reads of any size.
func TestStandardInput(t *testing.T) {
	for name, r := range map[string]io.Reader{
		"at once":      strings.NewReader(plain),
		"byte by byte": iotest.OneByteReader(strings.NewReader(plain)),
		"compressed":   iotest.HalfReader(bytes.NewReader(gzipped(t, plain))),
	} {
		l, err := accesslog.Open([]string{"-"}, r, accesslog.Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got []line
		if err := read(t.Context(), l, true, &got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(three, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if _, total := l.Progress(); total != 0 {
			t.Errorf("%s: a total of %d bytes, want 0 (unknown)", name, total)
		}
		if err := read(t.Context(), l, true, &got); err == nil {
			t.Errorf("%s: the second read did not fail", name)
		}
	}
}

// A reader that waits for a silent sender can be stopped.
func TestCancelWhileWaiting(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	go io.WriteString(w, strings.Repeat(plain, 10_000)) // more than detection reads, less than a block
	l, err := accesslog.Open([]string{"-"}, r, accesslog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := l.Arrivals(ctx, func([]accesslog.Arrival) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want context.DeadlineExceeded", err)
	}
}

func TestSeveralFiles(t *testing.T) {
	names := []string{
		save(t, []byte("1767366245\tfirst\n1767366246\tfirst")), // without a newline at the end
		save(t, gzipped(t, "1767366246\tsecond\nbad\n1767366244\tsecond\n")),
		save(t, []byte(`203.0.113.7 - - [02/Jan/2026:15:04:05 +0000] "GET / HTTP/1.1" 200 1`)),
		save(t, nil),
	}
	l := open(t, names, accesslog.Options{})
	var got []line
	if err := read(t.Context(), l, false, &got); err != nil {
		t.Fatal(err)
	}
	want := []line{
		{1767366244, "second"}, {1767366245, "first"}, {1767366245, "203.0.113.7"},
		{1767366246, "first"}, {1767366246, "second"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	stats := l.Stats()
	wantStats := accesslog.Stats{
		Lines: 6, Entries: 5, Malformed: 1,
		First: 1767366244e6, Last: 1767366246e6,
		Samples: []accesslog.Sample{{File: names[1], Line: 2, Reason: `no "\t" after $msec`, Text: "bad"}},
		Files: []accesslog.FileStats{
			{Name: names[0], Format: "trace", Lines: 2, Entries: 2},
			{Name: names[1], Format: "trace", Compression: "gzip", Lines: 3, Entries: 2, Malformed: 1},
			{Name: names[2], Format: "clf", Lines: 1, Entries: 1},
			{Name: names[3], Format: "empty"},
		},
	}
	if diff := cmp.Diff(wantStats, stats); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
}

// A log that grows while it is read is read again up to the same place.
func TestGrowingLog(t *testing.T) {
	name := save(t, []byte(plain))
	l := open(t, []string{name}, accesslog.Options{})
	for range 2 {
		var got []line
		if err := read(t.Context(), l, false, &got); err != nil || !slices.Equal(got, three) {
			t.Errorf("%v, %v", got, err)
		}
		if err := os.WriteFile(name, []byte(plain+plain), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Clients with different names have different addresses.
func TestAddressesOfNames(t *testing.T) {
	names := map[netip.Addr]string{}
	for _, name := range []string{"0", "00", "7", "07", "007", "70", "36028797018963967", "36028797018963968", "alice", ""} {
		e := accesslog.Entry{Client: name}
		if other, twice := names[e.Address()]; twice {
			t.Errorf("%q and %q are both %v", other, name, e.Address())
		}
		names[e.Address()] = name
	}
}

// A line that is too long is one malformed line, wherever it lies in the blocks.
func TestLongLines(t *testing.T) {
	long := strings.Repeat("x", 1<<20+1)
	text := "1767366245\ta\n" + long + "\n1767366246\tb\n" + long + long + long + "\n" + long + "\n1767366247\ta\n" + long + long
	name := save(t, []byte(text))
	for _, block := range []int{64, 300_000} {
		o := accesslog.Options{Format: "trace"}.WithBlocks(block)
		l := open(t, []string{name}, o)
		var got []line
		if err := read(t.Context(), l, true, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(three, got); diff != "" {
			t.Errorf("blocks of %d (-want +got):\n%s", block, diff)
		}
		var lines []int64
		for _, s := range l.Stats().Samples {
			lines = append(lines, s.Line)
			if s.Reason != "the line is too long" {
				t.Errorf("line %d: %s", s.Line, s.Reason)
			}
		}
		if diff := cmp.Diff([]int64{2, 4, 5, 7}, lines); diff != "" || l.Stats().Lines != 7 {
			t.Errorf("blocks of %d: %d lines; those too long (-want +got):\n%s", block, l.Stats().Lines, diff)
		}
	}
}

// An endlessly nested object is malformed, and does not exhaust the stack.
func TestDeepObjects(t *testing.T) {
	head := `{"time":"2026-01-02T15:04:05Z","remote_addr":"203.0.113.7","request":"GET / HTTP/1.1","status":200,"x":`
	good := head + strings.Repeat("[", 50) + strings.Repeat("]", 50) + "}\n"
	bad := head + strings.Repeat(`{"a":[`, 100_000) + strings.Repeat("]}", 100_000) + "}\n"
	l := open(t, []string{save(t, []byte(good+bad+good))}, accesslog.Options{})
	if err := l.Arrivals(t.Context(), func([]accesslog.Arrival) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if s := l.Stats(); s.Entries != 2 || s.Malformed != 1 {
		t.Errorf("%d entries, %d malformed, want 2 and 1", s.Entries, s.Malformed)
	}
}

// A string with many escapes takes no longer than other text.
func TestManyEscapes(t *testing.T) {
	few, many := `\\`, strings.Repeat(`\\`, 500_000)
	for format, line := range map[string]string{
		"json":   `{"time":"2026-01-02T15:04:05Z","remote_addr":"203.0.113.7","request":"GET / HTTP/1.1","status":200,"x":"%s"}` + "\n",
		"logfmt": `time=2026-01-02T15:04:05Z remote_addr=203.0.113.7 method=GET path=/ status=200 x="%s"` + "\n",
	} {
		text := fmt.Sprintf(line, few) + strings.Repeat(fmt.Sprintf(line, many), 20)
		l := open(t, []string{save(t, []byte(text))}, accesslog.Options{Format: format})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // a fraction of a second is enough
		defer cancel()
		if err := l.Arrivals(ctx, func([]accesslog.Arrival) error { return nil }); err != nil {
			t.Errorf("%s: %v", format, err)
		}
		if n := l.Stats().Entries; n != 21 {
			t.Errorf("%s: %d entries, want 21", format, n)
		}
	}
}

// A client is its name or, if that exceeds 15 bytes or contains NUL, a hash.
func TestClients(t *testing.T) {
	seen := map[accesslog.Client]string{}
	for _, name := range []string{"a", "fifteen bytes!!", "sixteen bytes!!!", "2001:db8:1:2:3:4:5:6", "with\x00zero", "with", "\x00"} {
		c := accesslog.ClientOf(name)
		if other, known := seen[c]; known {
			t.Errorf("%q and %q are the same client", name, other)
		}
		seen[c] = name
		long := len(name) > 15 || strings.Contains(name, "\x00")
		if hashed := c[15] != 0; hashed != long || !long && short(c) != name {
			t.Errorf("%q is %q", name, c)
		}
	}
}

// Fields that are not needed stay empty.
func TestNeed(t *testing.T) {
	line := `www.example.com 203.0.113.7 - - [02/Jan/2026:15:04:05 +0000] "GET /a?b=c HTTP/1.1" 200 512 "-" "curl/8.5.0"`
	name := save(t, []byte(line))
	for _, need := range []accesslog.Fields{accesslog.Addr, accesslog.Method, accesslog.Host, accesslog.Path, accesslog.Status, accesslog.Header} {
		l := open(t, []string{name}, accesslog.Options{Need: need})
		if err := l.Entries(t.Context(), func(e *accesslog.Entry) error {
			var got accesslog.Fields
			for field, filled := range map[accesslog.Fields]bool{
				accesslog.Addr: e.Addr.IsValid(), accesslog.Method: e.Method != "", accesslog.Host: e.Host != "",
				accesslog.Path: e.Path != "" || e.Query != "", accesslog.Status: e.Status != 0, accesslog.Header: len(e.Header) > 0,
			} {
				if filled {
					got |= field
				}
			}
			if got != need || e.Client != "203.0.113.7" {
				t.Errorf("fields %b were filled in, want %b", got, need)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	for name, file := range map[string]string{"a directory": dir, "no file": filepath.Join(dir, "none")} {
		if _, err := accesslog.Open([]string{file}, nil, accesslog.Options{}); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: error %v, want one that names it", name, err)
		}
	}
	broken := iotest.ErrReader(errors.New("broken"))
	if _, err := accesslog.Open([]string{"-"}, broken, accesslog.Options{}); err == nil || !strings.Contains(err.Error(), "stdin: broken") {
		t.Errorf("error %v, want one with \"stdin: broken\"", err)
	}
	for _, o := range []accesslog.Options{{Workers: -1}, {Buffer: -1}} {
		if _, err := accesslog.Open(nil, nil, o); err == nil {
			t.Errorf("Open with %+v: no error", o)
		}
	}
}

// Marks of an attack survive sorting, even on disk, whichever other fields are needed.
func TestAttack(t *testing.T) {
	const text = `{"time":1767366247,"remote_addr":"203.0.113.7","uri":"/","status":200,"attack":true}
{"time":1767366246,"remote_addr":"2001:db8::7","uri":"/","status":200,"attack":"1"}
{"time":1767366248,"remote_addr":"somebody","uri":"/","status":200,"attack":false}
{"time":1767366245,"remote_addr":"203.0.113.9","uri":"/","status":200,"attack":"sqli"}
`
	for _, disk := range []bool{false, true} {
		for _, need := range []accesslog.Fields{accesslog.All, accesslog.Addr | accesslog.Method} {
			l := open(t, []string{save(t, []byte(text))}, accesslog.Options{Need: need, Disk: disk})
			var got []string
			err := l.Entries(t.Context(), func(e *accesslog.Entry) error {
				got = append(got, fmt.Sprint(e.Client, " ", e.Attack))
				return nil
			})
			want := []string{"203.0.113.9 false", "2001:db8::7 true", "203.0.113.7 true", "somebody false"}
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("on disk %v, need %b: %v (-want +got):\n%s", disk, need, err, diff)
			}
		}
	}
}
