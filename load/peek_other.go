//go:build !unix

package load

import "net"

// On this system, a peeker cannot tell whether the target has closed an idle connection.
type peeker struct{}

func (p *peeker) reset(net.Conn) {}

func (p *peeker) idle() bool { return true }
