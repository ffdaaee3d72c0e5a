//go:build !linux

package http1

// Loops are implemented on Linux only. Elsewhere, each connection has its own goroutine.
type (
	loop  struct{}
	loops struct{}
)

func (s *Server) isCrowded() bool          { return false }
func (c *Conn) join() bool                 { return false }
func (c *Conn) leave()                     {}
func (l *loop) lead(c **Conn) (begun bool) { return false }
func (ls *loops) close()                   {}
