package accesslog

// sortStable sorts a by time, stably: it merges a's ascending runs, of which a log that
// is nearly in order has few. tmp has room for a. What is returned is in one of the two.
func sortStable(a, tmp []Arrival, runs []int) ([]Arrival, []int) {
	runs = append(runs[:0], 0)
	for i := 1; i < len(a); i++ {
		if a[i].Time < a[i-1].Time {
			runs = append(runs, i)
		}
	}
	tmp = tmp[:len(a)]
	for len(runs) > 1 {
		n := 0
		for i := 0; i < len(runs); i += 2 {
			from, mid, to := runs[i], len(a), len(a)
			if i+1 < len(runs) {
				mid = runs[i+1]
			}
			if i+2 < len(runs) {
				to = runs[i+2]
			}
			mergeRuns(tmp[from:to], a[from:mid], a[mid:to])
			runs[n] = from
			n++
		}
		runs = runs[:n]
		a, tmp = tmp, a
	}
	return a, runs
}

// mergeRuns merges a and b into dst, of two of the same time a's first.
func mergeRuns(dst, a, b []Arrival) {
	for len(a) > 0 && len(b) > 0 {
		if b[0].Time < a[0].Time {
			dst[0], b = b[0], b[1:]
		} else {
			dst[0], a = a[0], a[1:]
		}
		dst = dst[1:]
	}
	copy(dst, a)
	copy(dst[len(a):], b)
}

// batches are lists of arrivals that are used again. Its methods may be called
// concurrently.
type batches struct{ free chan []Arrival }

const batchSize = 2048 // about as many as there are lines in a block

func (p batches) get() []Arrival {
	select {
	case b := <-p.free:
		return b[:0]
	default:
		return make([]Arrival, 0, batchSize)
	}
}

func (p batches) put(b []Arrival) {
	if cap(b) < batchSize {
		return
	}
	select {
	case p.free <- b:
	default:
	}
}
