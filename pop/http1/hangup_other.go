//go:build !linux

package http1

const pollErr, pollHup = 0, 0

// hungUp is implemented on Linux only. Elsewhere, writing shows that the peer is gone.
func hungUp(uintptr) int16 { return 0 }
