// Package tick calls functions regularly.
package tick

import (
	"context"
	"time"
)

// Every calls do at each interval until ctx is done. A call that takes longer delays the next one.
func Every(ctx context.Context, interval time.Duration, do func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			do()
		}
	}
}
