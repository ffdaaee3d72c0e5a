package gossip_test

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
)

const (
	maxState   = 128 << 10 // for up to 64 nodes
	maxStreams = 32        // for 16 nodes
)

// announced begins an encrypted message of n bytes.
func announced(n int) []byte { return binary.BigEndian.AppendUint32([]byte{10}, uint32(n)) }

// While a hundred connections send 20 MB each, nodes join and hear each other. No more is read from a connection than
// the state of a PoP takes, and from no more connections than it needs.
func TestFloodOfState(t *testing.T) {
	t.Parallel()
	rest := make([]byte, 20<<20)
	for name, sent := range map[string][]byte{
		"more than a state":   announced(20 << 20),
		"as long as possible": announced(maxState - 5),
		"no length":           make([]byte, 5),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := startAll(t, 2, withKeys(key(1)))
			addr := nodes[0].Addr()
			var flood sync.WaitGroup
			for range 100 {
				flood.Go(func() {
					conn, err := net.Dial("tcp", addr)
					if err != nil {
						return // no room in the backlog
					}
					defer conn.Close()
					_, _ = conn.Write(sent)
					_, _ = conn.Write(rest)
					_, _ = io.Copy(io.Discard, conn) // until the node closes it
				})
			}
			nodes = append(nodes, start(t, "n3", withKeys(key(1)), nodes[0]))
			flood.Wait()
			whole(t, nodes)
			nodes[2].Send([]byte("hello"))
			eventually(t, "a message is received", func() bool { return nodes[0].received() == 1 })
			nodes[0].wire.set(func(w *wire) {
				if w.longest > maxState || w.most > 2*maxStreams { // some are still closing
					t.Errorf("%d bytes read from one of %d connections, want at most %d from %d", w.longest, w.most, maxState, maxStreams)
				}
			})
		})
	}
}

// Connections that send nothing make room for nodes.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	nodes := startAll(t, 1, withKeys(key(1)))
	for range 4 * maxStreams {
		conn, err := net.Dial("tcp", nodes[0].Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	nodes = append(nodes, start(t, "n2", withKeys(key(1)), nodes[0]))
	whole(t, nodes)
	nodes[0].wire.set(func(w *wire) {
		if w.most > 2*maxStreams { // some are still closing
			t.Errorf("%d connections were open, want at most %d", w.most, maxStreams)
		}
	})
}
