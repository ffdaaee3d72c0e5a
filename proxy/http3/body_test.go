package http3_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgelimit/edge/proxy/http1"
	"github.com/edgelimit/edge/proxy/http2"
	"github.com/edgelimit/edge/proxy/http2/http2test"
	"github.com/edgelimit/edge/proxy/http3"
)

// A stopped handler waits for a body although it was told to stop.
type stopped struct{ *handler }

func (stopped) Serve(s http1.Asker, r *http1.Request) (*http1.Origin, http1.Relay) {
	var stop atomic.Bool
	stop.Store(true)
	n, err := s.(http1.Client).Await(time.Time{}, &stop)
	s.Answer(200, nil, fmt.Sprint(n, err))
	return nil, nil
}

// In no engine does Await wait if it is told to stop just before. Otherwise, the end of an exchange would wait for its
// client.
func TestStopBeforeAwait(t *testing.T) {
	addr, _, _ := start(t, func(o *http3.Options) { o.Handler = stopped{} })
	s := send(t, dial(t, addr), post, false)
	_ = s.SetReadDeadline(time.Now().Add(time.Minute))
	if got, err := io.ReadAll(s); !strings.HasSuffix(string(got), "0 <nil>") {
		t.Errorf("HTTP/3: %q, %v, want no bytes and no error", got, err)
	}
	o := http1.Options{Handler: stopped{}, Limits: http1.Limits{ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10, MaxStreams: 128, MaxOverhead: 1000}}
	one, two := http1.NewServer(o), http2.NewServer(o)
	for version, accept := range map[int]func(net.Conn, http1.Start) func(){1: one.Accept, 2: two.Accept} {
		tr := &http.Transport{Protocols: new(http.Protocols), DialContext: http2test.Dial(func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go accept(far, http1.Start{Since: time.Now()})()
			return near, nil
		})}
		tr.Protocols.SetHTTP1(version == 1)
		tr.Protocols.SetUnencryptedHTTP2(version == 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		body, _ := io.Pipe() // nothing comes
		r, err := http.NewRequestWithContext(ctx, "POST", "http://a.example", body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(r)
		if err != nil {
			t.Fatalf("HTTP/%d: %v", version, err)
		}
		if got, err := io.ReadAll(resp.Body); string(got) != "0 <nil>" {
			t.Errorf("HTTP/%d: %q, %v, want no bytes and no error", version, got, err)
		}
		_ = body.Close()
		tr.CloseIdleConnections()
	}
}
