package counter_test

import (
	"testing"

	"github.com/edgelimit/edge/counter"
)

// The next window makes the current one the previous one; a later one leaves nothing of either.
func TestRoll(t *testing.T) {
	for _, tt := range []struct {
		name  string
		index int64
		want  counter.Windows[int64, int]
	}{
		{"the same", 7, counter.Windows[int64, int]{Index: 7, Prev: 1, Cur: 2}},
		{"one that has passed", 6, counter.Windows[int64, int]{Index: 7, Prev: 1, Cur: 2}},
		{"the next", 8, counter.Windows[int64, int]{Index: 8, Prev: 2}},
		{"the one after it", 9, counter.Windows[int64, int]{Index: 9}},
	} {
		w := counter.Windows[int64, int]{Index: 7, Prev: 1, Cur: 2}
		if w.Roll(tt.index); w != tt.want {
			t.Errorf("%s: Roll(%d) leaves %+v, want %+v", tt.name, tt.index, w, tt.want)
		}
	}
}
