package gossip

// windowSize is how many numbers a window knows: the highest one, and those before it.
const windowSize = 64

// A window knows which numbers were received. The zero window has received none; numbers begin at 1.
type window struct {
	highest uint64 // number received so far; 0 before the first
	seen    uint64 // bit i, from the lowest, is set if the number i below the highest was received
}

// take records that number was received, and reports whether that is the first time. It refuses numbers that are too
// old to know.
func (w *window) take(number uint64) (first bool) {
	if number == 0 || w.has(number) {
		return false
	}
	if number > w.highest {
		w.seen <<= number - w.highest
		w.highest = number
	}
	w.seen |= 1 << (w.highest - number)
	return true
}

// has reports whether number was received, or is too old to know.
func (w window) has(number uint64) bool {
	return number <= w.highest && (w.highest-number >= windowSize || w.seen>>(w.highest-number)&1 != 0)
}

// lacks reports whether other has received a number that w has not, and is not too old for w to know.
func (w window) lacks(other window) bool {
	behind := w.highest - other.highest
	return other.highest > w.highest || (other.seen&^(w.seen>>behind))<<behind != 0
}
