package mitigation_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
)

// Of two records of a key every node keeps the same one, even if only the node or the start differs.
func TestOrder(t *testing.T) {
	least := record(time.Hour)
	later := least
	later.Start, later.Lifetime = least.Start+1, least.Lifetime-time.Microsecond // the same end
	otherNode := least
	otherNode.Node++
	longer := least
	longer.Lifetime += time.Microsecond
	lifted := least
	lifted.Lifted, lifted.Lifetime = true, time.Minute
	next := least
	next.Generation, next.Lifetime = 1, time.Minute
	records := []mitigation.Record{least, later, otherNode, longer, lifted, next} // from least to greatest
	for i, a := range records {
		for j, b := range records {
			table := newTable(t, mitigation.Options{})
			merge(t, table, a, start, true)
			merge(t, table, b, start, j > i)
			got, _ := table.Held(key(1), start)
			if want := records[max(i, j)]; got.Wins(want) || want.Wins(got) {
				t.Errorf("of records %d and %d %+v is kept, want %+v", i, j, got, want)
			}
		}
	}
}

// A record has the ID of its key however it came into the table and whatever ID it came with. For another copy
// or a later record of the key the ID is not computed again.
func TestIdentifyBy(t *testing.T) {
	table, calls := newTable(t, mitigation.Options{}), 0
	table.IdentifyBy(func(k counter.Key) (id counter.ID) {
		calls++
		id[0] = 'a' + k[0]
		return id
	})
	first := record(time.Hour)
	first.ID = counter.ID{'z'}
	earlier, explained, later := first, first, first
	earlier.Deadline = start.Add(time.Minute)
	explained.Rule = 1
	later.Start++
	for i, r := range []mitigation.Record{first, first, earlier, explained, later, record(2 * time.Hour)} {
		table.Merge(r, start)
		if got := table.Get(key(1), start, acts); got == nil || got.ID != (counter.ID{'b'}) {
			t.Errorf("after record %d Get = %+v, want the ID b", i, got)
		}
	}
	if calls != 1 {
		t.Errorf("the ID of a key was computed %d times, want once", calls)
	}
	other := record(time.Hour)
	other.Key = key(2)
	table.Merge(other, start)
	if got := table.Get(key(2), start, acts); got == nil || got.ID != (counter.ID{'c'}) {
		t.Errorf("Get = %+v, want the ID c", got)
	}
}
