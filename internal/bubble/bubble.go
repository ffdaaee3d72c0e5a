// Package bubble runs tests on a virtual clock.
package bubble

import (
	"runtime"
	"testing"
	"testing/synctest"
)

// Test is synctest.Test with one processor: the race detector crashes if two threads fire timers
// of one bubble (go.dev/issue/78156).
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, f)
}
