package limit

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// later holds keys until there is something to be read once more: their previous counter,
// or what former owners have.
type later struct {
	wake chan struct{} // holds at most one

	mu    sync.Mutex
	waits waits // guarded by mu
}

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

// maxLater is how many keys wait. What does not fit is read with its next count.
const maxLater = 1 << 16

func (l *later) add(t *track, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waits) >= maxLater {
		return
	}
	heap.Push(&l.waits, wait{t, until})
	if l.waits[0].track == t { // perhaps earlier than all others
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// run passes each key to do when its time has come by the clock now, until ctx is done.
func (l *later) run(ctx context.Context, now func() time.Time, do func(*track)) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		case <-timer.C:
		}
		due, next := l.due(now())
		for _, t := range due {
			do(t)
		}
		if next > 0 {
			timer.Reset(next)
		}
	}
}

// due removes the keys whose time has come, and returns how long the next one waits.
func (l *later) due(now time.Time) (due []*track, next time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.waits) > 0 && !l.waits[0].until.After(now) {
		due = append(due, heap.Pop(&l.waits).(wait).track)
	}
	if len(l.waits) > 0 {
		next = l.waits[0].until.Sub(now)
	}
	return due, next
}
