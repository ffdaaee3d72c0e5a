package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/edgelimit/edge/pop/http1"
	"github.com/edgelimit/edge/pop/proxy"
)

// A looped is a connection in memory, on which a request comes with each Read while there is a next
// one, and whatever is written is answered. Nothing of it is shared, so that with -cpu 1,2,4,8,16 a
// benchmark tells what the requests of different connections share.
type looped struct {
	net.Conn // nil
	next     func() bool
	sends    string
}

func (l *looped) Read(p []byte) (int, error) {
	if !l.next() {
		return 0, io.EOF
	}
	return copy(p, l.sends), nil
}

func (l *looped) Write(p []byte) (int, error)      { return len(p), nil }
func (l *looped) Close() error                     { return nil }
func (l *looped) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
func (l *looped) SetReadDeadline(time.Time) error  { return nil }
func (l *looped) SetWriteDeadline(time.Time) error { return nil }

// BenchmarkEngine takes requests from the first byte of their head to the last of their answer, but
// for the system calls.
func BenchmarkEngine(b *testing.B) {
	for name, threshold := range map[string]int{"refuse": 1, "pass": 1 << 40} {
		rules := fmt.Sprintf("rules: [{id: all, characteristics: [ip], limits: [{threshold: %d, period: 1h}]}]", threshold)
		b.Run(name, func(b *testing.B) {
			origin := serve(b, http.HandlerFunc(ok))
			answers := func(context.Context) (net.Conn, error) {
				return &looped{next: func() bool { return true }, sends: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"}, nil
			}
			p, _ := newProxy(b, rules, origin.URL, func(o *proxy.Options) { o.Origins.Default.RelayBy(answers) })
			s := http1.NewServer(http1.Options{Handler: p, ReadHeaderTimeout: time.Hour, IdleTimeout: time.Hour, MaxHeaderBytes: 1 << 16})
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				ended := make(chan struct{})
				client := &looped{next: pb.Next, sends: "GET /a?b=c HTTP/1.1\r\nHost: a.example\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n"}
				s.ServeConn(client, http1.Start{Ended: func() { close(ended) }})
				<-ended
			})
		})
	}
}
