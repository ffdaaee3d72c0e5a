// Package lograte limits how often a line is logged that outsiders can cause.
package lograte

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"
)

// A Limiter logs at most one line in an interval, and counts the others. It may be used
// concurrently.
type Limiter struct {
	Every time.Duration // the interval; if zero, a second

	mu       sync.Mutex
	last     time.Time
	unlogged int // lines since the last one that was logged
}

// Log logs message unless a line was logged in the interval before now. The attribute unlogged tells how
// many lines were left out since that one.
func (l *Limiter) Log(logger *slog.Logger, level slog.Level, now time.Time, message string, attrs ...any) {
	l.mu.Lock()
	if now.Sub(l.last) < cmp.Or(l.Every, time.Second) {
		l.unlogged++
		l.mu.Unlock()
		return
	}
	unlogged := l.unlogged
	l.last, l.unlogged = now, 0
	l.mu.Unlock()
	logger.Log(context.Background(), level, message, append(attrs, "unlogged", unlogged)...)
}
