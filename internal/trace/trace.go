// Package trace finds the real traces next to the module, for tests.
package trace

import (
	"bufio"
	"compress/gzip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/edgelimit/edge/analysis/accesslog"
)

// Shared returns the path of shared data next to the module: real traces, and figures that an independent
// program computed from them. It skips the test if the folder does not exist.
func Shared(t testing.TB, folder string, names ...string) string {
	t.Helper()
	module, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(module, "go.mod")); err == nil {
			break
		}
		if module == filepath.Dir(module) {
			t.Fatal("no go.mod above the test")
		}
		module = filepath.Dir(module)
	}
	dir := filepath.Join(module, "..", "shared", folder)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no test data next to the module: %v", err)
	}
	return filepath.Join(append([]string{dir}, names...)...)
}

// Arrivals returns the requests of a trace.
func Arrivals(t testing.TB, name string) (arrivals []accesslog.Arrival) {
	t.Helper()
	file, err := os.Open(Shared(t, "traces", name+".tsv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(z); lines.Scan(); {
		seconds, client, _ := strings.Cut(lines.Text(), "\t")
		at, err := strconv.ParseInt(seconds, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		a := accesslog.Arrival{Time: at * 1e6}
		copy(a.Client[:], client)
		arrivals = append(arrivals, a)
	}
	return arrivals
}
