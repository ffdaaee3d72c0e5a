//go:build !unix

package load

import "net"

// A peeker cannot tell on this system whether the target has ended an idle connection.
type peeker struct{}

func (p *peeker) reset(net.Conn) {}

func (p *peeker) idle() bool { return true }
