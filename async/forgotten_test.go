package async_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
)

// A client whose mitigation was lifted is limited again after the node has forgotten the lift, because it was
// long ago or because the table was full.
func TestForgottenLift(t *testing.T) {
	for _, tt := range []struct {
		name    string
		records int // that the table has room for
		forget  func(*single)
	}{
		{"it was long ago", 0, func(*single) { time.Sleep(mitigation.MaxLifetime + time.Minute) }},
		{"the table was full", 64, func(a *single) {
			time.Sleep(time.Minute)
			for client := range uint32(1000) {
				for range 11 {
					a.decide(client + 2)
				}
				time.Sleep(5 * time.Millisecond)
			}
		}},
	} {
		bubble.Test(t, func(t *testing.T) {
			time.Sleep(time.Second)
			a := startSingle(t, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 10, period: 10s}], mitigation_timeout: 1h}]",
				func(_ *limit.Options, o *mitigation.Options) { o.Size = tt.records })
			defer a.close()
			passes := func(n int) (passed int) {
				for range n {
					if a.decide(1).Verdict == limit.Passed {
						passed++
					}
					time.Sleep(5 * time.Millisecond)
				}
				return passed
			}
			passes(12)
			if _, err := a.Lift(a.key(1), time.Now()); err != nil {
				t.Fatal(err)
			}
			passes(1)
			tt.forget(a)
			if a.table.Generation(a.key(1)) != 0 {
				t.Fatalf("%s: the node still knows the lift", tt.name)
			}
			if got := passes(8); got != 8 {
				t.Errorf("%s: %d of 8 requests pass, want all", tt.name, got)
			}
			if got := passes(100); got > 4 {
				t.Errorf("%s: %d more requests pass, want at most 4", tt.name, got)
			}
		})
	}
}
