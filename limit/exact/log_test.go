package exact_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/edgelimit/edge/limit/exact"
)

// The log counts like a list of all times, whatever is added and forgotten in between.
func TestLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const period = 50
		threshold := rapid.Uint64Range(1, 8).Draw(t, "threshold")
		var added, asked exact.Log
		var times []int64
		now := int64(1000)
		for i, step := range rapid.SliceOf(rapid.Int64Range(0, 40)).Draw(t, "steps") {
			now += step
			times = append(times, now)
			want := uint64(0)
			for _, at := range times {
				if at > now-period {
					want++
				}
			}
			if got := added.Add(now, period); got != want {
				t.Fatalf("%d requests after %d at %d, want %d", got, i+1, now, want)
			}
			if over := asked.Exceeds(1, threshold, now, period); over != (want > threshold) {
				t.Fatalf("Exceeds is %t for %d requests with the threshold %d", over, want, threshold)
			}
			if asked.Newest() != now {
				t.Fatalf("the newest is at %d, want %d", asked.Newest(), now)
			}
			if want > threshold {
				back, left := added.Back(threshold, period), uint64(0)
				for _, at := range times {
					if at > back-period {
						left++
					}
				}
				if left > threshold {
					t.Fatalf("%d requests are left at %d, want %d at most", left, back, threshold)
				}
			}
		}
		if added.Clear(); added.Add(now, period) != 1 {
			t.Fatal("a cleared log is not empty")
		}
	})
}
