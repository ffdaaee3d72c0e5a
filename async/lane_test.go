package async

import (
	"testing"
	"time"
)

// At most maxLater keys wait, and the caller learns that others do not.
func TestLaterIsBounded(t *testing.T) {
	var l later
	now, of := time.Unix(6000, 0), new(track)
	for i := range maxLater + 2 {
		if ok := l.add(of, now); ok != (i < maxLater) {
			t.Fatalf("%d keys wait, and whether another one may: %t", i, ok)
		}
	}
	if len(l) != maxLater {
		t.Errorf("%d keys wait, want %d", len(l), maxLater)
	}
}
