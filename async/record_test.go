package async

import (
	"math"
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

// Requests that arrived before the windows that count are dropped, and the metric says so. So are those in flight when
// the clock is set back, even if it is set forward again before the answer comes.
func TestRequestsOutsideTheWindows(t *testing.T) {
	tr := newTrack(newRule(t, "[{threshold: 50, period: 1m}]"), at(0, 0))
	tr.count(3, at(300, 0))
	if tr.count(2, at(0, 0)); tr.lost(dropShard) != 2 {
		t.Errorf("%d late requests are dropped, want 2", tr.lost(dropShard))
	}
	sent := tr.sentIncrements(1, at(300, 0))
	tr.advance(tr.track, at(0, 0))
	tr.advance(tr.track, at(300, 0))
	sent[0].Outcome = counter.NotSent
	tr.handleIncrement(&sent[0].slot, &sent[0].Increment, at(300, 0))
	if w := &tr.windows()[0]; tr.lost(dropShard) != 2+3 || w.Cur.known != 0 || w.Cur.waiting != 0 {
		t.Errorf("%d requests are dropped, %d known and %d waiting; want 5 and none", tr.lost(dropShard), w.Cur.known, w.Cur.waiting)
	}
}

// The clients of a network are those of the first limit's windows, however short the other limits are.
func TestClientsOfTheFirstLimit(t *testing.T) {
	tr := newTrack(newRule(t, "[{threshold: 50, period: 1h}, {threshold: 50, period: 1s}]"), at(0, 0))
	tr.rare().clients[0].Add(ClientSet{7})
	if tr.advance(tr.track, at(5, 0)); tr.clients() != 3 {
		t.Errorf("5 s later, there are %d clients, want 3", tr.clients())
	}
}

// A record that must be read is read even if no request comes.
func TestARecordToReadIsWork(t *testing.T) {
	tr := newTrack(newRule(t, "[{threshold: 50, period: 1m}]"), at(0, 0))
	tr.readRecord.Store(true)
	if !tr.hasWork(at(0, 0)) {
		t.Error("a key whose record must be read has no work")
	}
}

// An extended mitigation stays that of an operator, and no record lasts longer than nodes accept.
func TestExtendedRecord(t *testing.T) {
	for _, lifetime := range []time.Duration{2 * time.Hour, mitigation.MaxLifetime - time.Minute} {
		c, now := newLoop(t, "threshold: 16", Options{})
		last := mitigation.Record{Key: counter.Key{1}, Start: now.Add(time.Hour - lifetime).UnixMicro(), Lifetime: lifetime, Deadline: now.Add(time.Hour), ByHand: true}
		c.o.Table.Merge(last, *now)
		c.mitigate(last.Key, c.rules.Load().Rules()[0], finding{back: now.Add(2 * time.Hour)}, new(mitigation.Sample), math.MaxInt, *now)
		longer := min(time.Hour, mitigation.MaxLifetime-lifetime)
		got, _ := c.o.Table.Last(last.Key)
		if got.Lifetime != lifetime+longer || !got.Deadline.Equal(last.Deadline.Add(longer)) || !got.ByHand || got.Start != last.Start {
			t.Errorf("a mitigation for %v is extended to %+v, want %v more", lifetime, got, longer)
		}
	}
}

// Comparing many records does not take up all of a node's memory for keys at once.
func TestRecordsAreComparedInParts(t *testing.T) {
	c, now := newLoop(t, "threshold: 16", Options{})
	for i := range 3 * atOnce {
		c.uncompared = append(c.uncompared, counter.Key{byte(i), byte(i >> 8)})
	}
	if next := c.compareRecords(*now); len(c.uncompared) != 2*atOnce || !next.Equal(now.Add(comparePause)) {
		t.Errorf("%d of %d records are left until %v, want %d until %v", len(c.uncompared), 3*atOnce, next, 2*atOnce, now.Add(comparePause))
	}
}

// Requests from before and after a lift are never counted together.
func TestGenerationsAreQueuedApart(t *testing.T) {
	queued := newTable(4)
	for _, generation := range []uint32{0, 1, 0} {
		queued.add(&item{n: 1, generation: generation})
	}
	if len(queued.items) != 2 || queued.items[0].n != 2 || queued.items[1].n != 1 {
		t.Errorf("the queue has %+v, want two items", queued.items)
	}
}
