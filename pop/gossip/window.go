package gossip

// windowSize is how far behind the highest number a packet may arrive.
const windowSize = 1 << 10

// A window knows which numbers were received. The zero window has received none; numbers
// begin at 1.
type window struct {
	highest uint64                  // number taken so far; 0 before the first
	seen    [windowSize / 64]uint64 // ring of bits
}

// take records that number was received, and reports whether that is the first time. It refuses numbers that are too
// old to know.
func (w *window) take(number uint64) (first bool) {
	if number == 0 || number+windowSize <= w.highest {
		return false
	}
	for n := max(w.highest, number-min(number, windowSize)) + 1; n < number; n++ {
		w.seen[n/64%uint64(len(w.seen))] &^= 1 << (n % 64) // of a number that is now too old
	}
	word, bit := &w.seen[number/64%uint64(len(w.seen))], uint64(1)<<(number%64)
	if number <= w.highest && *word&bit != 0 {
		return false
	}
	w.highest = max(w.highest, number)
	*word |= bit
	return true
}
