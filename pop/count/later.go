package count

import (
	"container/heap"
	"time"
)

// later holds keys until their previous or retired counters are to be read again. The loop owns
// it.
type later struct{ waits waits }

type wait struct {
	track *track
	until time.Time
}

// waits is a heap by time.
type waits []wait

func (w waits) Len() int           { return len(w) }
func (w waits) Less(i, j int) bool { return w[i].until.Before(w[j].until) }
func (w waits) Swap(i, j int)      { w[i], w[j] = w[j], w[i] }
func (w *waits) Push(x any)        { *w = append(*w, x.(wait)) }
func (w *waits) Pop() any {
	last := len(*w) - 1
	x := (*w)[last]
	(*w)[last] = wait{}
	*w = (*w)[:last]
	return x
}

// maxLater is the maximum number of keys that wait. Further ones are read with their next count.
const maxLater = 1 << 16

func (l *later) add(t *track, until time.Time) {
	if len(l.waits) < maxLater {
		heap.Push(&l.waits, wait{t, until})
	}
}

// due removes and returns a key that is due at now, nil if none is.
func (l *later) due(now time.Time) *track {
	if len(l.waits) == 0 || l.waits[0].until.After(now) {
		return nil
	}
	return heap.Pop(&l.waits).(wait).track
}

// next returns when the next key is due, zero if none waits.
func (l *later) next() time.Time {
	if len(l.waits) == 0 {
		return time.Time{}
	}
	return l.waits[0].until
}
