package http2_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/proxy/http1"
	"github.com/edgelimit/edge/proxy/http2"
)

// A learning relay continues when its client does not send the rest, and learns the status.
type learning struct {
	plain
	origin *http1.Origin
	status chan int
	err    chan error // of Relay
}

func (l learning) Hasty() bool      { return true }
func (l learning) Gone(func()) bool { return true }

func (l learning) Answered(dst []byte, a *http1.Answer) ([]byte, bool) {
	l.status <- a.Status
	return dst, false
}

func (l learning) Malformed(_ netip.Addr, err *http1.Error) (fields []byte, status int, body string, end bool) {
	return explain(err)
}

func (l learning) Serve(http1.Asker, *http1.Request) (*http1.Origin, http1.Relay) { return l.origin, l }

func (l learning) Relayed(err error) { l.err <- err }

// A stopping body ends the request before its last byte.
type stopping struct {
	begun bool
	asked chan struct{}
	leave func()
}

func (s *stopping) Read(p []byte) (int, error) {
	if !s.begun {
		s.begun = true
		return copy(p, "wron"), nil
	}
	<-s.asked
	s.leave()
	return 0, io.ErrUnexpectedEOF
}

// If a client leaves before the last byte of its body, the origin learns that the body has ended, whatever it speaks, and the
// node gets its answer. But an origin that speaks HTTP/2 could not tell the end of a stream without a length from that of the
// body, so the node only waits for its answer. No origin takes the request for a whole one.
func TestIncompleteRequestsAreAnswered(t *testing.T) {
	for _, protocol := range []string{"http", "https", "h2c", "h2"} {
		asked, over := make(chan struct{}), make(chan struct{}, 1)
		origin := startOrigin(t, protocol, func(w http.ResponseWriter, r *http.Request) {
			asked <- struct{}{}
			var body [4]byte
			_, _ = io.ReadFull(r.Body, body[:])
			if r.ProtoMajor == 2 && r.ContentLength < 0 {
				_ = http.NewResponseController(w).Flush()
			}
			if rest, err := io.ReadAll(r.Body); string(body[:]) != "wron" || len(rest) > 0 || err == nil {
				t.Errorf("%s: the origin reads %q, %q, %v", protocol, body, rest, err)
			}
			w.WriteHeader(http.StatusUnauthorized)
			over <- struct{}{}
		})
		t.Cleanup(origin.Close)
		l := learning{origin: origin, status: make(chan int), err: make(chan error)}
		limits := http1.Limits{ReadHeaderTimeout: patience, IdleTimeout: patience, BodyTimeout: patience, MaxHeaderBytes: 64 << 10, MaxStreams: 128, MaxOverhead: 1000}
		one := http1.NewServer(http1.Options{Handler: l, Limits: limits})
		two := http2.NewServer(http1.Options{Handler: l, Limits: limits})
		for version, serve := range map[int]func(net.Conn, http1.Start) func(){1: one.Accept, 2: two.Accept} {
			for _, length := range []int64{5, -1} {
				tr := &http.Transport{Protocols: new(http.Protocols)}
				tr.Protocols.SetHTTP1(version == 1)
				tr.Protocols.SetUnencryptedHTTP2(version == 2)
				tr.DialContext = func(context.Context, string, string) (net.Conn, error) { return connect(t, serve), nil }
				ctx, leave := context.WithCancel(t.Context())
				r, err := http.NewRequestWithContext(ctx, "POST", "http://a.example", &stopping{asked: asked, leave: leave})
				if err != nil {
					t.Fatal(err)
				}
				r.ContentLength = length
				left := make(chan error)
				go func() {
					_, err := tr.RoundTrip(r)
					left <- err
				}()
				status, want := <-l.status, 401
				if strings.HasPrefix(protocol, "h2") && length < 0 {
					want = 200
				}
				err = <-l.err
				select {
				case <-over:
				case <-time.After(patience):
					t.Fatalf("%s: the origin still waits for the rest", protocol)
				}
				if name := fmt.Sprintf("%s, HTTP/%d, length %d", protocol, version, length); status != want || !errors.Is(err, http1.ErrWithheld) || <-left == nil {
					t.Errorf("%s: the origin answers %d, Relay returns %v", name, status, err)
				}
				tr.CloseIdleConnections()
			}
		}
	}
}
