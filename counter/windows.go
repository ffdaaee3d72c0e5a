package counter

// Windows are the current window of a limit and the previous one, with what is kept of each:
// a count, or what a node knows of one. The zero value is the window with the index 0.
type Windows[I int64 | uint32, T any] struct {
	Index     I // of the current window, from the Unix epoch
	Prev, Cur T
}

// Roll makes the window with an index the current one, and reports whether it was not. It does
// nothing if the window has passed.
func (w *Windows[I, T]) Roll(index I) (rolled bool) {
	var none T
	switch {
	case index <= w.Index:
		return false
	case index == w.Index+1:
		w.Prev = w.Cur
	default:
		w.Prev = none
	}
	w.Index, w.Cur = index, none
	return true
}

// At returns what is kept of the window with an index, nil if that is not one of the two.
func (w *Windows[I, T]) At(index I) *T {
	switch index {
	case w.Index:
		return &w.Cur
	case w.Index - 1:
		return &w.Prev
	}
	return nil
}
