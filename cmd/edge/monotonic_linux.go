package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// reloading is what a reload is announced by. The time tells the service manager which READY=1
// belongs to it.
func reloading() []string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return []string{"RELOADING=1"}
	}
	return []string{"RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", now.Nano()/1000)}
}
