//go:build !linux

package main

// reloading is what a reload is announced by.
func reloading() []string { return []string{"RELOADING=1"} }
