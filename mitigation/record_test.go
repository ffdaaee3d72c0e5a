package mitigation_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

// Merge compares the fields that are the same on every node, and adds those that only some nodes know.
func TestMergeOfTwo(t *testing.T) {
	one, two := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	with := func(r mitigation.Record, change func(*mitigation.Record)) mitigation.Record {
		change(&r)
		return r
	}
	have := record(time.Hour)
	longer := record(2 * time.Hour)
	explained := with(have, func(r *mitigation.Record) { r.Rule, r.Client, r.Sample = 7, one, &mitigation.Sample{Host: "a"} })
	ended := with(explained, func(r *mitigation.Record) { r.Deadline = start })
	for name, tt := range map[string]struct {
		have, r, want mitigation.Record
		changed       bool
	}{
		"a later end":            {have, longer, longer, true},
		"an earlier end":         {longer, have, longer, false},
		"a later generation":     {longer, with(have, func(r *mitigation.Record) { r.Generation = 1 }), with(have, func(r *mitigation.Record) { r.Generation = 1 }), true},
		"a lift":                 {longer, with(have, func(r *mitigation.Record) { r.Lifted = true }), with(have, func(r *mitigation.Record) { r.Lifted = true }), true},
		"a mitigation it lifted": {with(have, func(r *mitigation.Record) { r.Lifted = true }), longer, with(have, func(r *mitigation.Record) { r.Lifted = true }), false},
		"another node":           {have, with(have, func(r *mitigation.Record) { r.Node = 2 }), with(have, func(r *mitigation.Record) { r.Node = 2 }), true},
		"a copy":                 {explained, have, explained, false},
		"a copy that ends earlier": {have, with(have, func(r *mitigation.Record) { r.Deadline = start.Add(time.Minute) }),
			with(have, func(r *mitigation.Record) { r.Deadline = start.Add(time.Minute) }), false},
		"a copy that ends later":           {with(have, func(r *mitigation.Record) { r.Deadline = start.Add(time.Minute) }), have, with(have, func(r *mitigation.Record) { r.Deadline = start.Add(time.Minute) }), false},
		"a copy that is explained":         {have, explained, with(have, func(r *mitigation.Record) { r.Rule, r.Client = 7, one }), true},
		"an earlier one that is explained": {longer, explained, with(longer, func(r *mitigation.Record) { r.Rule = 7 }), true},
		"a later one without explanation":  {explained, longer, with(longer, func(r *mitigation.Record) { r.Rule, r.Client, r.Sample = 7, one, explained.Sample }), true},
		"a later one with its own": {explained, with(longer, func(r *mitigation.Record) { r.Rule, r.Client = 8, two }),
			with(longer, func(r *mitigation.Record) { r.Rule, r.Client, r.Sample = 8, two, explained.Sample }), true},
		"a later one than one that has ended": {ended, longer, with(longer, func(r *mitigation.Record) { r.Rule = 7 }), true},
		"a copy of one that has ended":        {ended, have, ended, false},
	} {
		got, changed := mitigation.Merge(tt.have, tt.r, start)
		if diff := cmp.Diff(tt.want, got, addrs); diff != "" || changed != tt.changed {
			t.Errorf("%s: changed is %t, (-want +got):\n%s", name, changed, diff)
		}
	}
}

// A record has the ID of its key however it came into the table and whatever ID it came with. For another copy
// or a later record of the key the ID is not computed again.
func TestID(t *testing.T) {
	calls := 0
	table := newTable(t, mitigation.Options{ID: func(k counter.Key) (id counter.ID) {
		calls++
		id[0] = 'a' + k[0]
		return id
	}})
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
