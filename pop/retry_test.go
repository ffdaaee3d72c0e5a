package pop_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/edgelimit/edge/counter/shard"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/pop"
)

// A tiredListener fails for some time.
type tiredListener struct {
	net.Listener
	until time.Time
}

func (l tiredListener) Accept() (net.Conn, error) {
	if time.Now().Before(l.until) {
		return nil, errors.New("no memory")
	}
	return l.Listener.Accept()
}

// Connections that cannot be accepted now are accepted later. Until then, the errors are logged at a limited rate.
func TestConnectionsThatCannotBeAccepted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPiped(t, func(http.ResponseWriter, *http.Request) {}, func(*pop.Options) {})
		front := shard.NewPipe()
		if err := p.Serve(tiredListener{front, time.Now().Add(15 * time.Second)}); err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{DialContext: front.Dial}
		defer transport.CloseIdleConnections()
		start := time.Now()
		resp, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get("http://a.example/")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if took := time.Since(start); resp.StatusCode != http.StatusOK || took != 15*time.Second {
			t.Errorf("%s after %v, want 200 after 15s", resp.Status, took)
		}
		const want = "0s n1: cannot accept connections; retrying addr=pipe err=no memory unlogged=0\n" +
			"10s n1: cannot accept connections; retrying addr=pipe err=no memory unlogged=199\n"
		if log := p.log.take(); log != want {
			t.Errorf("log %q, want %q", log, want)
		}
	})
}
