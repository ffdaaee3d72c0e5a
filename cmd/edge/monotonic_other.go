//go:build !linux

package main

// reloading returns the state that announces a reload.
func reloading() []string { return []string{"RELOADING=1"} }
