package limit

import (
	"context"
	"sync"
	"time"
)

// later holds keys until their previous counter is to be read once more. All of them
// wait for about the same time, so that their order is that in which they come.
type later struct {
	wake chan struct{} // holds at most one

	mu    sync.Mutex
	waits []wait // guarded by mu
}

type wait struct {
	track *track
	until time.Time
}

// maxLater is how many keys wait. What does not fit is read with its next count.
const maxLater = 1 << 16

func (l *later) add(t *track, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waits) >= maxLater {
		return
	}
	l.waits = append(l.waits, wait{t, until})
	if len(l.waits) == 1 {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// run passes each key to do when its time has come, until ctx is done.
func (l *later) run(ctx context.Context, do func(*track)) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		case <-timer.C:
		}
		due, next := l.due(time.Now())
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
	n := 0
	for ; n < len(l.waits) && !l.waits[n].until.After(now); n++ {
		due = append(due, l.waits[n].track)
	}
	l.waits = append(l.waits[:0], l.waits[n:]...)
	if len(l.waits) > 0 {
		next = l.waits[0].until.Sub(now)
	}
	return due, next
}
