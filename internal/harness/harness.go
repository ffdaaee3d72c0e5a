// Package harness runs real programs in tests: edge, memcached, other proxies.
package harness

import (
	"bytes"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"testing"
	"time"
)

// Require is an environment variable. If it is set, a test whose requirements are missing fails instead
// of being skipped.
const Require = "EDGE_TEST_REQUIRE"

// Unavailable skips a test whose requirements are missing. If Require is set, it fails the test.
func Unavailable(t testing.TB, why string) {
	t.Helper()
	if os.Getenv(Require) != "" {
		t.Fatalf("%s, but %s is set", why, Require)
	}
	t.Skip(why)
}

// Installed returns the path of a program. If it is not installed, Installed calls Unavailable.
func Installed(t testing.TB, program string) (path string) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		Unavailable(t, program+" is not installed")
	}
	return path
}

// Until calls ok, with pauses between the calls, until it returns true. After patience, it fails t.
func Until(t testing.TB, event string, patience, pause time.Duration, ok func() bool) {
	t.Helper()
	for giveUp := time.Now().Add(patience); !ok(); time.Sleep(pause) {
		if time.Now().After(giveUp) {
			t.Fatalf("not within %v: %s", patience, event)
		}
	}
}

// WithoutRaceDetector reports whether the race detector is off. If it is on, WithoutRaceDetector runs t again without
// it, from all files of the package or the given ones, and fails t if that fails. It is for long computations, which
// take several times as long with the race detector, of code that other tests run with it.
func WithoutRaceDetector(t *testing.T, files ...string) bool {
	t.Helper()
	info, _ := debug.ReadBuildInfo()
	if info == nil || !slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		return true
	}
	args := []string{"test", "-race=false", "-count=1", "-v", "-timeout=60m", "-run=^" + t.Name() + "$"}
	out, err := exec.Command("go", append(args, files...)...).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("\n--- PASS: "+t.Name()+" ")) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}
