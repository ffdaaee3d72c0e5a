package analysis

import (
	"testing"
	"time"
)

// A failure begins and ends at the given times. Without a duration, it lasts until the end of the log.
func TestLossLasts(t *testing.T) {
	for l, want := range map[Loss][3]bool{
		{At: 10 * time.Second}:                       {true, true, true},
		{At: 10 * time.Second, For: 5 * time.Second}: {true, true, false},
		{At: 12 * time.Second}:                       {false, false, true},
	} {
		for i, at := range []int64{10e6, 12e6 - 1, 15e6} {
			if got := l.lasts(at, 0, 0); got != want[i] {
				t.Errorf("%v lasts after %d µs: %t, want %t", l, at, got, want[i])
			}
		}
	}
}
