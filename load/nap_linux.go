package load

import (
	"syscall"
	"time"
)

// nap sleeps for less than some milliseconds. The timers of the runtime may be a millisecond
// late while nothing else happens, which is longer than many answers take.
func nap(d time.Duration) {
	t := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&t, nil) // interrupted, it is called again
}
