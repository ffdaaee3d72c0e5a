package load

import (
	"syscall"
	"time"
)

// nap sleeps for less than a few milliseconds. The runtime's timers may be a millisecond late on an
// idle system, which is longer than many answers take.
func nap(d time.Duration) {
	t := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&t, nil) // if interrupted, the caller calls it again
}
