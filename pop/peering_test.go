package pop

import (
	"log/slog"
	"testing"
	"time"
)

// A process that stands still within a status goes on.
func TestStandingStillWithinAStatus(t *testing.T) {
	p := &peering{logger: slog.New(slog.DiscardHandler), peers: map[string]*peer{}}
	now := time.Now()
	p.heard("n2", true, nil, now)
	p.votes(now.Add(time.Hour)) // n2 is silent by then
	p.agrees("n2", 0, false, now)
	if len(p.peers) > 0 {
		t.Error("a silent peer is known")
	}
}
