package mitigation_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
)

var start = time.Unix(1_700_000_000, 0)

var addrs = cmpopts.EquateComparable(netip.Addr{})

func key(n uint64) (k counter.Key) {
	binary.LittleEndian.PutUint64(k[:], n)
	return k
}

// record returns a record of key 1 that begins at start and has this lifetime.
func record(lifetime time.Duration) mitigation.Record {
	return mitigation.Record{
		Key:      key(1),
		Start:    start.UnixMicro(),
		Lifetime: lifetime,
		Node:     1,
		Deadline: start.Add(lifetime),
		Why: mitigation.Why{
			Limit: counter.Limit{Threshold: 49, Period: 60e6, Layout: counter.Plain},
			Prev:  42, Cur: 18, Elapsed: 15e6,
		},
	}
}

func newTable(t testing.TB, o mitigation.Options) *mitigation.Table {
	t.Helper()
	table := mitigation.New(o)
	return table
}

func merge(t testing.TB, table *mitigation.Table, r mitigation.Record, now time.Time, want bool) {
	t.Helper()
	if got, _ := table.Merge(r, now); got != want {
		t.Errorf("Merge(%+v) = %t, want %t", r, got, want)
	}
}

func mitigated(t testing.TB, table *mitigation.Table, k counter.Key, now time.Time, want bool) {
	t.Helper()
	if r := table.Get(k, now, acts); (r != nil) != want {
		t.Errorf("Get(%v, start+%v) = %+v, want a record: %t", k, now.Sub(start), r, want)
	}
}

func TestGetUntilTheDeadline(t *testing.T) {
	table := newTable(t, mitigation.Options{})
	mitigated(t, table, key(1), start, false)
	merge(t, table, record(time.Minute), start, true)
	mitigated(t, table, key(1), start, true)
	mitigated(t, table, key(1), start.Add(time.Minute-1), true)
	mitigated(t, table, key(1), start.Add(time.Minute), false)
	mitigated(t, table, key(2), start, false)
	got := table.Get(key(1), start, acts)
	want := record(time.Minute)
	want.Estimate = 50 // 49.5, rounded up
	if diff := cmp.Diff(want, *got, addrs); diff != "" {
		t.Errorf("Get (-want +got):\n%s", diff)
	}
}

func TestTheLaterEndWins(t *testing.T) {
	table := newTable(t, mitigation.Options{})
	merge(t, table, record(time.Minute), start, true)
	merge(t, table, record(time.Minute), start, false)
	merge(t, table, record(30*time.Second), start, false)
	mitigated(t, table, key(1), start.Add(45*time.Second), true)
	merge(t, table, record(2*time.Minute), start, true)
	mitigated(t, table, key(1), start.Add(90*time.Second), true)
}

// A delayed copy does not extend the original.
func TestEarlierDeadlineOfACopy(t *testing.T) {
	table := newTable(t, mitigation.Options{})
	late, early := record(time.Minute), record(time.Minute)
	late.Deadline = start.Add(50 * time.Second)
	early.Deadline = start.Add(40 * time.Second)
	merge(t, table, late, start, true)
	merge(t, table, early, start, false)
	merge(t, table, late, start, false)
	mitigated(t, table, key(1), start.Add(40*time.Second), false)
}

func TestADeadlineBeyondTheLifetimeIsClamped(t *testing.T) {
	table := newTable(t, mitigation.Options{})
	r := record(time.Minute)
	r.Deadline = start.Add(365 * 24 * time.Hour)
	merge(t, table, r, start, true)
	mitigated(t, table, key(1), start.Add(time.Minute), false)
	r = record(365 * 24 * time.Hour)
	r.Key = key(2)
	merge(t, table, r, start, true)
	mitigated(t, table, key(2), start.Add(mitigation.MaxLifetime), false)
}

// The sample is kept as long as the mitigation lasts, however often it is extended, and no longer.
func TestASampleIsKeptWhileItsMitigationLasts(t *testing.T) {
	table := newTable(t, mitigation.Options{})
	sample := &mitigation.Sample{Rule: "login"}
	first := record(time.Minute)
	first.Sample = sample
	merge(t, table, first, start, true)
	wantSample := func(what string, now time.Time, want *mitigation.Sample) {
		t.Helper()
		if r := table.Get(key(1), now, acts); r == nil || r.Sample != want {
			t.Errorf("%s: %+v, want one with Sample = %+v", what, r, want)
		}
	}
	copied := record(time.Minute)
	copied.Deadline = start.Add(50 * time.Second)
	merge(t, table, copied, start, false)
	wantSample("an earlier copy", start, sample)
	extended := record(2 * time.Minute)
	extended.Node = 2
	merge(t, table, extended, start, true)
	wantSample("extended by another node", start, sample)
	next := record(5 * time.Minute)
	merge(t, table, next, start.Add(2*time.Minute), true)
	wantSample("the next mitigation", start.Add(2*time.Minute), nil)

	table = newTable(t, mitigation.Options{})
	first.Generation = 1
	merge(t, table, first, start, true)
	for range 2 { // it ends, and only the lift before it is remembered
		table.Expire(start.Add(time.Hour), func(mitigation.Record) {})
	}
	if lift, ok := table.Held(key(1), start.Add(time.Hour)); !ok || !lift.Lifted || lift.Sample != nil {
		t.Errorf("after the mitigation the table holds %+v, %t; want a lift without a sample", lift, ok)
	}
}

// The requests that a mitigation has acted on are counted from its start, however often it is extended.
func TestActedThroughExtensions(t *testing.T) {
	table := newTable(t, mitigation.Options{})
	for n := range 3 {
		merge(t, table, record(time.Duration(n+1)*time.Minute), start, true)
		mitigated(t, table, key(1), start, true)
	}
	table.Expire(start.Add(3*time.Minute), func(r mitigation.Record) {
		if r.Acted != 3 {
			t.Errorf("the mitigation has acted on %d requests, want 3", r.Acted)
		}
	})
}

// Once a key's record is forgotten, the filter rules the key out again.
func TestMayUntilARecordIsForgotten(t *testing.T) {
	table := newTable(t, mitigation.Options{})
	merge(t, table, record(time.Minute), start, true) // the record does not name its rule
	if !table.MayRule(7) {
		t.Error("with a record whose rule is unknown, rule 7 is ruled out")
	}
	longer := record(2 * time.Minute)
	longer.Rule = 7
	merge(t, table, longer, start, true)
	if !table.May(key(1)) || !table.MayRule(7) || table.MayRule(8) {
		t.Error("the filter rules out a key with a record, or its rule, or does not rule out another rule")
	}
	table.Expire(start.Add(time.Hour), func(mitigation.Record) {})
	if table.May(key(1)) || table.MayRule(7) {
		t.Error("the filter does not rule out a key whose record is forgotten, or its rule")
	}
}

// A record is active until its deadline, and remembered for some time.
func TestHeldUntilTheDeadline(t *testing.T) {
	table := newTable(t, mitigation.Options{})
	merge(t, table, record(time.Minute), start, true)
	for _, tt := range []struct {
		after      time.Duration
		held, last bool
	}{{0, true, true}, {time.Minute - 1, true, true}, {time.Minute, false, true}, {time.Hour, false, true}} {
		_, held := table.Held(key(1), start.Add(tt.after))
		if _, last := table.Last(key(1)); held != tt.held || last != tt.last {
			t.Errorf("after %v: held = %t, last = %t, want %t, %t", tt.after, held, last, tt.held, tt.last)
		}
	}
	if r, ok := table.Held(key(2), start); ok {
		t.Errorf("a key without a record has %+v", r)
	}
}

func TestExpiredRecordsAreIgnored(t *testing.T) {
	table := newTable(t, mitigation.Options{})
	merge(t, table, record(time.Minute), start.Add(time.Minute), false)
	if n := table.Len(); n != 0 {
		t.Errorf("%d records are held, want 0", n)
	}
	merge(t, table, record(time.Minute), start, true)
	later := record(2 * time.Minute)
	merge(t, table, later, start.Add(90*time.Second), true)
}

// A copy that arrives after the end does not reactivate a record, nor does a copy of a record that it had
// extended. A new mitigation does.
func TestEndedRecordsStayEnded(t *testing.T) {
	table := newTable(t, mitigation.Options{})
	merge(t, table, record(time.Minute), start, true)
	mitigated(t, table, key(1), start, true)
	if !table.Take(key(1)) {
		t.Error("the mitigation is already taken")
	}
	detour := func(lifetime time.Duration) mitigation.Record {
		r := record(lifetime)
		r.Deadline = start.Add(2 * time.Minute)
		return r
	}
	end := start.Add(time.Minute)
	merge(t, table, detour(time.Minute), end, false)
	merge(t, table, detour(time.Minute), end.Add(9*time.Second), false)
	merge(t, table, detour(30*time.Second), end.Add(time.Second), false)
	more := detour(time.Minute)
	more.Rule = 7 // not known here
	merge(t, table, more, end, false)
	mitigated(t, table, key(1), end.Add(time.Second), false)
	if last, ok := table.Last(key(1)); !ok || last.End() != end.UnixMicro() {
		t.Errorf("Last = %+v, %t; want the record that ended", last, ok)
	}
	anew := record(time.Minute)
	anew.Start, anew.Deadline = end.UnixMicro(), end.Add(time.Minute)
	var acted []uint64
	ended := func(r mitigation.Record) { acted = append(acted, r.Acted) }
	table.Expire(end, ended)
	merge(t, table, anew, end, true)
	mitigated(t, table, key(1), end.Add(time.Second), true)
	if !table.Take(key(1)) {
		t.Error("the new mitigation is already taken")
	}
	table.Expire(end.Add(time.Minute), ended)
	if want := []uint64{1, 1}; !slices.Equal(acted, want) {
		t.Errorf("the mitigations have acted %d times, want %d", acted, want)
	}

	// After some time no node has a copy any more.
	table = newTable(t, mitigation.Options{})
	merge(t, table, record(time.Minute), start, true)
	merge(t, table, detour(30*time.Second), end.Add(11*time.Second), true)
}

// draw returns records of one key that nodes could have made.
func draw(t *rapid.T) []mitigation.Record {
	n := rapid.IntRange(1, 6).Draw(t, "records")
	records := make([]mitigation.Record, n)
	for i := range records {
		r := record(time.Duration(rapid.IntRange(1, 5).Draw(t, "lifetime")) * time.Minute)
		r.Generation = uint32(rapid.IntRange(0, 2).Draw(t, "generation"))
		r.Lifted = rapid.Bool().Draw(t, "lifted")
		r.Start += int64(rapid.IntRange(-2, 2).Draw(t, "start")) * 60e6
		r.Rule = rapid.SampledFrom([]uint64{0, 7}).Draw(t, "rule") // a key has one rule, and not every copy contains it
		r.Node = mitigation.NodeID(rapid.IntRange(1, 3).Draw(t, "node"))
		r.Deadline = start.Add(time.Duration(rapid.Int64Range(1, int64(r.Lifetime)).Draw(t, "left")))
		records[i] = r
	}
	return records
}

// Nodes that receive the same records, in any order and more than once, end up with the same one, and Merge
// reports correctly whether something changed.
func TestMergeConverges(t *testing.T) {
	immutable := cmpopts.IgnoreFields(mitigation.Record{}, "Deadline")
	rapid.Check(t, func(rt *rapid.T) {
		records := draw(rt)
		a, b := newTable(t, mitigation.Options{}), newTable(t, mitigation.Options{})
		for _, r := range records {
			before, _ := a.Held(key(1), start)
			changed, _ := a.Merge(r, start)
			after, _ := a.Held(key(1), start)
			if changed == cmp.Equal(before, after, immutable, addrs) {
				rt.Fatalf("Merge = %t; before %+v, after %+v", changed, before, after)
			}
		}
		for _, r := range rapid.Permutation(append(records, records...)).Draw(rt, "order") {
			b.Merge(r, start)
		}
		x, _ := a.Held(key(1), start)
		y, _ := b.Held(key(1), start)
		if diff := cmp.Diff(x, y, addrs); diff != "" {
			rt.Fatalf("two orders, two records:\n%s", diff)
		}
	})
}

// expireUntil calls Expire whenever it is due, up to a time.
func expireUntil(table *mitigation.Table, now, end time.Time, ended func(mitigation.Record, time.Time)) {
	for !now.IsZero() && !now.After(end) {
		now = table.Expire(now, func(r mitigation.Record) { ended(r, now) })
	}
}

func TestExpireEndsRecordsAtTheirDeadline(t *testing.T) {
	table := newTable(t, mitigation.Options{})
	insert := func(n uint64, lifetime time.Duration) {
		table.Merge(mitigation.Record{
			Key: key(n), Start: start.UnixMicro(), Lifetime: lifetime, Deadline: start.Add(lifetime),
		}, start)
	}
	insert(1, time.Minute)
	insert(2, time.Second)
	insert(3, time.Hour)
	insert(1, 2*time.Minute) // extended
	lift := mitigation.Record{Key: key(3), Lifted: true, Start: start.UnixMicro(), Lifetime: 2 * time.Hour, Deadline: start.Add(2 * time.Hour)}
	table.Merge(lift, start)
	var log []string
	expireUntil(table, start, start.Add(3*time.Hour), func(r mitigation.Record, now time.Time) {
		log = append(log, fmt.Sprintf("%v: %d", now.Sub(start), r.Key[0]))
	})
	if diff := cmp.Diff([]string{"1s: 2", "2m0s: 1"}, log); diff != "" {
		t.Errorf("ended (-want +got):\n%s", diff)
	}
	if n := table.Len(); n != 0 {
		t.Errorf("%d records are held after their end, want 0", n)
	}
}

// Readers, writers and the clock run concurrently, for the race detector.
func TestConcurrently(t *testing.T) {
	table := newTable(t, mitigation.Options{Size: 128})
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 2000 {
			table.Expire(time.Now(), func(mitigation.Record) {})
		}
	})
	for g := range uint64(4) {
		wg.Go(func() {
			for i := range uint64(2000) {
				now := time.Now()
				lifetime := time.Duration(i%5+1) * time.Millisecond
				k := key(i * (g + 1) % 500)
				table.Merge(mitigation.Record{Key: k, Start: now.UnixMicro(), Lifetime: lifetime, Deadline: now.Add(lifetime)}, now)
				table.Get(k, now, acts)
			}
		})
	}
	wg.Wait()
	if n := table.Len(); n > 128 {
		t.Errorf("%d records are held, the bound is 128", n)
	}
}

// A mitigation is taken once, although other nodes extend it meanwhile.
func TestTakenOnce(t *testing.T) {
	for n := range 2000 {
		table := newTable(t, mitigation.Options{})
		r := record(time.Minute)
		merge(t, table, r, start, true)
		var taken atomic.Int64
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if table.Take(r.Key) {
					taken.Add(1)
				}
			})
		}
		all.Go(func() {
			table.Merge(record(2*time.Minute), start)
		})
		all.Wait()
		if table.Take(r.Key) || taken.Load() != 1 {
			t.Fatalf("in round %d, the mitigation is taken %d times", n, taken.Load())
		}
	}
}

func TestGetAllocatesNothing(t *testing.T) {
	table := newTable(t, mitigation.Options{})
	merge(t, table, record(time.Hour), start, true)
	now := start
	if n := testing.AllocsPerRun(1000, func() {
		now = now.Add(100 * time.Millisecond)
		table.Get(key(1), now, acts)
		table.Get(key(2), now, acts)
	}); n != 0 {
		t.Errorf("Get allocates %v times, want 0", n)
	}
}

func BenchmarkGet(b *testing.B) {
	table := newTable(b, mitigation.Options{})
	for n := range uint64(10_000) {
		r := record(time.Hour)
		r.Key = key(n)
		table.Merge(r, start)
	}
	for _, bb := range []struct {
		name string
		key  func(i uint64) counter.Key
	}{
		{"hit", func(uint64) counter.Key { return key(7) }},
		{"miss", func(i uint64) counter.Key { return key(1<<32 + i) }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := uint64(0); pb.Next(); i++ {
					table.Get(bb.key(i), start.Add(time.Second), acts)
				}
			})
		})
	}
}

func acts(*mitigation.Record) bool { return true }
