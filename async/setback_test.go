package async_test

import (
	"testing"
	"time"
)

// A clock that is set back does not hold back the counts of networks until it has caught up.
func TestCountsOfNetworksAfterClockWasSetBack(t *testing.T) {
	s := newStepped(t, "rules: [{id: a, characteristics: [network:8/16], limits: [{threshold: 100, period: 1h}], mitigation_timeout: 1h, action: shed}]")
	next := 0
	s.offer(&next, 100, 10*time.Second)
	s.ask(addrOf(1))
	s.wait(time.Millisecond) // counts are held back
	s.now = s.now.Add(-5 * time.Minute)
	before := s.shard.increments
	s.offer(&next, 100, 10*time.Second)
	if sent := s.shard.increments - before; sent < 50 {
		t.Errorf("%d increments in 10 s after the clock was set back, want at least 50", sent)
	}
}
