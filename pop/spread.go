package pop

import (
	"context"
	"log/slog"
	"net"

	"github.com/edgelimit/edge/counter/shard"
)

// A spreader distributes the connections of a listener over pipes in turn, as the routers of a PoP do. It does not
// proxy connections, so nodes see the client itself.
type spreader struct {
	ln    net.Listener
	pipes []*shard.Pipe
}

// newSpreader returns a spreader of the connections of ln over n pipes.
func newSpreader(ln net.Listener, n int, logger *slog.Logger) *spreader {
	s := &spreader{ln: newRetryListener(ln, logger)}
	for range n {
		s.pipes = append(s.pipes, shard.NewPipe())
	}
	return s
}

// run accepts connections until the listener is closed, then closes the pipes.
func (s *spreader) run() {
	defer func() {
		for _, w := range s.pipes {
			_ = w.Close()
		}
	}()
	for i := 0; ; i++ {
		conn, err := s.ln.Accept()
		if err != nil {
			return
		}
		if !s.give(conn, i) {
			_ = conn.Close()
		}
	}
}

// give passes conn to the ith pipe, or to the next open one.
func (s *spreader) give(conn net.Conn, i int) bool {
	for j := range s.pipes {
		if s.pipes[(i+j)%len(s.pipes)].Give(context.Background(), conn) == nil {
			return true
		}
	}
	return false
}
