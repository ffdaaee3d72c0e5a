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

// Requests with a cost count as many.
func TestCosts(t *testing.T) {
	var l exact.Log
	for i, n := range []uint64{3, 4, 1} { // at the same time
		if over := l.Exceeds(n, 7, 10, 50); over != (i == 2) {
			t.Errorf("request %d exceeds the threshold: %t", i+1, over)
		}
	}
	defer func() {
		if l.Over(0, 60, 50) {
			t.Errorf("after the period %d requests are left", l.Total())
		}
	}()
	if back := l.Back(7, 50); back != 60 || l.Total() != 8 {
		t.Errorf("%d requests, back at %d, want 8 and 60", l.Total(), back)
	}
}

// A log that was long is small once its requests have left the period, and counts on. One whose requests leave as fast
// as they come does not grow.
func TestMemory(t *testing.T) {
	var l exact.Log
	for now := range int64(100) {
		l.Add(now, 1000)
	}
	for now := int64(2000); now < 2010; now++ {
		if got := l.Add(now, 1000); got != uint64(now-1999) {
			t.Errorf("%d requests at %d, want %d", got, now, now-1999)
		}
	}
	now := int64(10_000)
	if n := testing.AllocsPerRun(1, func() { // after as many requests before
		for range 1000 {
			now += 500
			l.Exceeds(1, 1<<40, now, 1000)
		}
	}); n != 0 {
		t.Errorf("a log of two requests allocates %v times for a thousand others", n)
	}
}
