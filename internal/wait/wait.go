// Package wait lets tests wait for what other goroutines and processes do.
package wait

import (
	"testing"
	"time"
)

// Until calls ok, with a pause after each call, until it returns true. It fails t after patience.
func Until(t testing.TB, what string, patience, pause time.Duration, ok func() bool) {
	t.Helper()
	for giveUp := time.Now().Add(patience); !ok(); time.Sleep(pause) {
		if time.Now().After(giveUp) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
