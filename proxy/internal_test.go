package proxy

import (
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/gaissmai/bart"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/proxy/http1"
)

// RelayBy makes the engine connect to o with dial.
func (o *Origin) RelayBy(dial func() (net.Conn, error)) {
	o.relayed = http1.NewOrigin(dial, time.Minute)
}

// Retry-After is never less than a client has to wait, and never 0.
func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		-time.Second: 1, 0: 1, 1: 1, time.Second: 1, time.Second + 1: 2, 90 * time.Second: 90,
	} {
		if got := seconds(d); got != want {
			t.Errorf("seconds(%v) = %d, want %d", d, got, want)
		}
	}
}

// If the process may open fewer files than there may be connections, one client may not use all that are left.
func TestConnectionsAreBoundedByFiles(t *testing.T) {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	few := before
	few.Cur = 800
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	c := newConnections(&Options{Connections: 1 << 16, ClientConnections: 1 << 15, Registerer: prometheus.NewRegistry()})
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	p := &Proxy{connections: c, trusted: new(bart.Lite)}
	for range 400 {
		near, _ := net.Pipe()
		p.addConnection(near, netip.MustParseAddr("192.0.2.1"))
	}
	if n := c.places.Bytes(); c.max != 700 || n != 350 {
		t.Errorf("%d connections, %d of a client, want 700 and 350", c.max, n)
	}
}
