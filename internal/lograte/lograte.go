// Package lograte limits the cost of logging: how often a line that outsiders can trigger is logged, and how many lines
// wait to be written.
package lograte

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"
)

// A Limiter logs at most one line per interval, and counts the others. It is safe for
// concurrent use.
type Limiter struct {
	Every time.Duration // the interval; if zero, a second

	mu       sync.Mutex // guards the fields below
	last     time.Time
	unlogged int // lines dropped since the last one logged
}

// Log logs message unless a line was logged in the interval before now. The attribute unlogged is the number
// of lines dropped since then.
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
