//go:build !linux

package load

import "time"

// nap sleeps for less than a few milliseconds.
func nap(d time.Duration) { time.Sleep(d) }
