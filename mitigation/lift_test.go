package mitigation_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edge/mitigation"
)

func TestLift(t *testing.T) {
	table := newTable(t, mitigation.Options{})
	merge(t, table, record(time.Hour), start, true)
	lift := record(2 * time.Hour)
	lift.Lifted = true
	merge(t, table, lift, start, true)
	mitigated(t, table, key(1), start, false)
	merge(t, table, record(3*time.Hour), start, false) // a copy of the lifted record arrives, extended
	mitigated(t, table, key(1), start, false)
	if held, ok := table.Held(key(1), start); !ok || !held.Lifted {
		t.Errorf("Held = %+v, %t, want the lift", held, ok)
	}
	again := record(time.Minute)
	again.Generation = 1
	merge(t, table, again, start, true)
	mitigated(t, table, key(1), start, true)
	merge(t, table, lift, start, false)
	mitigated(t, table, key(1), start, true)
}

// A lift is remembered for MaxLifetime, even after a later mitigation has ended.
func TestALiftIsRemembered(t *testing.T) {
	table := newTable(t, mitigation.Options{})
	lift := record(mitigation.MaxLifetime)
	lift.Lifted = true
	merge(t, table, lift, start, true)
	again := record(time.Minute)
	again.Generation = 1
	merge(t, table, again, start, true)
	for _, after := range []time.Duration{time.Hour, 7 * 24 * time.Hour, mitigation.MaxLifetime - time.Second, mitigation.MaxLifetime + time.Minute} {
		table.Expire(start.Add(after), func(mitigation.Record) {})
		want := uint32(1)
		if after > mitigation.MaxLifetime {
			want = 0
		}
		if got := table.Generation(key(1)); got != want {
			t.Errorf("%v after a lift the generation is %d, want %d", after, got, want)
		}
	}
}

// A node that missed a lift and the next mitigation learns from a peer how often the key was lifted, even after that
// mitigation has ended. Otherwise the two would count the key separately.
func TestALiftIsLearnedAfterALaterMitigation(t *testing.T) {
	knows, met := newTable(t, mitigation.Options{}), newTable(t, mitigation.Options{})
	for generation := range uint32(3) {
		again := record(time.Minute)
		again.Generation = generation
		merge(t, knows, again, start, true)
		if generation < 2 {
			again.Lifted, again.Lifetime, again.Deadline = true, mitigation.MaxLifetime, start.Add(mitigation.MaxLifetime)
			merge(t, knows, again, start, true)
		}
	}
	now := start.Add(time.Hour)
	knows.Expire(now, func(mitigation.Record) {})
	mitigated(t, knows, key(1), now, false)
	for r := range knows.All(now) {
		received, err := mitigation.ParseSent(r.AppendSent(nil, now), now)
		if err != nil {
			t.Fatal(err)
		}
		merge(t, met, received, now, true)
	}
	if a, b := knows.Generation(key(1)), met.Generation(key(1)); a != 2 || b != 2 {
		t.Errorf("the generations of the two nodes are %d and %d, want 2", a, b)
	}
	if a, b := knows.Digest(), met.Digest(); a != b {
		t.Error("the nodes still differ")
	}
}

// A mitigation that a node learns of shows that its key was lifted before, even if the node missed the lift.
func TestALaterMitigationTellsOfALift(t *testing.T) {
	table := newTable(t, mitigation.Options{})
	again := record(time.Minute)
	again.Generation = 1
	merge(t, table, again, start, true)
	if got := table.Generation(key(1)); got != 1 {
		t.Errorf("during a mitigation of generation 1 the generation is %d", got)
	}
	next := record(time.Minute) // begins while the table remembers the one that has ended
	next.Generation, next.Start, next.Deadline = 1, start.Add(time.Hour).UnixMicro(), start.Add(time.Hour+time.Minute)
	merge(t, table, next, start.Add(time.Hour), true)
	fresh := newTable(t, mitigation.Options{})
	merge(t, fresh, next, start.Add(time.Hour), true)
	if table.Digest() != fresh.Digest() || table.Len() != 1 {
		t.Errorf("a table with the next mitigation has %d records, want 1, the same as in a new table", table.Len())
	}
}

// A copy of a mitigation from before a lift, which adds its rule to a later mitigation, does not
// make the table forget the lift.
func TestACopyFromBeforeALiftDoesNotEndItsMemory(t *testing.T) {
	table := newTable(t, mitigation.Options{})
	after := record(time.Hour) // from a shard: without its rule
	after.Generation = 1
	merge(t, table, after, start, true)
	before := record(time.Minute)
	before.Rule = 7
	merge(t, table, before, start, true)
	for range 2 { // it ends, and would be forgotten
		table.Expire(start.Add(2*time.Hour), func(mitigation.Record) {})
	}
	if got := table.Generation(key(1)); got != 1 {
		t.Errorf("after the mitigation the generation is %d, want 1", got)
	}
}
