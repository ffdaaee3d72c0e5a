//go:build !unix

package memcached

import "net"

// quiet reports whether an idle connection is usable. This platform cannot tell.
func quiet(net.Conn) bool { return true }
