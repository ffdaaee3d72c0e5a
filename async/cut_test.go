package async_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
)

// A burst passes no more requests if the loop begins to count it before the rest arrives. The rest arrives when the
// loop asks for the time, in each of several places.
func TestBurstCutByFlush(t *testing.T) {
	for place := range 8 {
		t.Run(fmt.Sprint(place), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var passed, asked atomic.Int64 // asked: how often the loop has asked since the first part
				var begun atomic.Bool
				var l *single
				burst := func(n int) {
					for range n {
						req := request(1)
						if !l.Decide(&req, time.Now()).Verdict.Refused() {
							passed.Add(1)
						}
					}
				}
				l = startSingle(t, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 50, period: 1m}]}]", func(o *limit.Options, _ *mitigation.Options) {
					o.Now = func() time.Time {
						if begun.Load() && asked.Add(1) == int64(place+1) {
							burst(100)
						}
						return time.Now()
					}
				})
				time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(90 * time.Second)))
				begun.Store(true)
				burst(30)
				time.Sleep(10 * time.Second)
				switch reached := asked.Load() > int64(place); {
				case !reached && place < 3: // how often the loop asks depends on how goroutines are scheduled
					t.Errorf("the loop asked for the time %d times", asked.Load())
				case reached && passed.Load() != 51:
					t.Errorf("%d requests passed, want 51", passed.Load())
				}
				l.end()
				l.stop()
				l.running.Wait()
			})
		})
	}
}

// A burst of a client that has already made some requests gets only the rest of the threshold, although its key was not
// near the threshold before.
func TestBurstAfterSlowRequests(t *testing.T) {
	for _, test := range []struct{ threshold, before int }{{50, 43}, {50, 30}, {50, 1}, {5, 3}, {5, 4}, {3, 1}, {1, 1}, {1000, 800}} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				l := startSingle(t, fmt.Sprintf("rules: [{id: all, characteristics: [ip], limits: [{threshold: %d, period: 1m}]}]", test.threshold), nil)
				time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(90 * time.Second)))
				passed := 0
				decide := func() {
					req := request(1)
					if !l.Decide(&req, time.Now()).Verdict.Refused() {
						passed++
					}
				}
				for range test.before {
					decide()
					time.Sleep(20 * time.Millisecond)
				}
				for range 2 * test.threshold {
					decide()
				}
				if passed != test.threshold+1 {
					t.Errorf("%d requests passed, want %d", passed, test.threshold+1)
				}
				l.end()
				l.stop()
				l.running.Wait()
			})
		})
	}
}

// A burst passes no more requests if it begins in one second and ends in the next, although the two seconds are counted
// separately.
func TestBurstAcrossSeconds(t *testing.T) {
	for _, first := range []int{1, 20, 45, 50} {
		for name, begin := range map[string]time.Duration{"within a window": 90*time.Second - time.Millisecond, "across windows": 2*time.Minute - time.Millisecond} {
			t.Run(fmt.Sprint(first, " ", name), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					l := startSingle(t, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 50, period: 1m}]}]", nil)
					time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(begin)))
					passed := 0
					decide := func(now time.Time) {
						req := request(1)
						if !l.Decide(&req, now).Verdict.Refused() {
							passed++
						}
					}
					for range first {
						decide(time.Now())
					}
					for range 100 {
						decide(time.Now().Add(time.Millisecond)) // before the loop can flush the others
					}
					if passed != 51 {
						t.Errorf("%d requests passed, want 51", passed)
					}
					l.end()
					l.stop()
					l.running.Wait()
				})
			})
		}
	}
}
