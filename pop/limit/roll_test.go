package limit

import (
	"testing"
	"time"

	"github.com/edgelimit/edge/counter"
)

// What was not sent before its window had passed is too late, and is said so once.
func TestUnsentRequestsAreLateAfterTwoWindows(t *testing.T) {
	for _, tt := range []struct {
		name string
		at   int64 // seconds
		want uint64
	}{
		{"in the same window", 19, 0},
		{"one window on, which keeps the one before", 20, 3},
		{"two windows on", 30, 3 + 4},
		{"an hour on", 3600, 3 + 4},
	} {
		tr := newTrack(counter.Key{}, newRule(t, "[{threshold: 50, period: 10s}]"), at(9, 0), nil)
		tr.add(3, at(9, 0))
		tr.add(4, at(10, 0))
		tr.advance(at(tt.at, 0))
		if late := tr.late(); late != tt.want {
			t.Errorf("%s: %d requests are late, want %d", tt.name, late, tt.want)
		}
		if n := tr.late() + tr.unsentRequests(); n != 7-tt.want {
			t.Errorf("%s: %d requests are still to be sent, want %d", tt.name, n, 7-tt.want)
		}
	}
}

// What was to be read or looked at in a window ends with it.
func TestAWindowBeginsAnew(t *testing.T) {
	const catchUp = 4 * time.Millisecond
	tr := newTrack(counter.Key{}, newRule(t, "[{threshold: 10, period: 10s}]"), at(10, 0), nil)
	count := func(seconds int64, number, prev uint64) {
		t.Helper()
		tr.add(1, at(seconds, 0))
		j, _ := next(tr, at(seconds, 0))
		tr.counted(j.sends[0], number)
		tr.read(j.reads[0], prev, at(seconds, 0), catchUp)
		tr.readRecord = false
		if f := tr.evaluate(at(seconds, 0)); f.over {
			t.Fatalf("at %d s: %+v", seconds, f)
		}
	}
	count(10, 8, 0) // to be read once more, at 10.004 s
	if _, p := next(tr, at(20, 5000)); p.Reads != nil {
		t.Error("the previous counter is read in a window without requests, since that was due in the one before")
	}
	// 8×0.5+5 is within the threshold; 8+5, as the key was last looked at in the window
	// before, is not.
	count(25, 5, 8)
	if tr.readRecord {
		t.Error("the record is to be read once more, because of a moment in another window")
	}
}

// A reply that comes when its window has passed, or has not yet come, says nothing.
func TestStaleReads(t *testing.T) {
	for _, tt := range []struct {
		name string
		at   int64 // seconds; it was read in the window of 10 s
	}{
		{"of the same window", 19},
		{"of the window before", 20},
		{"of the window to come, since the clock was set back", 9},
	} {
		tr := newTrack(counter.Key{}, newRule(t, "[{threshold: 5, period: 10s}]"), at(30, 0), nil)
		read := slot{tr.windows[0].limit, 360}
		tr.advance(at(tt.at, 0)) // from two windows ahead
		tr.read(read, 9, at(tt.at, 0), 0)
		current := tt.at/10 == 1
		if fresh := tr.windows[0].fresh; fresh == current {
			t.Errorf("%s: the previous counter is still to be read: %t", tt.name, fresh)
		}
		tr.add(1, at(tt.at, 0))
		if f := tr.evaluate(at(tt.at, 0)); f.over {
			t.Errorf("%s: 1 request of 5 is over: %v", tt.name, f.why)
		}
	}
}

// A clock that is set back within the windows that are kept lets the previous one weigh as
// much as it can.
func TestEvaluateBeforeTheWindow(t *testing.T) {
	tr := newTrack(counter.Key{}, newRule(t, "[{threshold: 5, period: 10s}]"), at(9, 0), nil)
	tr.add(5, at(9, 0))
	tr.add(1, at(10, 0))
	f := tr.evaluate(at(9, 900_000))
	if !f.over || f.why.Elapsed != 0 {
		t.Errorf("5 and 1 of 5, seen from before the window: %+v, want over by 5×1+1", f)
	}
}

// Where nodes catch up for longer than a window lasts, the previous counter is read once
// more at the window's end.
func TestPrevIsReadOnceMoreWithinTheWindow(t *testing.T) {
	tr := newTrack(counter.Key{}, newRule(t, "[{threshold: 5, period: 1s}]"), at(10, 0), nil)
	tr.add(1, at(10, 0))
	j, _ := next(tr, at(10, 0))
	tr.counted(j.sends[0], 1)
	tr.readRecord = false
	again, _ := tr.read(j.reads[0], 0, at(10, 0), 3*time.Second)
	if want := at(10, 999_999); !again.Equal(want) {
		t.Errorf("read again at %v, want the last microsecond of the window, %v", again, want)
	}
	_, p := next(tr, again)
	wantPlan(t, "at the window's end", p, plan{Reads: []int{0}})
}

// Where other nodes may need longer than a window to catch up, the previous counter is read
// for the last time at the window's end, and not again and again there.
func TestALateReadIsTheLastOne(t *testing.T) {
	const catchUp = time.Minute
	tr := newTrack(counter.Key{}, newRule(t, "[{threshold: 10, period: 10s}]"), at(10, 0), nil)
	tr.add(1, at(10, 0))
	j, _ := next(tr, at(10, 0))
	tr.counted(j.sends[0], 1)
	end := at(20, 0).Add(-time.Microsecond)
	if again, _ := tr.read(j.reads[0], 0, at(10, 0), catchUp); !again.Equal(end) {
		t.Fatalf("read again at %v, want the end of the window, %v", again, end)
	}
	tr.readRecord = false
	if j, _ = next(tr, end); len(j.reads) != 1 {
		t.Fatalf("%d counters are read at the end of the window, want 1", len(j.reads))
	}
	if again, _ := tr.read(j.reads[0], 0, end, catchUp); !again.IsZero() {
		t.Errorf("read once more at %v", again)
	}
	if j, _ = next(tr, end); len(j.reads) != 0 {
		t.Error("there is something to read for ever")
	}
}
