package mitigation_test

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
)

// The encoding of a record is wire protocol.
func TestGoldenRecord(t *testing.T) {
	r := record(10 * time.Minute)
	r.Generation, r.Node, r.Rule, r.Client = 3, 0xabcdef, 0x1234, netip.MustParseAddr("192.0.2.1")
	got := hex.EncodeToString(r.AppendSent(nil, start.Add(time.Minute)))
	want := strings.Join([]string{
		"02", "00", "0140", // version, flags, layout 1×64
		"00000003",                         // generation
		"01000000000000000000000000000000", // key
		"00060a24181e4000",                 // start
		"0000000023c34600",                 // lifetime: 600 s
		"0000000000abcdef",                 // node
		"000000000000002a",                 // prev: 42
		"0000000000000012",                 // cur: 18
		"0000000000000031",                 // threshold: 49
		"0000003c",                         // period: 60 s
		"0000000000e4e1c0",                 // elapsed: 15 s
		"00000000202fbf00",                 // remaining: 540 s
		"0000000000001234",                 // rule
		"00000000000000000000ffffc0000201", // client
	}, "")
	if got != want {
		t.Errorf("record\n%s, want\n%s", got, want)
	}
	// The rule, the client and the sample are not stored in shards; the numbers are.
	if got, want := hex.EncodeToString(r.AppendStored(nil)), "01"+want[2:2*mitigation.StoredSize]; got != want {
		t.Errorf("stored record\n%s, want\n%s", got, want)
	}
	if len(got) != 2*mitigation.SentSize {
		t.Errorf("a sent record has %d bytes, want %d", len(got)/2, mitigation.SentSize)
	}
}

// Nodes send each other the remaining lifetime, so their clocks may differ by years.
func TestSentRecordsNeedNoClock(t *testing.T) {
	r := record(10 * time.Minute)
	packet := r.AppendSent(nil, start.Add(4*time.Minute))
	elsewhere := start.Add(-3 * 365 * 24 * time.Hour)
	got, err := mitigation.ParseSent(packet, elsewhere)
	if err != nil {
		t.Fatal(err)
	}
	r.Deadline = elsewhere.Add(6 * time.Minute)
	if diff := cmp.Diff(r, got, addrs); diff != "" {
		t.Errorf("received (-sent +got):\n%s", diff)
	}
}

// A record that ends in flight does not become active elsewhere.
func TestSentAfterTheEnd(t *testing.T) {
	for _, after := range []time.Duration{0, time.Microsecond, time.Hour} {
		r := record(time.Minute)
		if got, err := mitigation.ParseSent(r.AppendSent(nil, r.Deadline.Add(after)), start); !errors.Is(err, mitigation.ErrExpired) {
			t.Errorf("sent %v after its end: %+v, %v; want ErrExpired", after, got, err)
		}
	}
}

func TestStoredRecordsEndInTime(t *testing.T) {
	r := record(10 * time.Minute)
	for _, tt := range []struct {
		name string
		now  time.Time
		left time.Duration
	}{
		{"read a minute later", start.Add(time.Minute), 9 * time.Minute},
		{"the reader's clock is an hour slow", start.Add(-time.Hour), 10 * time.Minute},
		{"the last microsecond", start.Add(10*time.Minute - time.Microsecond), time.Microsecond},
		{"read at its end", start.Add(10 * time.Minute), 0},
		{"the reader's clock is an hour fast", start.Add(time.Hour), 0},
	} {
		got, err := mitigation.ParseStored(r.AppendStored(nil), r.Key, tt.now)
		if tt.left == 0 {
			if !errors.Is(err, mitigation.ErrExpired) {
				t.Errorf("%s: error %v, want ErrExpired", tt.name, err)
			}
			continue
		}
		if err != nil || got.Deadline.Sub(tt.now) != tt.left {
			t.Errorf("%s: %v left, %v, want %v", tt.name, got.Deadline.Sub(tt.now), err, tt.left)
		}
	}
}

// A shard keeps a record at least until its end, and never forever, which 0 would mean. It keeps a lift for as
// long as lifts are remembered.
func TestStoredTTL(t *testing.T) {
	for _, left := range []time.Duration{time.Microsecond, time.Second - time.Microsecond, time.Second, 90 * time.Second, mitigation.MaxLifetime} {
		plain, lift, later := record(left), record(left), record(left)
		lift.Lifted, later.Generation = true, 1
		for _, r := range []mitigation.Record{plain, lift, later} {
			want := left
			if r.Lifted || r.Generation > 0 {
				want = mitigation.MaxLifetime
			}
			if ttl := time.Duration(r.StoredTTL(start)) * time.Second; ttl < want || ttl > want+time.Second {
				t.Errorf("generation %d, lifted %t, %v left: kept for %v, want up to a second more than %v", r.Generation, r.Lifted, left, ttl, want)
			}
		}
	}
}

func TestRefusedRecords(t *testing.T) {
	r := record(time.Minute)
	good := r.AppendSent(nil, start)
	change := func(at int, to ...byte) []byte {
		b := append([]byte(nil), good...)
		copy(b[at:], to)
		return b
	}
	for name, b := range map[string][]byte{
		"empty":                         {},
		"a byte short":                  good[:len(good)-1],
		"a byte long":                   append(change(0, 1), 0),
		"the version of stored records": change(0, 1),
		"another version":               change(0, 3),
		"unknown flags":                 change(1, 16),
		"no fields":                     change(2, 0),
		"no bits":                       change(3, 0),
		"a layout of more than 64 bits": change(2, 9, 9),
		"a layout from another release": change(2, 6, 9),
		"a lifetime of 0":               change(32, 0, 0, 0, 0, 0, 0, 0, 0),
		"a lifetime of a year":          change(32, 0, 0, 0x1c, 0xae, 0x8c, 0x13, 0xe0, 0),
		"a negative lifetime":           change(32, 0xff),
		"a start before the epoch":      change(24, 0xff),
		"a start in the year 20000":     change(24, 0x08),
		"a period of 0":                 change(72, 0, 0, 0, 0),
		"elapsed of a whole period":     change(76, 0, 0, 0, 0, 0x03, 0x93, 0x87, 0x00),
		"elapsed beyond the period":     change(76, 0, 0, 0, 1),
	} {
		if got, err := mitigation.ParseSent(b, start); err == nil || errors.Is(err, mitigation.ErrExpired) {
			t.Errorf("%s: %+v, error %v, want a refusal", name, got, err)
		}
	}
	if _, err := mitigation.ParseSent(change(84, 0, 0, 0, 0, 0, 0, 0, 0), start); !errors.Is(err, mitigation.ErrExpired) {
		t.Errorf("nothing left: error %v, want ErrExpired", err)
	}
	if got, err := mitigation.ParseSent(change(84, 0xff, 0xff), start); err != nil || got.Deadline.Sub(start) != time.Minute {
		t.Errorf("more left than the lifetime: %v, %v, want a minute", got.Deadline.Sub(start), err)
	}
	if _, err := mitigation.ParseStored(r.AppendStored(nil), key(2), start); err == nil {
		t.Error("a record that is stored under another key is accepted")
	}
	lift := mitigation.Record{Key: key(1), Lifted: true, Start: 1, Lifetime: time.Hour, Deadline: start.Add(time.Hour)}
	if got, err := mitigation.ParseSent(lift.AppendSent(nil, start), start); err != nil || got.Why.String() != "" {
		t.Errorf("a lift without arithmetic: %q, %v", got.Why, err)
	}
	hand := lift
	hand.Lifted, hand.ByHand, hand.Start = false, true, start.UnixMicro()
	if got, err := mitigation.ParseStored(hand.AppendStored(nil), hand.Key, start); err != nil || !got.ByHand || got.Why.String() != "" {
		t.Errorf("by hand, without arithmetic: %+v, %v", got, err)
	}
}

func TestRecordsSurviveTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, r := range draw(t) {
			r.Why.Limit.Layout, _ = counter.LayoutOf(rapid.IntRange(1, counter.MaxFields).Draw(t, "sub-windows"))
			r.Why.Limit.Kind = counter.Kind(rapid.IntRange(0, len(counter.KindNames())-1).Draw(t, "kind"))
			got, err := mitigation.ParseSent(r.AppendSent(nil, start), start)
			r.Deadline = start.Add(r.Deadline.Sub(start).Truncate(time.Microsecond))
			if r.Deadline.Equal(start) {
				continue
			}
			if diff := cmp.Diff(r, got, addrs); diff != "" || err != nil {
				t.Fatalf("%v (-sent +received):\n%s", err, diff)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	r := record(time.Minute)
	f.Add(r.AppendSent(nil, start))
	f.Add(r.AppendStored(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		table := newTable(t, mitigation.Options{Size: 64})
		check := func(r mitigation.Record, err error) {
			if err != nil {
				return
			}
			if left := r.Deadline.Sub(start); left <= 0 || left > r.Lifetime || r.Lifetime > mitigation.MaxLifetime {
				t.Fatalf("%v left of %v", left, r.Lifetime)
			}
			_ = r.Why.String()
			if changed, _ := table.Merge(r, start); !changed {
				t.Fatalf("Merge into an empty table = false: %+v", r)
			}
			again, err := mitigation.ParseSent(r.AppendSent(nil, start), start)
			if diff := cmp.Diff(r, again, addrs); diff != "" || err != nil {
				t.Fatalf("%v (-read +written and read):\n%s", err, diff)
			}
		}
		check(mitigation.ParseSent(b, start))
		if len(b) == mitigation.StoredSize {
			table = newTable(t, mitigation.Options{Size: 64})
			check(mitigation.ParseStored(b, counter.Key(b[8:24]), start))
		}
	})
}
