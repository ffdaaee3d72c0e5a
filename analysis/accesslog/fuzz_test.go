package accesslog_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/analysis/accesslog"
)

// FuzzRead reads any input in any format. Every line is an entry, malformed, blank or a comment, and neither
// the number of workers nor the size of blocks nor the way of reading changes the result.
func FuzzRead(f *testing.F) {
	logs, err := filepath.Glob(filepath.Join("testdata", "formats", "*.log"))
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range logs {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, "")
		for line := range bytes.Lines(data) {
			f.Add(bytes.Clone(line), strings.TrimSuffix(filepath.Base(name), ".log"))
		}
	}
	f.Add([]byte(`a "b" c|1767366245`), `$client|$time`)
	f.Add([]byte(`203.0.113.7 - - [02/Jan/2026:15:04:05 +0000] "GET / HTTP/1.1" 200 5`), `%h %l %u %t "%r" %>s %b`)
	f.Add([]byte(`203.0.113.7, 10.0.0.1 2026-01-02 15:04:05 "a\"b" -`), `%{X-Forwarded-For}i %{%F %T}t "%{User-Agent}i" "%{Referer}i"`)
	f.Add([]byte(`owner bucket [02/Jan/2026:15:04:05 +0000] 203.0.113.7 - id REST.GET.OBJECT key GET 200`), "s3")
	f.Add([]byte("2026-01-02 15:04:05 203.0.113.7 GET"), "w3c:fields=date time c-ip cs-method")
	f.Add([]byte(`{"time":"2026-01-02T15:04:05+00:00","remote_addr":"203.0.113.7","agent":"GET /a HTTP/1.1","status":200,"referer":""}`), "json")
	f.Fuzz(func(t *testing.T, data []byte, format string) {
		type result struct {
			Lines, Entries, Malformed int64
			Arrivals                  []accesslog.Arrival
			Clients                   []accesslog.Client
		}
		run := func(entries bool, workers, block int) (r result, ok bool) {
			o := accesslog.Options{Format: format, Workers: workers, Disk: true}.WithBlocks(block)
			l, err := accesslog.Open([]string{"-"}, bytes.NewReader(data), o)
			if err != nil {
				if refused := new(accesslog.RefusedError); errors.As(err, &refused) && refused.Hint() == "" {
					t.Fatalf("error %v has no hint", err)
				}
				return r, false
			}
			if entries {
				err = l.Entries(t.Context(), func(e *accesslog.Entry) error {
					r.Clients = append(r.Clients, accesslog.ClientOf(e.Client))
					return nil
				})
			} else {
				err = l.Arrivals(t.Context(), func(as []accesslog.Arrival) error {
					r.Arrivals = append(r.Arrivals, as...)
					for _, a := range as {
						r.Clients = append(r.Clients, a.Client)
					}
					return nil
				})
			}
			if err != nil {
				return r, false // a decompression error
			}
			s := l.Stats()
			r.Lines, r.Entries, r.Malformed = s.Lines, s.Entries, s.Malformed
			return r, true
		}
		one, ok := run(false, 1, 100_000)
		if !ok {
			return
		}
		if one.Entries+one.Malformed > one.Lines || int64(len(one.Arrivals)) != one.Entries {
			t.Errorf("%d lines, %d entries, %d passed on, %d malformed", one.Lines, one.Entries, len(one.Arrivals), one.Malformed)
		}
		for i, a := range one.Arrivals {
			if a.Client == (accesslog.Client{}) || i > 0 && a.Time < one.Arrivals[i-1].Time {
				t.Errorf("arrival %d of %v", i, one.Arrivals)
			}
		}
		other, _ := run(false, 3, 64)
		if diff := cmp.Diff(one, other); diff != "" {
			t.Errorf("with other blocks (-one worker +three):\n%s", diff)
		}
		entries, _ := run(true, 2, 300)
		one.Arrivals = nil
		if diff := cmp.Diff(one, entries); diff != "" {
			t.Errorf("as entries (-arrivals +entries):\n%s", diff)
		}
	})
}
