package async

import (
	"testing"
	"time"

	"github.com/edgelimit/edge/counter"
)

// However many keys are mitigated within a minute, few are watched.
func TestWatchedKeysAreBounded(t *testing.T) {
	l := mitigationLog{watched: map[counter.Key]watched{}}
	now := time.Unix(6000, 0)
	for i := range maxWatched + 10 {
		if l.watch(counter.Key{byte(i), byte(i >> 8)}, now) != 1 {
			t.Errorf("key %d has started before", i)
		}
	}
	if got := len(l.watched); got != maxWatched {
		t.Errorf("%d keys are watched, want %d", got, maxWatched)
	}
	if l.watch(counter.Key{1, 2, 3}, now.Add(time.Minute)); len(l.watched) != 1 {
		t.Errorf("%d keys are watched when another one starts a minute later, want 1", len(l.watched))
	}
}
