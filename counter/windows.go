package counter

// Windows holds the state of a limit's current window and of the previous one. The zero value is
// at index 0.
type Windows[I int64 | uint32, T any] struct {
	Index     I // of the current window, from the Unix epoch
	Prev, Cur T
}

// Roll makes the window at index the current one, and reports whether that is a change. It does
// nothing if that window has passed.
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

// At returns the state of the window at index, or nil if it is not one of the two.
func (w *Windows[I, T]) At(index I) *T {
	switch index {
	case w.Index:
		return &w.Cur
	case w.Index - 1:
		return &w.Prev
	}
	return nil
}
