package http1_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/edgelimit/edge/proxy/http1"
)

// A lasting relay continues when its client disconnects, and ends the exchange once more after Relay has failed.
type lasting struct {
	relay
	plain
	gone chan func() // receives end when the client has disconnected
	err  chan error  // of Relay
}

func (l *lasting) Hasty() bool { return true }

func (l *lasting) Gone(end func()) bool {
	l.gone <- end
	return true
}

func (l *lasting) Serve(http1.Asker, *http1.Request) (*http1.Origin, http1.Relay) { return l.origin, l }

func (l *lasting) Relayed(err error) {
	if err == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("ending the exchange panics: %v", p)
		}
		l.err <- err
	}()
	(<-l.gone)()
}

// An exchange without its client may be ended at any time, even if its origin has closed the connection and can
// no longer be reached.
func TestEndOfLastingRelay(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	o := http1.NewOrigin(dialer(ln.Addr().String()), patience)
	defer o.Close()
	l := &lasting{relay: relay{o}, gone: make(chan func()), err: make(chan error)}
	client, err := net.Dial("tcp", serve(t, l))
	if err != nil {
		t.Fatal(err)
	}
	ask := func() {
		if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	ask()
	origin, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer origin.Close()
	requests := bufio.NewReader(origin)
	receive := func() {
		if _, err := http.ReadRequest(requests); err != nil {
			t.Fatal(err)
		}
	}
	receive()
	if _, err := io.WriteString(origin, "HTTP/1.1 204 No Content\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := http.ReadResponse(bufio.NewReader(client), nil); err != nil {
		t.Fatal(err)
	}
	ask()
	receive()
	client.Close()
	end := <-l.gone
	ln.Close()
	origin.Close()
	l.gone <- end
	relayed, ok := errors.AsType[*http1.RelayError](<-l.err)
	if !ok || !relayed.Client {
		t.Errorf("Relay: %v, want an error of the client", relayed)
	}
}
