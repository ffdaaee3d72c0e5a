//go:build !edgeguard

package counter

import "net"

// guard returns conn. In builds with the tag edgeguard, using a shard's connection while a
// decision is made panics.
func guard(conn net.Conn) net.Conn { return conn }

func mustNotDecide(string) {}

func passOn(any) {}
