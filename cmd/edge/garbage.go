package main

import (
	"os"
	"runtime/debug"
)

// collectGarbage makes the process collect garbage whenever its memory has grown by percent, until undo is called. It
// does nothing if GOGC is set.
func collectGarbage(percent int) (undo func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	before := debug.SetGCPercent(percent)
	return func() { debug.SetGCPercent(before) }
}
