package proxy_test

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/edgelimit/edge/proxy/http1"
)

// A faultyListener returns connections whose address or first data makes the node panic, like a bug in parsing them.
type faultyListener struct {
	net.Listener
	inAddress bool
}

func (l faultyListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return faultyConn{c, l.inAddress}, err
}

type faultyConn struct {
	net.Conn
	inAddress bool
}

func (c faultyConn) Read([]byte) (int, error) { panic("a bug in reading") }

func (c faultyConn) RemoteAddr() net.Addr {
	if c.inAddress {
		panic("a bug in the address")
	}
	return c.Conn.RemoteAddr()
}

// A panic before the protocol is known closes that connection only, and is logged.
func TestPanicBeforeProtocol(t *testing.T) {
	for _, inAddress := range []bool{false, true} {
		p, log := newProxy(t, noRules, "http://127.0.0.1:1", nil)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		runFront(t, p, faultyListener{ln, inAddress}, http1.Options{Handler: p})
		for range 2 {
			c, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("the client reads: %v, want %v", err, io.EOF)
			}
			_ = c.Close()
		}
		if got := strings.Count(log.String(), "panic while opening a connection"); got != 2 {
			t.Errorf("%d panics are logged, want 2", got)
		}
	}
}
