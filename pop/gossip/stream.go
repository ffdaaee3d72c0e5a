package gossip

import (
	"errors"
	"io"
	"net"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/edgelimit/edge/proxy/conns"
)

// nodeBytes bounds the size of one node in the state that nodes exchange over TCP: its name, address and metadata.
const nodeBytes = 1 << 10

// minStateNodes is the minimum of MaxNodes for the size of a state.
const minStateNodes = 64

var errTooLarge = errors.New("gossip: the state is larger than that of a PoP of max_nodes nodes: raise max_nodes on " +
	"all nodes")

// A transport bounds the cost of TCP connections. memberlist alone would read up to 20 MB from each before it knows
// whether the other side has a key.
type transport struct {
	memberlist.Transport
	places   *conns.Budget // of accepted connections
	maxState int64         // bytes
	metrics  *metrics
	accepted chan net.Conn
	done     chan struct{} // closed by Shutdown
}

// newTransport opens the sockets of c.
func (g *Gossip) newTransport(c *memberlist.Config) (*transport, error) {
	o := &memberlist.NetTransportConfig{BindAddrs: []string{c.BindAddr}, BindPort: c.BindPort, Logger: c.Logger}
	inner, err := memberlist.NewNetTransport(o)
	for tries := 1; err != nil && c.BindPort == 0 && tries < 10; tries++ { // the port may be free for TCP alone
		inner, err = memberlist.NewNetTransport(o)
	}
	if err != nil {
		return nil, err
	}
	if c.BindPort == 0 {
		c.BindPort, c.AdvertisePort = inner.GetAutoBindPort(), inner.GetAutoBindPort()
	}
	t := &transport{
		Transport: g.o.wrap(inner), metrics: g.metrics,
		places:   conns.NewBudget(2*g.o.MaxNodes, 0, func(bool) { g.metrics.closed.WithLabelValues("too_many").Inc() }),
		maxState: 2 * nodeBytes * int64(max(g.o.MaxNodes, minStateNodes)),
		accepted: make(chan net.Conn), done: make(chan struct{}),
	}
	g.accepting.Go(t.accept)
	return t, nil
}

// accept passes connections to memberlist until Shutdown.
func (t *transport) accept() {
	for {
		select {
		case conn := <-t.Transport.StreamCh():
			s := t.wrap(t.places.Place(conn))
			select {
			case t.accepted <- s:
			case <-t.done:
				_ = s.Close()
			}
		case <-t.done:
			return
		}
	}
}

func (t *transport) StreamCh() <-chan net.Conn { return t.accepted }

func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	conn, err := t.Transport.DialTimeout(addr, timeout)
	if err != nil {
		return nil, err
	}
	return t.wrap(conn), nil
}

func (t *transport) Shutdown() error {
	defer close(t.done)
	return t.Transport.Shutdown()
}

func (t *transport) wrap(conn net.Conn) *stream {
	return &stream{Conn: conn, t: t, limited: io.LimitedReader{R: conn, N: t.maxState}}
}

// A stream is a connection that carries one message in each direction. memberlist sets deadlines of joinTimeout, one
// for reading and one for answering.
type stream struct {
	net.Conn
	t       *transport
	limited io.LimitedReader // reads from Conn
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.limited.Read(p)
	if err == io.EOF && s.limited.N == 0 {
		s.t.metrics.closed.WithLabelValues("too_large").Inc()
		err = errTooLarge
	}
	return n, err
}
