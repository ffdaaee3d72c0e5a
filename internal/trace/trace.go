// Package trace finds the real traces next to the module, for tests.
package trace

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/edgelimit/edge/analysis/accesslog"
)

// Shared returns the path of shared data next to the module: real traces, and figures that an independent
// program computed from them. It skips the test if the folder does not exist.
func Shared(t testing.TB, folder string, names ...string) string {
	t.Helper()
	module, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(filepath.Dir(string(module)), "..", "shared", folder)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no test data next to the module: %v", err)
	}
	return filepath.Join(append([]string{dir}, names...)...)
}

// Arrivals returns the requests of a trace.
func Arrivals(t testing.TB, name string) (arrivals []accesslog.Arrival) {
	t.Helper()
	log, err := accesslog.Open([]string{Shared(t, "traces", name+".tsv.gz")}, nil, accesslog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if err := log.Arrivals(t.Context(), func(batch []accesslog.Arrival) error {
		arrivals = append(arrivals, batch...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return arrivals
}
