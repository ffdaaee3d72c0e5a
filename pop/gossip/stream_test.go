package gossip_test

import (
	"bytes"
	"compress/lzw"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

const (
	maxState   = 128 << 10 // for up to 64 nodes
	maxStreams = 32        // for 16 nodes
)

// announced begins an encrypted message of n bytes.
func announced(n int) []byte { return binary.BigEndian.AppendUint32([]byte{10}, uint32(n)) }

// seal encrypts a message as memberlist does.
func seal(t *testing.T, with, plain []byte) []byte {
	t.Helper()
	block, err := aes.NewCipher(with)
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	nonce := make([]byte, 12)
	head := announced(1 + len(nonce) + len(plain) + gcm.Overhead())
	return gcm.Seal(append(append(bytes.Clone(head), 1), nonce...), nonce, plain, head)
}

// message encodes a message of memberlist.
func message(t *testing.T, kind byte, v any) []byte {
	t.Helper()
	b := bytes.NewBuffer([]byte{kind})
	if err := codec.NewEncoder(b, &codec.MsgpackHandle{}).Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func state(t *testing.T, nodes, user int) []byte {
	return message(t, 6, map[string]any{"Nodes": nodes, "UserStateLen": user, "Join": true})
}

// bomb returns a message whose content is compressed from 40 MB.
func bomb(t *testing.T) []byte {
	var b bytes.Buffer
	w := lzw.NewWriter(&b, lzw.LSB, 8)
	if _, err := w.Write(make([]byte, 40<<20)); err != nil {
		t.Fatal(err)
	}
	w.Close()
	return message(t, 9, map[string]any{"Algo": 0, "Buf": b.Bytes()})
}

// While a hundred connections send 20 MB each, nodes join and hear each other. No more is read from a connection than
// the state of a PoP takes, and from no more connections than it needs.
func TestFloodOfState(t *testing.T) {
	t.Parallel()
	rest := make([]byte, 20<<20)
	long := bytes.Repeat([]byte{0xff}, 20<<20)
	for name, test := range map[string]struct {
		keys [][]byte
		sent []byte // before the rest
		rest []byte
	}{
		"encrypted":                   {[][]byte{key(1)}, announced(20 << 20), rest},
		"as long as possible":         {[][]byte{key(1)}, announced(maxState - 5), rest},
		"not encrypted":               {[][]byte{key(1)}, state(t, 1<<20, 0), rest},
		"without a key":               {nil, state(t, 1<<20, 0), rest},
		"without a key, a long name":  {nil, append(append(state(t, 1, 0), 0x81, 0xa4), "Name\xdb\x01\x40\x00\x00"...), long},
		"without a key, a user state": {nil, state(t, 0, 20<<20), rest},
		"without a key, a message":    {nil, message(t, 8, map[string]any{"UserMsgLen": 20 << 20}), rest},
		"without a key, compressed":   {nil, bomb(t), nil},
		"a label":                     {nil, append([]byte{244, 255}, rest[:255]...), rest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := startAll(t, 2, withKeys(test.keys...))
			addr := nodes[0].Addr()
			var flood sync.WaitGroup
			for range 100 {
				flood.Go(func() {
					conn, err := net.Dial("tcp", addr)
					if err != nil {
						return // no room in the backlog
					}
					defer conn.Close()
					_, _ = conn.Write(test.sent)
					_, _ = conn.Write(test.rest)
					_, _ = io.Copy(io.Discard, conn) // until the node closes it
				})
			}
			nodes = append(nodes, start(t, "n3", withKeys(test.keys...), nodes[0]))
			flood.Wait()
			whole(t, nodes)
			nodes[2].Send([]byte("hello"))
			eventually(t, "a message is received", func() bool { return nodes[0].received() == 1 })
			nodes[0].wire.set(func(w *wire) {
				if w.longest > maxState || w.most > maxStreams+2 { // two may be on the way
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
		if w.most > maxStreams+2 { // two may be on the way
			t.Errorf("%d connections were open, want at most %d", w.most, maxStreams)
		}
	})
}

// What memberlist would need much memory for is refused, even if it is encrypted with the right key.
func TestRefusedMessages(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		message []byte
		cause   string
	}{
		"another key":            {seal(t, key(2), state(t, 1, 0)), "stranger"},
		"no encryption":          {state(t, 1, 0), "stranger"},
		"a label":                {append([]byte{244, 1, 'a'}, seal(t, key(1), state(t, 1, 0))...), "stranger"},
		"an empty message":       {announced(0), "stranger"},
		"a long message":         {announced(maxState), "too_large"},
		"many nodes":             {seal(t, key(1), state(t, 1<<20, 0)), "too_large"},
		"fewer than no nodes":    {seal(t, key(1), state(t, -1, 0)), "too_large"},
		"a user state":           {seal(t, key(1), state(t, 0, 20<<20)), "malformed"},
		"a message":              {seal(t, key(1), message(t, 8, map[string]any{"UserMsgLen": 20 << 20})), "malformed"},
		"a compressed message":   {seal(t, key(1), bomb(t)), "malformed"},
		"half a header of state": {seal(t, key(1), state(t, 1, 0)[:5]), "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := start(t, "n1", withKeys(key(1)))
			conn, err := net.Dial("tcp", n.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write(test.message); err != nil {
				t.Fatal(err)
			}
			eventually(t, fmt.Sprintf("%s is refused as %s", name, test.cause), func() bool {
				return n.metric(t, "edge_gossip_connections_refused_total", test.cause) == 1
			})
		})
	}
}
