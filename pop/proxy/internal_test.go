package proxy

import (
	"net"
	"testing"
	"time"

	"github.com/edgelimit/edge/pop/http1"
)

// RelayBy makes the engine connect to o with dial.
func (o *Origin) RelayBy(dial func() (net.Conn, error)) {
	o.relayed = http1.NewOrigin(dial, time.Minute)
}

// Clients are never told to wait for less than they have to, and never for 0 s.
func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		-time.Second: 1, 0: 1, 1: 1, time.Second: 1, time.Second + 1: 2, 90 * time.Second: 90,
	} {
		if got := seconds(d); got != want {
			t.Errorf("seconds(%v) = %d, want %d", d, got, want)
		}
	}
}
