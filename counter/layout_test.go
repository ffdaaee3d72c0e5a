package counter_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/edgelimit/edge/counter"
)

func TestAutoLayout(t *testing.T) {
	tests := []struct {
		name      string
		threshold uint64
		period    int64 // seconds
		want      string
	}{
		{"the least threshold", 1, 60, "6×10"},
		{"the greatest for six", 96, 60, "6×10"},
		{"one more", 97, 60, "5×12"},
		{"the greatest for five", 384, 60, "5×12"},
		{"one more", 385, 60, "4×16"},
		{"the greatest for four", 6144, 60, "4×16"},
		{"one more", 6145, 60, "3×21"},
		{"the greatest for three", 196608, 60, "3×21"},
		{"one more", 196609, 60, "2×32"},
		{"the greatest for two", 402653184, 60, "2×32"},
		{"one more", 402653185, 60, "1×64"},
		{"six sub-windows of a second", 50, 6, "6×10"},
		{"five", 50, 5, "5×12"},
		{"a second", 50, 1, "1×64"},
	}
	for _, tt := range tests {
		if got := counter.AutoLayout(tt.threshold, counter.FieldsIn(tt.period*1e6)).String(); got != tt.want {
			t.Errorf("%s: the layout of %d in %d s is %s, want %s", tt.name, tt.threshold, tt.period, got, tt.want)
		}
	}
}

func TestLayoutOf(t *testing.T) {
	for fields := -1; fields < 70; fields++ {
		l, ok := counter.LayoutOf(fields)
		if want := fields >= 1 && fields <= counter.MaxFields; ok != want || ok && int(l.Fields) != fields || ok != l.Known() {
			t.Errorf("LayoutOf(%d) = %v, %t, want ok = %t", fields, l, ok, want)
		}
		if ok && int(l.Fields)*int(l.Bits) > 64 {
			t.Errorf("%v does not fit in 64 bits", l)
		}
	}
}

// However much the senders have in flight when a field is full, it fits.
func TestBudget(t *testing.T) {
	for _, l := range layouts[1:] {
		most := uint64(1)<<l.Bits - 1
		for _, senders := range []int{0, 1, 2, 16, 32, 64, 256, 1 << 10, 1 << 20} {
			b := l.Budget(senders)
			if l.Stop()-1+uint64(senders)*b > most {
				t.Errorf("%v: %d senders with %d each exceed a field's maximum of %d", l, senders, b, most)
			}
			if b == 0 && uint64(senders) <= uint64(1)<<(l.Bits-2) {
				t.Errorf("%v: the budget of %d senders is 0", l, senders)
			}
		}
		if l.MaxThreshold()*8 > l.Stop() {
			t.Errorf("%v: a field stops at %d, less than eight times the threshold of %d", l, l.Stop(), l.MaxThreshold())
		}
	}
}

// Each operation treats every field like a plain number, and does not affect its neighbors.
func TestOperationsWorkFieldByField(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := rapid.SampledFrom(layouts).Draw(t, "layout")
		most := ^uint64(0) >> (64 - l.Bits)
		var a, b uint64
		var as, bs []uint64
		for k := range int(l.Fields) {
			draw := func(what string) uint64 {
				near := rapid.SampledFrom([]uint64{0, 1, most / 2, most - 1, most}).Draw(t, what+" near")
				return min(near+rapid.Uint64Range(0, 2).Draw(t, what), most)
			}
			as, bs = append(as, draw("a")), append(bs, draw("b"))
			a |= as[k] << (int(l.Bits) * k)
			b |= bs[k] << (int(l.Bits) * k)
		}
		for name, op := range map[string]struct {
			got  uint64
			want func(x, y uint64) uint64
		}{
			"Add": {l.Add(a, b), func(x, y uint64) uint64 {
				if y > most-x {
					return most
				}
				return x + y
			}},
			"Sub": {l.Sub(a, b), func(x, y uint64) uint64 {
				if y > x {
					return 0
				}
				return x - y
			}},
			"Max": {l.Max(a, b), func(x, y uint64) uint64 { return max(x, y) }},
			"Min": {l.Min(a, b), func(x, y uint64) uint64 { return min(x, y) }},
			"Below": {l.Below(a, b), func(x, y uint64) uint64 {
				if x < y {
					return most
				}
				return 0
			}},
			"Each": {l.Each(most), func(uint64, uint64) uint64 { return most }},
		} {
			var want uint64
			for k := range as {
				want |= op.want(as[k], bs[k]) << (int(l.Bits) * k)
			}
			if op.got != want {
				t.Fatalf("%v: %s of %v and %v is %#x, want %#x", l, name, as, bs, op.got, want)
			}
		}
		var sum uint64
		for _, n := range as {
			sum += n
		}
		if got := l.Sum(a); got != sum {
			t.Fatalf("%v: the sum of %v is %d, want %d", l, as, got, sum)
		}
	})
}

// The bound matches the behavior of a node: with one more node than a layout allows, the budget is
// 0.
func TestMaxNodes(t *testing.T) {
	for fields := 2; fields <= counter.MaxFields; fields++ {
		l, _ := counter.LayoutOf(fields)
		if n := l.MaxNodes(); l.Budget(counter.Senders(n)) == 0 || l.Budget(counter.Senders(n+1)) != 0 {
			t.Errorf("%v: with %d nodes the budget is %d, with one more it is %d", l, n, l.Budget(counter.Senders(n)), l.Budget(counter.Senders(n+1)))
		}
	}
}
