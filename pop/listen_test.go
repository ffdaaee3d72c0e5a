package pop

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/proxy/conns"
)

// A full listener has no file for a connection until room is made.
type full struct {
	net.Listener
	err  error
	room chan net.Conn
}

func (f *full) Accept() (net.Conn, error) {
	select {
	case conn := <-f.room:
		return conn, nil
	default:
		return nil, &net.OpError{Op: "accept", Err: f.err}
	}
}

func (f *full) Addr() net.Addr { return nil }

// If the process is out of files, a connection of the client with the most makes room for a newcomer. Other errors cost
// nobody a connection.
func TestAcceptMakesRoom(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{syscall.EMFILE, "the first of two"},
		{errors.New("busy"), ""},
	} {
		bubble.Test(t, func(t *testing.T) {
			newcomer, _ := net.Pipe()
			ln := &full{err: test.err, room: make(chan net.Conn, 1)}
			budget, closed := conns.NewBudget(0, 0, func(bool) {}), ""
			hold := func(name, client string) {
				h := budget.Holder(closer(func() {
					closed += name
					ln.room <- newcomer
				}), netip.MustParseAddr(client))
				h.Hold(1)
			}
			hold("the only one", "192.0.2.1")
			hold("the first of two", "192.0.2.2")
			hold("the second of two", "192.0.2.2")
			accepted := make(chan net.Conn)
			go func() {
				conn, err := newRetryListener(ln, slog.New(slog.DiscardHandler), budget.Relieve).Accept()
				if err != nil {
					t.Error(err)
				}
				accepted <- conn
			}()
			if test.want == "" {
				synctest.Wait() // Accept has failed
				ln.room <- newcomer
			}
			if conn := <-accepted; conn != newcomer || closed != test.want {
				t.Errorf("after %v, %q was closed for %v, want %q", test.err, closed, conn, test.want)
			}
		})
	}
}

type closer func()

func (c closer) Close() error {
	c()
	return nil
}
