package async

import (
	"testing"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
)

// A record is stored again unless the shard has it or refuses it. If the shard has another one, it is read first.
func TestRecordIsStoredAgain(t *testing.T) {
	for _, tt := range []struct {
		outcome     counter.Outcome
		store, read bool
	}{
		{counter.Done, false, false},
		{counter.Refused, false, false},
		{counter.Absent, true, true},
		{counter.Unknown, true, false},
		{counter.NotSent, true, false},
	} {
		of := &track{store: true}
		if of.handleStored(tt.outcome); of.store != tt.store || of.readRecord.Load() != tt.read {
			t.Errorf("outcome %v: store = %t, readRecord = %t, want %t, %t", tt.outcome, of.store, of.readRecord.Load(), tt.store, tt.read)
		}
	}
}

// Conflicts count for one store of a record: after one that was given up, the next is tried as often.
func TestEachStoreHasItsTries(t *testing.T) {
	now := at(1, 0)
	tr := newTrack(newRule(t, "[{threshold: 50, period: 1m}]"), now)
	tr.o.Table.Merge(mitigation.Record{Key: tr.key, Lifetime: time.Hour, Deadline: now.Add(time.Hour)}, now)
	for store := range 2 {
		tr.store = true
		for try := 1; try <= maxTries; try++ {
			tr.handleStored(counter.Absent)
			tr.handleRecord(tr.track, &counter.Read{Outcome: counter.Absent}, now)
			if want := try < maxTries; tr.store != want {
				t.Errorf("store %d is tried again after try %d: %t, want %t", store+1, try, tr.store, want)
			}
		}
	}
}

// An answer to an increment of limits that a reload has replaced changes no count.
func TestAnswerForFormerLimits(t *testing.T) {
	for _, limits := range []string{"[{threshold: 50, period: 1m, sub_windows: 6}]", "[{threshold: 50, period: 1h}]"} {
		now := at(1, 0)
		tr := newTrack(newRule(t, "[{threshold: 50, period: 1m}, {threshold: 90, period: 1h}]"), now)
		tr.count(3, now)
		sent := tr.sentIncrements(16, now)
		tr.setRule(tr.track, newRule(t, limits), now)
		before := tr.windows()[0].Cur.known
		for _, s := range sent {
			s.Outcome, s.Value = counter.Done, 100
			tr.handleIncrement(&s.slot, &s.Increment, now)
		}
		if got := tr.windows()[0].Cur.known; len(sent) != 2 || got != before {
			t.Errorf("%s: after the answers to %d increments, %d requests are known, want %d", limits, len(sent), got, before)
		}
	}
}
