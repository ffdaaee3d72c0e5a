package gossip_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/pop/gossip"
)

// patience is how long a test waits before it fails. No test depends on its length.
const patience = 2 * time.Minute

// A node takes part in the gossip, and records what it receives.
type node struct {
	*gossip.Gossip
	name     string
	registry *prometheus.Registry
	wire     *wire

	mu       sync.Mutex
	messages map[string]int       // number of times each was received
	heard    func(message []byte) // called with each message; may be nil
	statuses map[string]string    // the last status of each sender
}

// A wire is a transport that loses packets, can be cut, and records what it sends.
type wire struct {
	memberlist.Transport
	mu       sync.Mutex
	loss     float64
	cut      map[string]bool // addresses that cannot be reached
	captured [][]byte        // packets that were sent
	capture  bool
	streams  chan net.Conn
	done     chan struct{}
	open     int // accepted connections
	most     int // ... at the same time
	longest  int // bytes read from one
}

func newWire(inner memberlist.Transport) *wire {
	w := &wire{Transport: inner, cut: map[string]bool{}, streams: make(chan net.Conn), done: make(chan struct{})}
	go func() {
		for {
			select {
			case conn := <-inner.StreamCh():
				w.set(func(w *wire) { w.open++; w.most = max(w.most, w.open) })
				select {
				case w.streams <- &accepted{Conn: conn, w: w}:
				case <-w.done:
				}
			case <-w.done:
				return
			}
		}
	}()
	return w
}

func (w *wire) StreamCh() <-chan net.Conn { return w.streams }

func (w *wire) Shutdown() error {
	defer close(w.done)
	return w.Transport.Shutdown()
}

// An accepted connection counts what is read from it.
type accepted struct {
	net.Conn
	w      *wire
	read   int
	closed sync.Once
}

func (a *accepted) Read(p []byte) (int, error) {
	n, err := a.Conn.Read(p)
	a.w.set(func(w *wire) { a.read += n; w.longest = max(w.longest, a.read) })
	return n, err
}

func (a *accepted) Close() error {
	a.closed.Do(func() { a.w.set(func(w *wire) { w.open-- }) })
	return a.Conn.Close()
}

var errCut = errors.New("the network is cut")

func (w *wire) WriteTo(b []byte, addr string) (time.Time, error) {
	w.mu.Lock()
	lost := w.cut[addr] || rand.Float64() < w.loss
	if w.capture {
		w.captured = append(w.captured, slices.Clone(b))
	}
	w.mu.Unlock()
	if lost {
		return time.Now(), nil
	}
	return w.Transport.WriteTo(b, addr)
}

func (w *wire) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	w.mu.Lock()
	lost := w.cut[addr] || rand.Float64() < w.loss
	w.mu.Unlock()
	if lost {
		return nil, errCut
	}
	return w.Transport.DialTimeout(addr, timeout)
}

func (w *wire) set(change func(*wire)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
}

func start(t testing.TB, name string, set func(*gossip.Options), join ...*node) *node {
	t.Helper()
	n := &node{name: name, registry: prometheus.NewRegistry(), messages: map[string]int{}, statuses: map[string]string{}}
	o := gossip.Options{
		Name:       name,
		Listen:     "127.0.0.1:0",
		Logger:     slog.New(slog.DiscardHandler),
		Registerer: n.registry,
	}
	for _, other := range join {
		o.Join = append(o.Join, other.Addr())
	}
	if set != nil {
		set(&o)
	}
	o = o.WithTransport(func(inner memberlist.Transport) memberlist.Transport {
		n.wire = newWire(inner)
		return n.wire
	})
	g, err := gossip.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Start(n.handler(), []byte("meta of "+name)); err != nil {
		t.Fatal(err)
	}
	n.Gossip = g
	t.Cleanup(func() {
		if n.Gossip != nil {
			_ = g.Stop() // fails if the others are gone
		}
	})
	return n
}

// handler returns a handler that records what n receives.
func (n *node) handler() gossip.Handler {
	return gossip.Handler{
		Receive: func(_ string, message []byte, _ time.Duration) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.messages[string(message)]++; n.heard != nil {
				n.heard(message)
			}
			return nil
		},
		Status: func() []byte { return []byte("status of " + n.name) },
		ReceiveStatus: func(from string, status []byte, _ bool) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.statuses[from] = string(status)
			return nil
		},
	}
}

// kill ends n as if its process had been killed.
func (n *node) kill() {
	n.wire.set(func(w *wire) { w.loss = 1 })
	_ = n.Stop() // the others do not notice that it leaves
	n.Gossip = nil
}

// startAll starts nodes that are peers of each other.
func startAll(t testing.TB, count int, set func(*gossip.Options)) (nodes []*node) {
	t.Helper()
	for i := range count {
		nodes = append(nodes, start(t, fmt.Sprint("n", i+1), set, nodes...))
	}
	whole(t, nodes)
	return nodes
}

// whole waits until nodes are peers of each other.
func whole(t testing.TB, nodes []*node) {
	t.Helper()
	eventually(t, "all are peers", func() bool {
		for _, n := range nodes {
			if len(n.Peers()) != len(nodes)-1 {
				return false
			}
		}
		return true
	})
}

func (n *node) received() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.messages)
}

// times returns the number of times that message was received.
func (n *node) times(message []byte) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.messages[string(message)]
}

// eventually waits until ok returns true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	harness.Until(t, what, patience, 5*time.Millisecond, ok)
}

// metric returns the value of a metric with at most one label.
func (n *node) metric(t *testing.T, name, label string) float64 {
	t.Helper()
	families, err := n.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name && (label == "" || m.Label[0].GetValue() == label) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("there is no metric %s %s", name, label)
	return 0
}

// numbered returns the ith message, of the length of a mitigation record.
func numbered(i int) []byte {
	return binary.BigEndian.AppendUint32(make([]byte, 88), uint32(i))
}
