package pop

import (
	"log/slog"
	"net"
	"sync"
)

// A spreader gives each connection of a listener to another one of its ways, in turn, as
// the routers of a PoP do. A connection is handed over as it is, so that its node sees
// the client itself.
type spreader struct {
	ln   net.Listener
	ways []*way
}

// newSpreader spreads the connections of ln over n ways.
func newSpreader(ln net.Listener, n int, logger *slog.Logger) *spreader {
	s := &spreader{ln: &steadyListener{Listener: ln, logger: logger}}
	for range n {
		s.ways = append(s.ways, &way{addr: ln.Addr(), conns: make(chan net.Conn), closed: make(chan struct{})})
	}
	return s
}

// run accepts connections until the listener is closed, then closes the ways.
func (s *spreader) run() {
	defer func() {
		for _, w := range s.ways {
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

// give hands conn to the ith way, or to the next that is open.
func (s *spreader) give(conn net.Conn, i int) bool {
	for j := range s.ways {
		w := s.ways[(i+j)%len(s.ways)]
		select {
		case <-w.closed:
			continue
		default:
		}
		select {
		case w.conns <- conn:
			return true
		case <-w.closed:
		}
	}
	return false
}

// A way is the listener of one node.
type way struct {
	addr   net.Addr
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (w *way) Accept() (net.Conn, error) {
	select {
	case conn := <-w.conns:
		return conn, nil
	case <-w.closed:
		return nil, net.ErrClosed
	}
}

func (w *way) Close() error {
	w.once.Do(func() { close(w.closed) })
	return nil
}

func (w *way) Addr() net.Addr { return w.addr }
