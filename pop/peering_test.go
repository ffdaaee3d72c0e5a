package pop

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// A process that stands still within a status goes on.
func TestStandingStillWithinAStatus(t *testing.T) {
	p := &peering{logger: slog.New(slog.DiscardHandler), full: func() bool { return false }, peers: map[string]*peer{}}
	now := time.Now()
	p.heard("n2", true, nil, now)
	p.votes(now.Add(time.Hour)) // n2 is silent by then
	p.agrees("n2", 0, false, now)
	if len(p.peers) > 0 {
		t.Error("a silent peer is known")
	}
}

// A node that makes no sense again and again is said to, now and then.
func TestPuzzle(t *testing.T) {
	var log bytes.Buffer
	p := &peering{logger: slog.New(slog.NewTextHandler(&log, nil)), peers: map[string]*peer{}}
	now := time.Now()
	for range 100 {
		p.puzzle("n2", errors.New("nonsense"), now)
		now = now.Add(250 * time.Millisecond)
	}
	if got := strings.Count(log.String(), "\n"); got != 3 || strings.Count(log.String(), "unlogged=39\n") != 2 {
		t.Errorf("in 25 s %d lines are logged, want 3, of 40 times each:\n%s", got, &log)
	}
}
