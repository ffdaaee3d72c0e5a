//go:build !linux

package http1

const pollErr, pollHup = 0, 0

// hungUp would tell how the peer of the socket fd has ended the connection. Elsewhere than on
// Linux that is found out by writing.
func hungUp(uintptr) int16 { return 0 }
