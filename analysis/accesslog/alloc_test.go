package accesslog_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/edgelimit/edge/analysis/accesslog"
)

// The number of allocations does not grow with the number of lines: batches and blocks are reused.
func TestAllocations(t *testing.T) {
	const lines = 4_000
	for _, f := range accesslog.Formats() {
		head, line := "", examples[f.Name]
		if i := strings.LastIndexByte(line, '\n'); i >= 0 {
			head, line = line[:i+1], line[i+1:]
		}
		name := save(t, []byte(head+strings.Repeat(line+"\n", lines)))
		for _, entries := range []bool{false, true} {
			l, err := accesslog.Open([]string{name}, nil, accesslog.Options{Buffer: 4096})
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			pass := func() {
				if entries {
					err = l.Entries(t.Context(), func(*accesslog.Entry) error { n++; return nil })
				} else {
					err = l.Arrivals(t.Context(), func(as []accesslog.Arrival) error { n += len(as); return nil })
				}
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			pass()
			runtime.ReadMemStats(&after)
			if err != nil || n != lines {
				t.Fatalf("%s: %d entries, error %v", f.Name, n, err)
			}
			if got := after.Mallocs - before.Mallocs; got > lines/20 {
				t.Errorf("%s, entries %v: %d allocations for %d lines", f.Name, entries, got, lines)
			}
		}
	}
}

// Retained memory does not grow with the number of lines either: entries are released once they have been
// passed on.
func TestReleasedEntries(t *testing.T) {
	const lines = 60_000
	line := `203.0.113.7 - - [02/Jan/2026:15:04:05 +0000] "GET /` + strings.Repeat("x", 200) + ` HTTP/1.1" 200 512 "-" "curl/8.5.0"` + "\n"
	name := save(t, []byte(strings.Repeat(line, lines)))
	l, err := accesslog.Open([]string{name}, nil, accesslog.Options{Buffer: 1000})
	if err != nil {
		t.Fatal(err)
	}
	held := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, n := held(), 0
	if err := l.Entries(t.Context(), func(*accesslog.Entry) error {
		if n++; n == lines-2000 {
			if after := held(); after > before+6<<20 {
				t.Errorf("%d MiB retained of %d MiB of entries", (after-before)>>20, lines*len(line)>>20)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
