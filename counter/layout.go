package counter

import (
	"fmt"
	"math"
	"time"
)

// A Layout says how a window's number holds its counts: Fields counts of Bits bits, the
// count of the first nth of the window in the lowest bits. It is [Plain] or one of those
// that [LayoutOf] returns.
type Layout struct {
	Fields, Bits uint8
}

// Plain is one count of 64 bits: the number is the number of requests in the window.
var Plain = Layout{Fields: 1, Bits: 64}

// layouts are those of packed sub-windows, by their fields: as many bits for each as fit.
var layouts = [...]Layout{2: {2, 32}, 3: {3, 21}, 4: {4, 16}, 5: {5, 12}, 6: {6, 10}}

// MaxFields is how many counts a number holds at most.
const MaxFields = len(layouts) - 1

// LayoutOf returns the layout with so many fields. ok is false if there is none.
func LayoutOf(fields int) (l Layout, ok bool) {
	switch {
	case fields == 1:
		return Plain, true
	case fields < 2 || fields > MaxFields:
		return Layout{}, false
	}
	return layouts[fields], true
}

// MinSubWindow is how long a sub-window lasts at least. Counts are told apart by it as well
// as clocks agree, which may differ by some hundred milliseconds, and as flushes are
// prompt; shorter ones would gain nothing.
const MinSubWindow = time.Second

// FieldsIn returns how many sub-windows a period, in microseconds, has room for.
func FieldsIn(period int64) int {
	return int(min(period/MinSubWindow.Microseconds(), int64(MaxFields)))
}

// AutoLayout returns the layout with the most fields, and no more than so many, that is for
// a threshold: [Plain] where there is none.
func AutoLayout(threshold uint64, fields int) Layout {
	for fields = min(fields, MaxFields); fields > 1; fields-- {
		if l := layouts[fields]; threshold <= l.MaxThreshold() {
			return l
		}
	}
	return Plain
}

// Stop returns at which count a field is not counted further: three quarters of what it
// holds, 3·2^(Bits−2). What is left above is for what is on its way by then.
func (l Layout) Stop() uint64 { return 3 << (l.Bits - 2) }

// MaxThreshold returns the greatest threshold that l is for: an eighth of [Layout.Stop], so
// that a field which is not counted further is over by far.
func (l Layout) MaxThreshold() uint64 {
	if l.Fields == 1 {
		return 1<<64 - 1
	}
	return l.Stop() / 8
}

// Budget returns how much may be on its way to one field at a time from each of so many
// senders: all together no more than fits above [Layout.Stop].
//
//	⌊2^(Bits−2) / senders⌋
//
// It is 0 where there are too many. Plain numbers have no such bound.
func (l Layout) Budget(senders int) uint64 {
	if l.Fields == 1 {
		return 1<<64 - 1
	}
	return 1 << (l.Bits - 2) / uint64(max(1, senders))
}

// MinNodes is how many nodes a PoP is taken to have at least: those that a node has not heard of
// count in the same sub-windows.
const MinNodes = 16

// lives is how often each node is counted as a sender: one that restarts, or forgets a key, does
// not know of what it had on its way before.
const lives = 2

// Senders returns how many senders count in the same numbers, in a PoP of so many nodes.
func Senders(nodes int) int { return lives * max(MinNodes, nodes) }

// MostNodes returns how many nodes of a PoP can count in the same numbers of l: each needs room
// in every sub-window for what it has on its way.
func (l Layout) MostNodes() int {
	return int(min(uint64(1)<<(l.Bits-2)/lives, math.MaxInt32))
}

// String returns the layout as 6×10.
func (l Layout) String() string { return fmt.Sprintf("%d×%d", l.Fields, l.Bits) }

// Known reports whether l is one of those that there are.
func (l Layout) Known() bool {
	is, ok := LayoutOf(int(l.Fields))
	return ok && is == l
}

// mask returns the bits of the lowest field: also the most that a field holds.
func (l Layout) mask() uint64 { return ^uint64(0) >> (64 - l.Bits) }

// field returns the kth count of number.
func (l Layout) field(number uint64, k int) uint64 {
	return number >> (int(l.Bits) * k) & l.mask()
}

// Sum returns all counts of number together.
func (l Layout) Sum(number uint64) uint64 { return l.sum(number, 0) }

// sum returns all counts of two numbers together, or the greatest number that there is.
//
// Every other field has the room of its neighbour to grow into: so fields are added in
// pairs, all at once, and the at most three sums of pairs by two shifts. A shift by 64 and
// more gives 0, so that layouts of fewer fields need no other code.
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

// From returns number, whose layout is other, in l: each of its counts in the field in which
// its sub-window begins, at most what that holds. So requests may be taken for older than they
// are, and none for younger; where the fields of other are a multiple of those of l, they are
// all in their own field.
func (l Layout) From(other Layout, number uint64) (in uint64) {
	if l == other {
		return number
	}
	for k := range int(other.Fields) {
		n := min(other.field(number, k), l.mask())
		in = l.Add(in, n<<(int(l.Bits)*(k*int(l.Fields)/int(other.Fields))))
	}
	return in
}

// What follows works field by field. What is below zero or above what a field holds stays
// there: no field ever borrows from its neighbour or carries into it.

// Add returns a + b, each field at most what it holds.
func (l Layout) Add(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return a | b // mostly there is nothing to add
	}
	return l.zip(a, b, func(x, y uint64) uint64 { return x + min(y, l.mask()-x) })
}

// Max returns the greater one of each field.
func (l Layout) Max(a, b uint64) uint64 {
	return l.zip(a, b, func(x, y uint64) uint64 { return max(x, y) })
}

// Min returns the less one of each field.
func (l Layout) Min(a, b uint64) uint64 {
	return l.zip(a, b, func(x, y uint64) uint64 { return min(x, y) })
}

// Sub returns a − b, each field at least 0.
func (l Layout) Sub(a, b uint64) uint64 {
	return l.zip(a, b, func(x, y uint64) uint64 { return x - min(x, y) })
}

// Below returns all bits of the fields of a that are less than those of b.
func (l Layout) Below(a, b uint64) uint64 {
	return l.zip(a, b, func(x, y uint64) uint64 {
		if x < y {
			return l.mask()
		}
		return 0
	})
}

// Each returns the number whose fields are all n, which must fit.
func (l Layout) Each(n uint64) uint64 {
	return l.zip(0, 0, func(uint64, uint64) uint64 { return n })
}

// zip returns the number whose fields are made of those of a and b.
func (l Layout) zip(a, b uint64, f func(x, y uint64) uint64) (number uint64) {
	if l.Fields == 1 {
		return f(a, b)
	}
	for k := range int(l.Fields) {
		number |= f(l.field(a, k), l.field(b, k)) << (int(l.Bits) * k)
	}
	return number
}
