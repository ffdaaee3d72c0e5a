package http3_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/edgelimit/edge/proxy/http1"
	"github.com/edgelimit/edge/proxy/http2"
	"github.com/edgelimit/edge/proxy/http2/http2test"
	"github.com/edgelimit/edge/proxy/http3"
)

// A taking handler answers with the body of the request. It sends a value to took after each part.
type taking struct {
	*handler
	took chan struct{}
}

func (h taking) Serve(s http1.Asker, _ *http1.Request) (*http1.Origin, http1.Relay) {
	client, body := s.(http1.Client), ""
	for {
		data, _, ended, err := client.Take()
		body += string(data)
		h.took <- struct{}{}
		if err == nil && len(data) == 0 && !ended {
			_, err = client.Await(time.Time{}, new(atomic.Bool))
		}
		if err != nil {
			return nil, nil
		}
		if ended {
			s.Answer(200, nil, body)
			return nil, nil
		}
	}
}

// What arrives after the bytes that Content-Length announces belongs to the request until its stream ends.
func TestAfterContentLength(t *testing.T) {
	five, none := strings.Replace(post, "\x08", "\x0b", 1)+"\x54\x015\x00\x05hello", strings.Replace(post, "\x08", "\x0b", 1)+"\x54\x010"
	for _, tt := range []struct {
		name, first, then string
		want              any
	}{
		{"the end", five, "", "hello"},
		{"the end without a body", none, "", ""},
		{"an unknown frame", five, "\x21\x01g\x00\x00", "hello"},
		{"trailers", five, "\x01\x08\x00\x00\x23x-a\x01b", "hello"},
		{"data", five, "\x00\x01!", quic.StreamErrorCode(0x10e)},
		{"data without a body", none, "\x00\x01!", quic.StreamErrorCode(0x10e)},
		{"data without a body in one packet", none + "\x00\x01!", "", quic.StreamErrorCode(0x10e)},
		{"a frame that is not allowed", five, "\x02\x00", quic.ApplicationErrorCode(0x105)},
		{"a truncated frame", five, "\x21", quic.ApplicationErrorCode(0x106)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			took := make(chan struct{}, 100)
			addr, _, _ := start(t, func(o *http3.Options) { o.Handler = taking{&handler{make(chan netip.Addr, 100)}, took} })
			s := send(t, dial(t, addr), tt.first, tt.then == "")
			<-took
			_, _ = io.WriteString(s, tt.then)
			_ = s.Close()
			answer, err := io.ReadAll(s)
			var got any
			if e, ok := errors.AsType[*quic.StreamError](err); ok {
				got = e.ErrorCode
			} else if e, ok := errors.AsType[*quic.ApplicationError](err); ok {
				got = e.ErrorCode
			}
			if body, ok := tt.want.(string); got != tt.want && (!ok || err != nil || !strings.HasSuffix(string(answer), body)) {
				t.Errorf("%q, %v; want %v", answer, err, tt.want)
			}
		})
	}
}

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
