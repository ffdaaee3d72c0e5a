package counter

import (
	"fmt"
	"math"
	"time"
)

// A Layout describes how a window's value encodes its counts: Fields counts of Bits bits each, with
// the first sub-window in the lowest bits. It is [Plain] or a result of [LayoutOf].
type Layout struct {
	Fields, Bits uint8
}

// Plain is one count of 64 bits: the value is the number of requests in the window.
var Plain = Layout{Fields: 1, Bits: 64}

// Layouts holds the layouts by number of fields, at least 1, each with as many bits per field as fit.
var Layouts = [...]Layout{1: Plain, 2: {2, 32}, 3: {3, 21}, 4: {4, 16}, 5: {5, 12}, 6: {6, 10}}

// MaxFields is the maximum number of counts in a value.
const MaxFields = len(Layouts) - 1

// LayoutOf returns the layout with the given number of fields, and reports whether such a layout exists.
func LayoutOf(fields int) (l Layout, ok bool) {
	if fields < 1 || fields > MaxFields {
		return Layout{}, false
	}
	return Layouts[fields], true
}

// MinSubWindow is the minimum length of a sub-window. Clocks may differ by some hundred milliseconds and flushes take
// time, so shorter sub-windows would gain nothing.
const MinSubWindow = time.Second

// FieldsIn returns how many sub-windows a period, in microseconds, has room for.
func FieldsIn(period int64) int {
	return int(min(period/MinSubWindow.Microseconds(), int64(MaxFields)))
}

// AutoLayout returns the layout with the most fields, up to fields, that allows threshold, or [Plain] if none does.
func AutoLayout(threshold uint64, fields int) Layout {
	for fields = min(fields, MaxFields); fields > 1; fields-- {
		if l := Layouts[fields]; threshold <= l.MaxThreshold() {
			return l
		}
	}
	return Plain
}

// Stop returns the count at which a field is full: three quarters of its range, 3·2^(Bits−2). The
// rest is for increments that are in flight by then.
func (l Layout) Stop() uint64 { return 3 << (l.Bits - 2) }

// MaxThreshold returns the greatest threshold for l: an eighth of [Layout.Stop], so that a full
// field is far over the limit.
func (l Layout) MaxThreshold() uint64 {
	if l.Fields == 1 {
		return 1<<64 - 1
	}
	return l.Stop() / 8
}

// Budget returns how much each sender may have in flight to a field, so that all together fit
// above [Layout.Stop]:
//
//	⌊2^(Bits−2) / senders⌋
//
// It is 0 if there are too many senders. Plain values have no bound.
func (l Layout) Budget(senders int) uint64 {
	if l.Fields == 1 {
		return 1<<64 - 1
	}
	return 1 << (l.Bits - 2) / uint64(max(1, senders))
}

// MinNodes is the assumed minimum number of nodes in a PoP, because nodes that are not known yet may count, too.
const MinNodes = 16

// lives is the number of senders that a node counts as: after a restart or the eviction of a key, it
// no longer knows its earlier increments in flight.
const lives = 2

// Senders returns how many senders share the counters of a PoP with this many nodes.
func Senders(nodes int) int { return lives * max(MinNodes, nodes) }

// MaxNodes returns how many nodes of a PoP can share counters of layout l: each needs room in
// every field for its increments in flight.
func (l Layout) MaxNodes() int { return int(min(uint64(1)<<(l.Bits-2)/lives, math.MaxInt32)) }

// String returns the layout, such as 6×10.
func (l Layout) String() string { return fmt.Sprintf("%d×%d", l.Fields, l.Bits) }

// Known reports whether l is a valid layout.
func (l Layout) Known() bool {
	is, ok := LayoutOf(int(l.Fields))
	return ok && is == l
}

// mask returns the bits of the lowest field, which is also the maximum of a field.
func (l Layout) mask() uint64 { return ^uint64(0) >> (64 - l.Bits) }

// field returns the kth count of value.
func (l Layout) field(value uint64, k int) uint64 { return value >> (int(l.Bits) * k) & l.mask() }

// Sum returns the sum of value's counts.
func (l Layout) Sum(value uint64) uint64 { return l.sum(value, 0) }

// sum returns the sum of all counts of a and b, saturated.
//
// With every second field masked out, each remaining field has room to grow. So one addition adds all pairs of fields,
// and two shifts add up the sums, at most three. A shift by 64 or more gives 0, so layouts with fewer fields need no
// other code.
func (l Layout) sum(a, b uint64) uint64 {
	if l.Fields == 1 {
		return a + min(b, ^a)
	}
	wide := 2 * l.Bits
	pairs := l.mask()
	pairs |= pairs<<wide | pairs<<(2*wide)
	a = a&pairs + a>>l.Bits&pairs + b&pairs + b>>l.Bits&pairs
	return (a + a>>wide + a>>(2*wide)) & (1<<wide - 1)
}

// The operations below work field by field and saturate: no field borrows from its neighbor or
// carries into it.

// Add returns a + b.
func (l Layout) Add(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return a | b // the usual case
	}
	return l.zip(a, b, func(x, y uint64) uint64 { return x + min(y, l.mask()-x) })
}

// Max returns the maximum of each field.
func (l Layout) Max(a, b uint64) uint64 {
	return l.zip(a, b, func(x, y uint64) uint64 { return max(x, y) })
}

// Min returns the minimum of each field.
func (l Layout) Min(a, b uint64) uint64 {
	return l.zip(a, b, func(x, y uint64) uint64 { return min(x, y) })
}

// Sub returns a − b.
func (l Layout) Sub(a, b uint64) uint64 {
	return l.zip(a, b, func(x, y uint64) uint64 { return x - min(x, y) })
}

// Below returns a mask of the fields in which a is less than b.
func (l Layout) Below(a, b uint64) uint64 {
	return l.zip(a, b, func(x, y uint64) uint64 {
		if x < y {
			return l.mask()
		}
		return 0
	})
}

// Each returns the value whose fields are all n, which must fit.
func (l Layout) Each(n uint64) uint64 {
	return l.zip(0, 0, func(uint64, uint64) uint64 { return n })
}

// zip returns the value whose fields are the results of f for those of a and b.
func (l Layout) zip(a, b uint64, f func(x, y uint64) uint64) (value uint64) {
	if l.Fields == 1 {
		return f(a, b)
	}
	for k := range int(l.Fields) {
		value |= f(l.field(a, k), l.field(b, k)) << (int(l.Bits) * k)
	}
	return value
}
