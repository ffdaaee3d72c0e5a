package gossip

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"
)

// nodeBytes is more than one node takes in the state that nodes exchange over TCP: its name, address and metadata.
const nodeBytes = 1 << 10

// minStateNodes is the number of nodes for which a state may always have room.
const minStateNodes = 64

// Why a TCP connection is refused.
var (
	errTooMany  = errors.New("gossip: too many connections")
	errTooLarge = errors.New("gossip: the state is larger than that of a PoP of max-nodes nodes: raise max-nodes on all nodes")
	errStranger = errors.New("gossip: not encrypted with a key of this node")
	errUnusable = errors.New("gossip: not a message that nodes send over TCP")
)

// A transport bounds what TCP connections may cost. memberlist itself reads 20 MB from every connection, and expands
// compressed messages to 40.
type transport struct {
	memberlist.Transport
	keyring    *memberlist.Keyring // nil without encryption
	maxStreams int
	maxState   int64 // bytes
	metrics    *metrics
	accepted   chan net.Conn
	done       chan struct{}

	mu      sync.Mutex
	streams []*stream // accepted ones, oldest first
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
		Transport: g.o.wrap(inner), keyring: g.keyring, metrics: g.metrics,
		maxStreams: 2 * g.o.MaxNodes,
		maxState:   2 * nodeBytes * int64(max(g.o.MaxNodes, minStateNodes)),
		accepted:   make(chan net.Conn), done: make(chan struct{}),
	}
	g.accepting.Go(t.accept)
	return t, nil
}

// accept passes connections to memberlist until Shutdown.
func (t *transport) accept() {
	for {
		select {
		case conn := <-t.Transport.StreamCh():
			s := t.admit(conn)
			if s == nil {
				_ = conn.Close()
				continue
			}
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

// admit returns the stream of an accepted connection. If there are too many, it closes the oldest of the address that
// has most, among those that have not sent a message encrypted with a key of this node. It returns nil if all have.
func (t *transport) admit(conn net.Conn) *stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.streams) >= t.maxStreams {
		t.metrics.closed[errTooMany].Inc()
		held := map[netip.Addr]int{}
		for _, s := range t.streams {
			held[s.peer()]++
		}
		var leaves *stream
		for _, s := range t.streams {
			if !s.authentic && (leaves == nil || held[s.peer()] > held[leaves.peer()]) {
				leaves = s
			}
		}
		if leaves == nil {
			return nil
		}
		t.forgetLocked(leaves)
		_ = leaves.Conn.Close()
	}
	s := t.wrap(conn)
	t.streams = append(t.streams, s)
	return s
}

func (t *transport) forgetLocked(s *stream) {
	t.streams = slices.DeleteFunc(t.streams, func(other *stream) bool { return other == s })
}

// A stream is a connection that carries one message in each direction. It passes on a message only if memberlist needs
// little memory for it. memberlist sets deadlines of joinTimeout, one for reading and one for answering.
type stream struct {
	net.Conn
	t         *transport
	limited   io.LimitedReader // reads from Conn
	checked   io.Reader        // what Read returns; nil before the message was checked
	authentic bool             // guarded by t.mu
}

func (s *stream) peer() netip.Addr {
	addr, _ := netip.ParseAddrPort(s.RemoteAddr().String())
	return addr.Addr()
}

func (s *stream) Close() error {
	err := s.Conn.Close()
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.t.forgetLocked(s)
	return err
}

func (s *stream) Read(p []byte) (n int, err error) {
	if s.checked == nil {
		if s.checked, err = s.check(); err != nil {
			if refused := s.t.metrics.closed[err]; refused != nil {
				refused.Inc()
			}
			return 0, err
		}
	}
	return s.checked.Read(p)
}

// check reads as much of a message as it takes to know that it is harmless, and returns a reader of the whole message.
func (s *stream) check() (io.Reader, error) {
	var head bytes.Buffer
	rest := bufio.NewReader(&s.limited)
	message := io.TeeReader(rest, &head)
	if s.t.keyring != nil {
		plain, err := s.decrypt(message)
		if err != nil {
			return nil, err
		}
		s.t.mu.Lock()
		s.authentic = true
		s.t.mu.Unlock()
		message = bytes.NewReader(plain)
	}
	if err := s.t.checkPlain(message); err != nil {
		return nil, err
	}
	return io.MultiReader(&head, rest), nil
}

// Types of memberlist's messages. Nodes use neither labels nor compression, nor send anything else over TCP.
const (
	pingMessage    = 0
	ackMessage     = 2
	stateMessage   = 6
	sealedMessage  = 10
	failureMessage = 13
)

// decrypt reads an encrypted message: its type, length and version, a nonce, and what AES-GCM has sealed.
func (s *stream) decrypt(from io.Reader) ([]byte, error) {
	const version, nonce = 1, 12
	var head [5]byte
	if _, err := io.ReadFull(from, head[:1]); err != nil {
		return nil, err
	}
	if head[0] != sealedMessage {
		return nil, errStranger
	}
	if _, err := io.ReadFull(from, head[1:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if int64(size) > s.t.maxState-int64(len(head)) {
		return nil, errTooLarge
	}
	sealed := make([]byte, size)
	if _, err := io.ReadFull(from, sealed); err != nil {
		return nil, err
	}
	if size <= 1+nonce || sealed[0] != version {
		return nil, errStranger
	}
	for _, key := range s.t.keyring.GetKeys() {
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err // checkKeys accepted it
		}
		gcm, err := cipher.NewGCM(block)
		if err != nil {
			return nil, err
		}
		if plain, err := gcm.Open(nil, sealed[1:1+nonce], sealed[1+nonce:], head[:]); err == nil {
			return plain, nil
		}
	}
	return nil, errStranger
}

// checkPlain reads the beginning of a message. memberlist allocates memory for all nodes that a state announces.
func (t *transport) checkPlain(from io.Reader) error {
	var kind [1]byte
	if _, err := io.ReadFull(from, kind[:]); err != nil {
		return err
	}
	switch kind[0] {
	case pingMessage, ackMessage, failureMessage:
		return nil
	case stateMessage:
		const minNode = 64 // bytes, of which the names of fields take 42
		var state struct {
			Nodes, UserStateLen int
			Join                bool
		}
		if codec.NewDecoder(from, &codec.MsgpackHandle{}).Decode(&state) != nil || state.UserStateLen != 0 {
			return errUnusable
		}
		if state.Nodes < 0 || int64(state.Nodes) > t.maxState/minNode {
			return errTooLarge
		}
		return nil
	}
	return errUnusable
}
