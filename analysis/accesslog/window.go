package accesslog

import (
	"slices"
	"sort"
	"time"
)

// A window sorts arrivals that come behind fewer than limit later ones: it holds limit of them
// back. They come and go in batches; a log that is in order passes without being touched.
type window struct {
	batches
	limit int
	hand  func([]Arrival) error

	held    [][]Arrival // each in order, and none begins before the one ahead of it ends
	waiting [][]Arrival // each in order, later in the input than held, not yet merged
	since   int64       // the oldest of waiting
	late    int         // how many wait
	count   int         // of held and waiting

	handed bool
	until  int64 // the newest that was handed out
}

// add takes a batch in order that is not empty.
func (w *window) add(b []Arrival) error {
	first := b[0].Time
	if w.handed && first < w.until {
		return &OrderError{By: time.Duration(w.until-first) * time.Microsecond, Buffer: w.limit}
	}
	w.count += len(b)
	switch {
	case len(w.waiting) > 0:
		w.wait(b)
		if w.late > w.limit/8 {
			w.settle()
		}
	case w.after(first) == 0:
		w.held = append(w.held, b)
	default:
		w.wait(b)
		// To merge costs as much as is held of what is newer. Where that is much, it is done
		// for many batches together.
		if w.after(first) < 8*len(b) {
			w.settle()
		}
	}
	for len(w.held) == 0 || w.count-len(w.held[0]) >= w.limit {
		if err := w.next(); err != nil {
			return err
		}
	}
	return nil
}

func (w *window) finish() error {
	w.settle()
	for len(w.held) > 0 {
		if err := w.next(); err != nil {
			return err
		}
	}
	return nil
}

// next hands out the oldest batch, or makes it known.
func (w *window) next() error {
	if len(w.held) == 0 {
		w.settle()
		return nil
	}
	b := w.held[0]
	newest := b[len(b)-1].Time
	if len(w.waiting) > 0 && w.since < newest {
		w.settle()
		return nil
	}
	w.held = w.held[1:]
	w.count -= len(b)
	w.handed, w.until = true, newest
	err := w.hand(b)
	w.put(b)
	return err
}

func (w *window) wait(b []Arrival) {
	if len(w.waiting) == 0 || b[0].Time < w.since {
		w.since = b[0].Time
	}
	w.waiting = append(w.waiting, b)
	w.late += len(b)
}

// after returns how many are held that are newer than t, or a few more.
func (w *window) after(t int64) (n int) {
	for _, b := range slices.Backward(w.held) {
		if b[len(b)-1].Time <= t {
			break
		}
		n += len(b)
	}
	return n
}

// settle merges what waits into what is held.
func (w *window) settle() {
	if len(w.waiting) == 0 {
		return
	}
	i := sort.Search(len(w.held), func(i int) bool {
		b := w.held[i]
		return b[len(b)-1].Time > w.since
	})
	newer := slices.Clone(w.held[i:])
	w.held = w.held[:i]
	if len(newer) > 0 {
		b := newer[0]
		if n := sort.Search(len(b), func(i int) bool { return b[i].Time > w.since }); n > 0 {
			newer[0] = append(w.get(), b[n:]...)
			w.held = append(w.held, b[:n])
		}
	}
	w.held = append(w.held, w.merge(newer, w.mergeAll(w.waiting))...)
	w.waiting, w.late = w.waiting[:0], 0
}

func (w *window) close() error { return nil }
