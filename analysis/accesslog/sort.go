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

// merge merges two sequences in order into one, of two arrivals of the same time a's
// first. The batches of a and b are used up.
func (p batches) merge(a, b [][]Arrival) (merged [][]Arrival) {
	out := p.get()
	i, j := 0, 0 // in the first batches of a and b
	for len(a) > 0 && len(b) > 0 {
		inA, inB := a[0], b[0]
		for i < len(inA) && j < len(inB) {
			if len(out) == cap(out) {
				merged = append(merged, out)
				out = p.get()
			}
			if inB[j].Time < inA[i].Time {
				out = append(out, inB[j])
				j++
			} else {
				out = append(out, inA[i])
				i++
			}
		}
		if i == len(inA) {
			p.put(inA)
			a, i = a[1:], 0
		}
		if j == len(inB) {
			p.put(inB)
			b, j = b[1:], 0
		}
	}
	rest, done := a, i
	if len(rest) == 0 {
		rest, done = b, j
	}
	if len(rest) > 0 && done > 0 { // the others are whole
		out = append(out, rest[0][done:]...)
		p.put(rest[0])
		rest = rest[1:]
	}
	if len(out) > 0 {
		merged = append(merged, out)
	}
	return append(merged, rest...)
}

// mergeAll merges sequences of one batch each, of two arrivals of the same time that of
// the earlier sequence first.
func (p batches) mergeAll(all [][]Arrival) [][]Arrival {
	sequences := make([][][]Arrival, 0, len(all))
	for _, b := range all {
		last := len(sequences) - 1
		if last >= 0 {
			s := sequences[last]
			if end := s[len(s)-1]; end[len(end)-1].Time <= b[0].Time {
				sequences[last] = append(s, b)
				continue
			}
		}
		sequences = append(sequences, [][]Arrival{b})
	}
	for len(sequences) > 1 {
		n := 0
		for i := 0; i < len(sequences); i += 2 {
			if i+1 < len(sequences) {
				sequences[n] = p.merge(sequences[i], sequences[i+1])
			} else {
				sequences[n] = sequences[i]
			}
			n++
		}
		sequences = sequences[:n]
	}
	if len(sequences) == 0 {
		return nil
	}
	return sequences[0]
}
