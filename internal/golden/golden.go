// Package golden compares the output of tests with golden files. go test PACKAGE -update rewrites the
// files: read the diff before committing it.
package golden

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Update is the flag -update.
var Update = flag.Bool("update", false, "rewrite the golden files; read the diff before committing it")

// Check fails the test if got differs from the contents of file.
func Check(t *testing.T, file string, got []byte) {
	t.Helper()
	if *Update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs; if the change is intended, run the test with -update (-want +got):\n%s", file, diff)
	}
}
