package mitigation_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/edgelimit/edge/mitigation"
)

// At its bound the table evicts the least recently used record and reports it.
func TestBound(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	table := newTable(t, mitigation.Options{Size: 64, Registerer: reg}) // one record in each part
	insert := func(n uint64) {
		r := record(time.Hour)
		r.Key = key(n * 64) // all in one part
		merge(t, table, r, start, true)
	}
	insert(1)
	insert(2)
	mitigated(t, table, key(64), start, false)
	mitigated(t, table, key(128), start, true)
	want := `
# HELP edge_mitigation_records Mitigation records in memory, including lifts, records that a lift ended, and records that have just ended.
# TYPE edge_mitigation_records gauge
edge_mitigation_records 1
# HELP edge_mitigation_records_evicted_total Records evicted before their end because the table was full.
# TYPE edge_mitigation_records_evicted_total counter
edge_mitigation_records_evicted_total 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

// A table is full once each further record evicts another.
func TestFull(t *testing.T) {
	const size = 64 // one record in each part
	table := newTable(t, mitigation.Options{Size: size})
	for n := range uint64(size) {
		if table.Full() {
			t.Errorf("with %d records a table for %d is full", n, size)
		}
		r := record(time.Hour)
		r.Key = key(n)
		merge(t, table, r, start, true)
	}
	if !table.Full() {
		t.Errorf("with %d records a table for %d is not full", size, size)
	}
}

// Merge returns the key of each record that is evicted before its end, and of no other.
func TestEvictedKeys(t *testing.T) {
	table := newTable(t, mitigation.Options{Size: 64}) // one record in each part
	same, longer, next := record(time.Minute), record(time.Hour), record(time.Hour)
	merge(t, table, same, start, true)
	merge(t, table, longer, start, true)
	next.Key = key(1 + 64)
	if _, evicted := table.Merge(next, start); evicted == nil || *evicted != key(1) {
		t.Errorf("%v was evicted, want %v", evicted, key(1))
	}
	if _, evicted := table.Merge(next, start); evicted != nil {
		t.Errorf("a record that the table holds evicts %v", evicted)
	}
	end := start.Add(time.Hour)
	table.Expire(end, func(mitigation.Record) {})
	same.Start, same.Deadline = end.UnixMicro(), end.Add(time.Minute)
	if _, evicted := table.Merge(same, end); evicted != nil {
		t.Errorf("%v was evicted before its end, although it had ended", evicted)
	}
	table.Expire(start.Add(2*time.Hour), func(mitigation.Record) {})
	table.Expire(start.Add(3*time.Hour), func(mitigation.Record) {})
	if table.Len() > 0 {
		t.Errorf("%d records are held, want none", table.Len())
	}
}

func TestUseKeepsARecord(t *testing.T) {
	table := newTable(t, mitigation.Options{Size: 3 * 64})
	for n := range uint64(3) {
		r := record(time.Hour)
		r.Key = key(n * 64)
		merge(t, table, r, start, true)
	}
	mitigated(t, table, key(0), start.Add(2*time.Second), true)
	r := record(time.Hour)
	r.Key = key(3 * 64)
	merge(t, table, r, start.Add(2*time.Second), true)
	mitigated(t, table, key(0), start.Add(2*time.Second), true)
	mitigated(t, table, key(64), start.Add(2*time.Second), false)
}

// Use makes a record the most recently used at most once a second, because it takes the lock of writers, and
// not within the second in which the record arrived.
func TestUseCountsOnceASecond(t *testing.T) {
	for _, tt := range []struct {
		name  string
		used  []time.Duration // times at which record 0 is used
		first bool            // whether it is evicted
	}{
		{"in the second in which it arrived", []time.Duration{0, 500 * time.Millisecond}, true},
		{"in the next one", []time.Duration{time.Second}, false},
	} {
		table := newTable(t, mitigation.Options{Size: 2 * 64})
		for n := range uint64(2) {
			r := record(time.Hour)
			r.Key = key(n * 64) // all in one part
			merge(t, table, r, start, true)
		}
		for _, after := range tt.used {
			mitigated(t, table, key(0), start.Add(after), true)
		}
		r := record(time.Hour)
		r.Key = key(2 * 64)
		merge(t, table, r, start.Add(2*time.Second), true)
		if _, held := table.Held(key(0), start.Add(2*time.Second)); held == tt.first {
			t.Errorf("%s: record 0 is still held: %t", tt.name, held)
		}
	}
}
