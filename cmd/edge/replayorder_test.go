package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A log that is too far out of order to be sorted in memory is sorted on disk without being asked to.
func TestSortAuto(t *testing.T) {
	file := filepath.Join(t.TempDir(), "late.log")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	const lines = 1_200_000 // one million fit into memory
	for i := range lines {
		fmt.Fprintf(w, "%d\tc%d\n", 1_500_000_000+i/100, i%7)
	}
	fmt.Fprintln(w, "1400000000\tlate")
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for sort, wantCode := range map[string]int{"auto": 0, "memory": 1} {
		var stdout, stderr bytes.Buffer
		if code := run([]string{"replay", "--json", "--sort", sort, "--temp-dir", t.TempDir(), file}, &stdout, &stderr); code != wantCode {
			t.Fatalf("--sort %s: exit code %d, want %d\n%s", sort, code, wantCode, &stderr)
		}
		if wantCode != 0 {
			continue
		}
		var o overview
		if err := json.Unmarshal(stdout.Bytes(), &o); err != nil || o.Requests != lines+1 || o.Clients != 8 || o.From.Unix() != 1_400_000_000 {
			t.Errorf("--sort %s: %d requests of %d clients from %v on, %v", sort, o.Requests, o.Clients, o.From, err)
		}
	}
}
