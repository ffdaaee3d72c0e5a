package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// reloading returns the state that announces a reload. The time tells the service manager which
// READY=1 belongs to it.
func reloading() []string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return []string{"RELOADING=1"}
	}
	return []string{"RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", now.Nano()/1000)}
}
