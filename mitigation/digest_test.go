package mitigation_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/edgelimit/edge/mitigation"
)

// Two tables have the same digest if they hold the same records, whatever their history, and the digest finds
// the differences.
func TestDigest(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := newTable(t, mitigation.Options{}), newTable(t, mitigation.Options{})
		empty := a.Digest()
		records := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) mitigation.Record {
			r := draw(t)[0]
			r.Key = key(rapid.Uint64Range(0, 700).Draw(t, "key"))
			r.Deadline = start.Add(r.Lifetime)
			return r
		}), 1, 20).Draw(rt, "records")
		for _, r := range records {
			a.Merge(r, start)
			b.Merge(r, start)
			c := r
			c.Deadline = start.Add(time.Second) // arrived by another route, with another deadline
			b.Merge(c, start)
		}
		if a.Digest() != b.Digest() {
			rt.Fatal("the same records have different digests")
		}
		if a.Digest() == empty {
			rt.Fatal("records do not change the digest")
		}
		one := record(time.Hour)
		one.Key = key(rapid.Uint64Range(0, 700).Draw(rt, "one more"))
		one.Generation = 9
		b.Merge(one, start)
		if da, db := a.Digest(), b.Digest(); da == db || da.Sum() == db.Sum() {
			rt.Fatal("another record does not change the digest")
		}
		found := false
		for _, r := range b.Where(a.Digest(), 1000, start) {
			if r.Key[0] != one.Key[0] {
				rt.Fatalf("the record of %v is reported to differ, but is in a different bucket than %v", r.Key, one.Key)
			}
			found = found || r.Key == one.Key
			a.Merge(r, start)
		}
		if !found || a.Digest() != b.Digest() {
			rt.Fatal("the tables differ after one sent the other the records that differ")
		}
		if rest := b.Where(a.Digest(), 1000, start); len(rest) > 0 {
			rt.Fatalf("%d records differ where the digests are equal", len(rest))
		}
	})
}

// Tables with more differences than fit into one answer become equal.
func TestDigestWithManyDifferences(t *testing.T) {
	const most = 100
	a, b := newTable(t, mitigation.Options{}), newTable(t, mitigation.Options{})
	for n := range uint64(2000) {
		r := record(time.Hour)
		r.Key = key(n)
		b.Merge(r, start)
	}
	if one := b.Where(a.Digest(), 1, start); len(one) == 0 { // a part may have more records than fit, but must be sent
		t.Fatal("no record is sent")
	}
	for rounds := 0; a.Digest() != b.Digest(); rounds++ {
		records := b.Where(a.Digest(), most, start)
		if len(records) == 0 || len(records) > most || rounds == 1000 {
			t.Fatalf("%d records are sent after %d rounds, and the tables still differ; want at most %d", len(records), rounds, most)
		}
		for _, r := range records {
			a.Merge(r, start)
		}
	}
}

// A table that does not know the rule of a record differs from one that does, and learns it.
func TestDigestWithUnknownRules(t *testing.T) {
	a, b := newTable(t, mitigation.Options{}), newTable(t, mitigation.Options{})
	r := record(time.Hour)
	merge(t, a, r, start, true)
	r.Rule = 7
	merge(t, b, r, start, true)
	for _, r := range b.Where(a.Digest(), 1, start) {
		merge(t, a, r, start, true)
	}
	if got, _ := a.Held(key(1), start); got.Rule != 7 || a.Digest() != b.Digest() {
		t.Errorf("the record has rule %d, want 7; the digests are equal: %t", got.Rule, a.Digest() == b.Digest())
	}
}

// Records that the other node rejects, because it has greater ones, do not keep those behind them from being
// sent.
func TestDigestWithRejectedRecords(t *testing.T) {
	const most = 100
	a, b := newTable(t, mitigation.Options{}), newTable(t, mitigation.Options{})
	for part := range uint64(2) {
		for n := range uint64(60) {
			r := record(time.Hour)
			r.Key = key(n<<8 | part)
			b.Merge(r, start)
			r.Generation = 1
			a.Merge(r, start)
		}
	}
	behind := record(time.Hour)
	behind.Key = key(2)
	b.Merge(behind, start)
	for range 2000 { // each answer has two of 64 parts
		for _, r := range b.Where(a.Digest(), most, start) {
			if r.Key == behind.Key {
				return
			}
		}
	}
	t.Error("a record is never sent")
}

// A record that ends, is evicted or is forgotten is removed from the digest.
func TestDigestWithoutEndedRecords(t *testing.T) {
	table := newTable(t, mitigation.Options{Size: 64}) // one record in each part
	empty := table.Digest()
	now := start
	expire := func() {
		now = now.Add(time.Minute)
		table.Expire(now, func(mitigation.Record) {})
	}
	for n := range uint64(200) {
		r := mitigation.Record{Key: key(n), Start: now.UnixMicro(), Lifetime: time.Minute, Deadline: now.Add(time.Minute)}
		table.Merge(r, now)
	}
	if got := len(table.Where(empty, 1000, now)); got != 64 {
		t.Errorf("%d records differ from an empty table, want 64, as many as there is room for", got)
	}
	fresh := newTable(t, mitigation.Options{})
	for r := range table.All(now) {
		fresh.Merge(*r, now)
	}
	if table.Digest() != fresh.Digest() {
		t.Error("the digest is not the digest of the records that are held")
	}
	expire()
	if table.Digest() != empty {
		t.Error("the digest still includes records that have ended")
	}
	var differs mitigation.Digest // in all buckets
	for i := range differs {
		differs[i] = 1
	}
	if sent := len(table.Where(differs, 1000, now)); table.Len() != 64 || sent != 0 {
		t.Errorf("%d records are kept for a time, and %d of them passed on; want 64 and none", table.Len(), sent)
	}
	expire()
	if table.Len() != 0 || table.Digest() != empty {
		t.Errorf("%d records are kept forever", table.Len())
	}
}

func TestDigestWire(t *testing.T) {
	table := newTable(t, mitigation.Options{})
	merge(t, table, record(time.Minute), start, true)
	d := table.Digest()
	wire := d.Append([]byte{7})
	if want := 4 * 256; len(wire)-1 != want {
		t.Errorf("a digest has %d bytes, want %d", len(wire)-1, want)
	}
	got, err := mitigation.ParseDigest(wire[1:])
	if diff := cmp.Diff(d, got); err != nil || diff != "" {
		t.Errorf("ParseDigest: %v (-want +got):\n%s", err, diff)
	}
	if _, err := mitigation.ParseDigest(wire); err == nil {
		t.Error("ParseDigest of something longer returns no error")
	}
}
