package counter_test

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/edgelimit/edge/counter"
)

const minute = 60_000_000 // microseconds

func plain(threshold uint64, period int64) counter.Limit {
	return counter.Limit{Threshold: threshold, Period: period, Layout: counter.Plain}
}

func ExampleLimit_Explain() {
	// The worked example of the article that made this estimate known: 18 requests
	// in the first 15 seconds of the current minute, 42 in the previous one.
	limit := counter.Limit{Threshold: 49, Period: 60_000_000, Layout: counter.Plain}
	fmt.Println(limit.Explain(42, 18, 15_000_000))
	fmt.Println(limit.Explain(42, 17, 15_000_000))
	// Output:
	// 49.5 in 1m (42 in the minute before, 18 in this one); the limit is 49
	// 48.5 in 1m (42 in the minute before, 17 in this one); the limit is 49
}

func TestWindow(t *testing.T) {
	const period = 10_000_000
	tests := []struct {
		name            string
		at              time.Time
		number, elapsed int64
	}{
		{"the epoch", time.UnixMicro(0), 0, 0},
		{"the last microsecond of a window", time.UnixMicro(9_999_999), 0, 9_999_999},
		{"the first of the next", time.UnixMicro(10_000_000), 1, 0},
		{"before the epoch", time.UnixMicro(-1), -1, 9_999_999},
		{"a whole window before", time.UnixMicro(-10_000_000), -1, 0},
		{"nanoseconds do not count", time.Unix(25, 1_999), 2, 5_000_001},
	}
	for _, tt := range tests {
		if number, elapsed := counter.Window(tt.at, period); number != tt.number || elapsed != tt.elapsed {
			t.Errorf("%s: Window(%v) = %d, %d, want %d, %d", tt.name, tt.at, number, elapsed, tt.number, tt.elapsed)
		}
	}
}

// sixths is the layout of six sub-windows.
var sixths = counter.Layout{Fields: 6, Bits: 10}

// of returns a limit for a minute.
func of(layout counter.Layout, kind counter.Kind, threshold uint64) counter.Limit {
	return counter.Limit{Threshold: threshold, Period: minute, Layout: layout, Kind: kind}
}

func TestTTL(t *testing.T) {
	// memcached reads a time to live of more than 30 days as a date.
	if ttl := counter.TTL(7 * 24 * 3600 * 1e6); ttl > 30*24*3600 || ttl <= 14*24*3600 {
		t.Errorf("TTL(7 days) = %d s, want more than 14 days and less than 30", ttl)
	}
	if ttl := counter.TTL(1e6); ttl != 7 {
		t.Errorf("TTL(1 s) = %d s, want 7", ttl)
	}
}

func TestOver(t *testing.T) {
	tests := []struct {
		name      string
		limit     counter.Limit
		prev, cur uint64
		elapsed   int64
		want      bool
	}{
		{"nothing", plain(1, minute), 0, 0, 0, false},
		{"at the threshold", plain(50, minute), 0, 50, 0, false},
		{"one above", plain(50, minute), 0, 51, 0, true},
		{"all of the previous window at once", plain(42, minute), 42, 0, 0, false},
		{"and one more", plain(42, minute), 42, 1, 0, true},
		{"49.5 of 49", plain(49, minute), 42, 18, 15e6, true},
		{"49.5 of 50", plain(50, minute), 42, 18, 15e6, false},
		{"exactly the threshold by weight", plain(30, minute), 20, 15, 15e6, false},
		{"a microsecond earlier", plain(30, minute), 20, 15, 15e6 - 1, true},
		{"the last microsecond weighs almost nothing", plain(1, minute), 59_999_999, 0, minute - 1, false},
		{"but not nothing", plain(1, minute), 60_000_001, 0, minute - 1, true},
		{"counts beyond 2^53, where a float errs", plain(1<<53, minute), 0, 1<<53 + 1, 0, true},
		{"products beyond 64 bits", plain(1<<53, 7*24*3600*1e6), 1 << 63, 1 << 52, 1, true},
		{"the largest numbers", plain(1<<53, 7*24*3600*1e6), 1<<64 - 1, 1<<64 - 1, 0, true},
		{"the largest numbers, rounded", of(counter.Plain, counter.WeightedRounded, 1<<53), 1, 1<<64 - 1, 0, true},
		{"the largest numbers, both whole", of(counter.Plain, counter.WholeOldest, 1<<53), 1<<64 - 1, 1, 0, true},
	}
	for _, tt := range tests {
		if got := tt.limit.Over(tt.prev, tt.cur, tt.elapsed); got != tt.want {
			t.Errorf("%s: %v.Over(%d, %d, %d) = %t, want %t", tt.name, tt.limit, tt.prev, tt.cur, tt.elapsed, got, tt.want)
		}
	}
}

func TestBack(t *testing.T) {
	tests := []struct {
		name      string
		limit     counter.Limit
		prev, cur uint64
		elapsed   int64
		want      int64
	}{
		{"not over", plain(50, minute), 10, 10, 7, 7},
		{"the previous window may weigh at most 31/42", plain(49, minute), 42, 18, 15e6, 15_714_286},
		{"the current one fills the threshold alone", plain(18, minute), 42, 18, 15e6, minute},
		{"the current one is over alone", plain(50, minute), 0, 51, 0, minute + 1_176_471},
		{"twice the threshold", plain(50, minute), 0, 100, 30e6, minute + 30e6},
		{"a hundred times", plain(1, minute), 5, 100, 0, minute + 59_400_000},
		{"more than fits", plain(1, minute), 0, 1 << 63, 0, 2 * minute},
		{"what a fixed window counts is gone at its end", of(counter.Plain, counter.Fixed, 50), 99, 51, 7, minute},
		{"the oldest sub-window is counted whole until the period has left it", of(sixths, counter.WholeOldest, 50), 51, 0, 1, 10e6},
		{"half of the oldest sub-window weighs half", of(sixths, counter.Weighted, 50), 100, 0, 1, 5e6},
		{"the last sub-window of the current window is over alone", of(sixths, counter.WholeOldest, 50), 0, 51 << 50, 55e6, 2 * minute},
		{"a quotient of 2^64, one more than fits", plain(1<<53, 7*24*3600*1e6), 295_312_500, 0, 7, 7},
	}
	for _, tt := range tests {
		if got := tt.limit.Back(tt.prev, tt.cur, tt.elapsed); got != tt.want {
			t.Errorf("%s: %v.Back(%d, %d, %d) = %d, want %d", tt.name, tt.limit, tt.prev, tt.cur, tt.elapsed, got, tt.want)
		}
	}
}

func TestRemaining(t *testing.T) {
	tests := []struct {
		name      string
		limit     counter.Limit
		prev, cur uint64
		elapsed   int64
		want      uint64
	}{
		{"no requests yet", plain(50, minute), 0, 0, 0, 50},
		{"at the threshold", plain(50, minute), 0, 50, 0, 0},
		{"over", plain(50, minute), 0, 60, 0, 0},
		{"room for half a request is not enough", plain(50, minute), 42, 18, 15e6, 0},
		{"room for one and a half is", plain(51, minute), 42, 18, 15e6, 1},
	}
	for _, tt := range tests {
		if got := tt.limit.Remaining(tt.prev, tt.cur, tt.elapsed); got != tt.want {
			t.Errorf("%s: %v.Remaining(%d, %d, %d) = %d, want %d", tt.name, tt.limit, tt.prev, tt.cur, tt.elapsed, got, tt.want)
		}
	}
}

func TestExplain(t *testing.T) {
	tests := []struct {
		name      string
		limit     counter.Limit
		prev, cur uint64
		elapsed   int64
		want      string
	}{
		{"no previous window", plain(50, minute), 0, 51, 12e6, "51 in 1m (0 in the minute before, 51 in this one); the limit is 50"},
		{"rounding must not hide that it is over", plain(49, minute), 1, 48, 1, "49 in 1m (1 in the minute before, 48 in this one); the limit is 49"},
		{"sub-windows", of(sixths, counter.Weighted, 49), 42 | 3<<10, 8 | 8<<10, 12_500_000, "18.25 in 1m (45 in the minute before, 16 in this one); the limit is 49"},
		{"a fixed window", of(counter.Plain, counter.Fixed, 50), 99, 51, 7, "51 in the current minute; the limit is 50"},
		{"the oldest sub-window whole", of(sixths, counter.WholeOldest, 49), 42, 8, 7, "50 in 1m (42 in the minute before, 8 in this one); the limit is 49"},
		{"a hair above", plain(48, minute), 1, 48, minute - 1, "48.00000002 in 1m (1 in the minute before, 48 in this one); the limit is 48"},
		{"a period without a name", plain(10, 90*minute), 0, 11, 1, "11 in 1h30m (0 in the 1h30m before, 11 in this window); the limit is 10"},
		{"ten seconds", plain(10, minute/6), 0, 11, 1, "11 in 10s (0 in the 10s before, 11 in this window); the limit is 10"},
	}
	for _, tt := range tests {
		if got := tt.limit.Explain(tt.prev, tt.cur, tt.elapsed); got != tt.want {
			t.Errorf("%s: Explain = %q, want %q", tt.name, got, tt.want)
		}
	}
}

var layouts = []counter.Layout{counter.Plain, {2, 32}, {3, 21}, {4, 16}, {5, 12}, {6, 10}}

// counts is a random limit with the values of two windows, and the counts in them.
type counts struct {
	limit     counter.Limit
	prev, cur uint64
	elapsed   int64
	fields    [2][]uint64 // prev's and cur's
}

func drawCounts(t *rapid.T) counts {
	layout := rapid.SampledFrom(layouts).Draw(t, "layout")
	most := ^uint64(0) >> (64 - layout.Bits)
	period := rapid.Int64Range(1, 7*24*3600).Draw(t, "period") * 1e6
	if rapid.Bool().Draw(t, "short") {
		period = rapid.Int64Range(1, 120).Draw(t, "short period") * 1e6
	}
	c := counts{limit: counter.Limit{Period: period, Layout: layout}}
	c.limit.Kind = rapid.SampledFrom([]counter.Kind{counter.Weighted, counter.Fixed, counter.WholeOldest, counter.WeightedRounded}).Draw(t, "kind")
	scale := rapid.SampledFrom([]uint64{3, 100, 1 << 20, 1 << 40, 1 << 53, most}).Draw(t, "scale")
	c.limit.Threshold = rapid.Uint64Range(1, min(scale, 1<<53)).Draw(t, "threshold")
	for w := range c.fields {
		for k := range int(layout.Fields) {
			n := rapid.Uint64Range(0, min(scale, most)).Draw(t, "count")
			c.fields[w] = append(c.fields[w], n)
			number := &c.prev
			if w == 1 {
				number = &c.cur
			}
			*number |= n << (uint(layout.Bits) * uint(k))
		}
	}
	c.elapsed = rapid.Int64Range(0, period-1).Draw(t, "elapsed")
	return c
}

// estimate is the definition in exact fractions: every sub-window of the previous window
// counts in proportion to its part in the period that ends now; or whole, if any of it is
// in the period; or never. The sum may be rounded down.
func (c counts) estimate(elapsed int64) *big.Rat {
	sum := new(big.Rat)
	n := int64(c.limit.Layout.Fields)
	for _, count := range c.fields[1] {
		sum.Add(sum, new(big.Rat).SetInt(new(big.Int).SetUint64(count)))
	}
	for k, count := range c.fields[0] {
		// The sub-window is [k, k+1)/n of the previous window, the period begins at
		// elapsed/Period of it.
		left := new(big.Rat).Sub(big.NewRat(int64(k+1), 1), big.NewRat(elapsed*n, c.limit.Period))
		if left.Sign() <= 0 {
			continue
		}
		if c.limit.Kind == counter.Fixed {
			break
		}
		if left.Cmp(big.NewRat(1, 1)) > 0 || c.limit.Kind == counter.WholeOldest {
			left = big.NewRat(1, 1)
		}
		sum.Add(sum, left.Mul(left, new(big.Rat).SetInt(new(big.Int).SetUint64(count))))
	}
	if c.limit.Kind == counter.WeightedRounded {
		sum.SetInt(new(big.Int).Quo(sum.Num(), sum.Denom()))
	}
	return sum
}

func (c counts) over(elapsed int64) bool {
	return c.estimate(elapsed).Cmp(new(big.Rat).SetInt(new(big.Int).SetUint64(c.limit.Threshold))) > 0
}

func TestOverIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCounts(t)
		if got, want := c.limit.Over(c.prev, c.cur, c.elapsed), c.over(c.elapsed); got != want {
			t.Fatalf("Over = %t, the estimate is %v: want %t", got, c.estimate(c.elapsed), want)
		}
	})
}

func TestRemainingIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCounts(t)
		left := new(big.Rat).SetInt(new(big.Int).SetUint64(c.limit.Threshold))
		left.Sub(left, c.estimate(c.elapsed))
		want := new(big.Int)
		if left.Sign() > 0 {
			want.Quo(left.Num(), left.Denom())
		}
		if got := c.limit.Remaining(c.prev, c.cur, c.elapsed); got != want.Uint64() {
			t.Fatalf("Remaining = %d, want %v", got, want)
		}
	})
}

// At Back the limit is not exceeded, and a microsecond earlier it is.
func TestBackIsTheFirstMoment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCounts(t)
		later := func(at int64) bool { // reports whether the estimate exceeds the threshold, at the same or a later time
			return c.estimateAt(at).Cmp(new(big.Rat).SetUint64(c.limit.Threshold)) > 0
		}
		back := c.limit.Back(c.prev, c.cur, c.elapsed)
		if back < c.elapsed || back > 2*c.limit.Period {
			t.Fatalf("Back = %d, elapsed is %d and the period %d", back, c.elapsed, c.limit.Period)
		}
		if later(back) {
			t.Fatalf("the estimate is over at Back = %d", back)
		}
		if back > c.elapsed && !later(back-1) {
			t.Fatalf("the estimate is not over a microsecond before Back = %d", back)
		}
	})
}

// A value counts each request in the field of its time, without carry.
func TestDeltaCountsInItsSubWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		layout := rapid.SampledFrom(layouts).Draw(t, "layout")
		limit := counter.Limit{Threshold: 1, Period: rapid.Int64Range(1, 100).Draw(t, "period") * 1e6, Layout: layout}
		var number uint64
		want := make([]uint64, layout.Fields)
		for range rapid.IntRange(0, 50).Draw(t, "requests") {
			elapsed := rapid.Int64Range(0, limit.Period-1).Draw(t, "elapsed")
			n := rapid.Uint64Range(1, 10).Draw(t, "n")
			number += limit.Delta(n, elapsed)
			want[elapsed*int64(layout.Fields)/limit.Period] += n
		}
		for k, n := range want {
			if got := number >> (uint(k) * uint(layout.Bits)) & (1<<layout.Bits - 1); layout != counter.Plain && got != n {
				t.Fatalf("field %d of %#x is %d, want %d", k, number, got, n)
			}
		}
		if layout == counter.Plain && number != want[0] {
			t.Fatalf("number is %d, want %d", number, want[0])
		}
	})
}

// A full field counts nothing more, so simulations lose the same counts as nodes.
func TestFullFieldsStayAsTheyAre(t *testing.T) {
	layout, _ := counter.LayoutOf(6)
	limit := counter.Limit{Threshold: 10, Period: 60e6, Layout: layout}
	var number uint64
	for range 100 {
		number = limit.Count(number, 100, 25e6)
	}
	full := (layout.Stop() + 99) / 100 * 100
	if number = limit.Count(number, 7, 35e6); layout.Sum(number) != full+7 {
		t.Errorf("the value is %d, want %d", layout.Sum(number), full+7)
	}
	number = limit.Count(0, 1<<40, 25e6) // does not overflow into the next field
	if again := limit.Count(number, 1, 25e6); number != limit.Delta(layout.Stop(), 25e6) || again != number {
		t.Errorf("too many requests make %#x, and with another one %#x; want the field to be just full", number, again)
	}
	limit.Layout = counter.Plain
	if number = limit.Count(1<<60, 5, 25e6); number != 1<<60+5 {
		t.Errorf("the plain value is %d", number)
	}
}

func TestFalls(t *testing.T) {
	tests := []struct {
		name      string
		limit     counter.Limit
		prev, cur uint64
		elapsed   int64
		want      int64
	}{
		{"nothing counts", plain(50, minute), 0, 0, 7, minute},
		{"the previous window", plain(50, minute), 1, 5, 7, minute},
		{"the current window", plain(50, minute), 0, 5, 7, minute},
		{"the sub-window in which the period begins", of(sixths, counter.Weighted, 50), 1, 5, 7, 10e6},
		{"a later one", of(sixths, counter.Weighted, 50), 1 | 1<<30, 5, 11e6, 30e6},
		{"a sub-window that has passed does not count", of(sixths, counter.Weighted, 50), 1, 5, 10e6, minute},
		{"the second of the current window", of(sixths, counter.Weighted, 50), 0, 5 << 10, 15e6, minute + 10e6},
		{"the same, whole", of(sixths, counter.WholeOldest, 50), 0, 5 << 10, 15e6, minute + 20e6},
		{"a later one, whole", of(sixths, counter.WholeOldest, 50), 1 << 30, 5, 11e6, 40e6},
		{"a fixed window", of(counter.Plain, counter.Fixed, 50), 5, 0, 7, minute},
	}
	for _, tt := range tests {
		if got := tt.limit.Falls(tt.prev, tt.cur, tt.elapsed); got != tt.want {
			t.Errorf("%s: %v.Falls(%d, %d, %d) = %d, want %d", tt.name, tt.limit, tt.prev, tt.cur, tt.elapsed, got, tt.want)
		}
	}
}

// Falls is not too early: by then the estimate is lower than now.
func TestFallsIsLateEnough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCounts(t)
		at := c.limit.Falls(c.prev, c.cur, c.elapsed)
		if at <= c.elapsed || at > 2*c.limit.Period {
			t.Fatalf("Falls = %d, elapsed is %d and the period %d", at, c.elapsed, c.limit.Period)
		}
		later, now := c.estimateAt(at+1), c.estimate(c.elapsed)
		if now.Sign() > 0 && later.Cmp(now) >= 0 {
			t.Fatalf("the estimate is %v, and %v after Falls = %d", now, later, at)
		}
	})
}

// estimateAt is estimate for times that may be in later windows.
func (c counts) estimateAt(at int64) *big.Rat {
	for at >= c.limit.Period {
		at -= c.limit.Period
		c.fields = [2][]uint64{c.fields[1], nil}
	}
	return c.estimate(at)
}

func FuzzBack(f *testing.F) {
	f.Add(uint64(42), uint64(18), uint64(49), int64(15e6), int64(60), uint8(0))
	f.Add(uint64(1<<63), ^uint64(0), uint64(1<<53), int64(1), int64(7*24*3600), uint8(5))
	f.Fuzz(func(t *testing.T, prev, cur, threshold uint64, elapsed, seconds int64, layout uint8) {
		if seconds < 1 || seconds > 7*24*3600 || threshold < 1 || threshold > 1<<53 || elapsed < 0 || elapsed >= seconds*1e6 {
			return // not a valid limit
		}
		limit := counter.Limit{Threshold: threshold, Period: seconds * 1e6, Layout: layouts[int(layout)%len(layouts)]}
		back := limit.Back(prev, cur, elapsed)
		if limit.Over(prev, cur, elapsed) == (back == elapsed) {
			t.Fatalf("%v: Over(%d, %d, %d) = %t, Back = %d", limit, prev, cur, elapsed, back != elapsed, back)
		}
		switch {
		case back < limit.Period:
			if limit.Over(prev, cur, back) {
				t.Fatalf("%v: still over at Back(%d, %d, %d) = %d", limit, prev, cur, elapsed, back)
			}
		case back < 2*limit.Period:
			if limit.Over(cur, 0, back-limit.Period) {
				t.Fatalf("%v: still over at Back(%d, %d, %d) = %d", limit, prev, cur, elapsed, back)
			}
		case back > 2*limit.Period:
			t.Fatalf("%v: Back(%d, %d, %d) = %d is beyond the next window", limit, prev, cur, elapsed, back)
		}
	})
}

func TestEvaluationAllocatesNothing(t *testing.T) {
	for _, layout := range layouts {
		limit := of(layout, counter.Weighted, 50)
		if n := testing.AllocsPerRun(1000, func() {
			limit.Over(42, 18, 15e6)
			limit.Back(42, 18, 15e6)
			limit.Remaining(42, 18, 15e6)
			_ = limit.Falls(42, 18, 15e6)
		}); n != 0 {
			t.Errorf("evaluating %v allocates %v times, want 0", layout, n)
		}
	}
}

func BenchmarkOver(b *testing.B) {
	for _, layout := range layouts {
		b.Run(fmt.Sprintf("%dx%d", layout.Fields, layout.Bits), func(b *testing.B) {
			limit := counter.Limit{Threshold: 49, Period: minute, Layout: layout}
			prev, cur := layout.Each(6), layout.Each(2) // near the threshold, so nothing is decided early
			b.ReportAllocs()
			elapsed := int64(0)
			for b.Loop() {
				limit.Over(prev, cur, elapsed)
				if elapsed += 7_777_777; elapsed >= minute {
					elapsed -= minute
				}
			}
		})
	}
}

func BenchmarkBack(b *testing.B) {
	limit := plain(49, minute)
	b.ReportAllocs()
	elapsed := int64(0)
	for b.Loop() {
		limit.Back(42, 118, elapsed%minute)
		elapsed += 17
	}
}
