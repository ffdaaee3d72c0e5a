package accesslog_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/edgelimit/edge/analysis/accesslog"
)

// What is allocated does not grow with the lines: batches and blocks are used again.
func TestLinesAllocateNothing(t *testing.T) {
	const lines = 50_000
	for _, f := range accesslog.Formats() {
		head, line := "", f.Example
		if i := strings.LastIndexByte(line, '\n'); i >= 0 {
			head, line = line[:i+1], line[i+1:]
		}
		name := save(t, []byte(head+strings.Repeat(line+"\n", lines)))
		for _, entries := range []bool{false, true} {
			l, err := accesslog.Open([]string{name}, accesslog.Options{Buffer: 4096})
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
