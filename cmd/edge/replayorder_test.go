package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/edgelimit/edge/analysis/accesslog"
)

// A log that is too far out of order to be sorted in memory is sorted on disk without being asked to.
func TestSortAuto(t *testing.T) {
	file := filepath.Join(t.TempDir(), "late.log")
	var log strings.Builder
	const lines = 100_000
	for i := range lines {
		fmt.Fprintf(&log, "%d\tc%d\n", 1_500_000_000+i/100, i%7)
	}
	write(t, file, log.String()+"1400000000\tlate\n")
	for sort, sorted := range map[string]bool{"auto": true, "memory": false} {
		f := &inputFlags{sort: sort, tempDir: t.TempDir(), buffer: 1000}
		var stderr bytes.Buffer
		var read int
		var first int64
		cmd := new(cobra.Command)
		cmd.SetErr(&stderr)
		err := f.read(cmd, []string{file}, 0, func(in *input) error {
			read = 0
			return in.arrivals(t.Context(), func(as []accesslog.Arrival) error {
				if read == 0 {
					first = as[0].Time / 1e6
				}
				read += len(as)
				return nil
			})
		})
		if sorted != (err == nil) || !sorted && !strings.Contains(err.Error(), "late.log: an entry is ") || sorted && (read != lines+1 || first != 1_400_000_000) {
			t.Errorf("--sort %s: %d requests from %d on, %v", sort, read, first, err)
		}
	}
}
