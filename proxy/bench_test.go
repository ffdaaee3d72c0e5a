package proxy_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/edgelimit/edge/proxy"
	"github.com/edgelimit/edge/proxy/http1"
	"github.com/edgelimit/edge/proxy/http2"
)

// A looped is a connection in memory: each Read returns sends while next returns true, and each Write
// succeeds. Looped connections share nothing, so with -cpu 1,2,4,8,16 a benchmark shows what the
// requests of different connections share.
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

// A framed is a looped connection for HTTP/2: eight requests come with each Read.
type framed struct {
	looped
	blocks   [2]string // the first request, and all others
	requests uint32
	buf      bytes.Buffer // is read next
}

func (f *framed) Read(p []byte) (int, error) {
	if f.buf.Len() > 0 {
		return f.buf.Read(p)
	}
	if f.requests == 0 {
		f.buf.WriteString(xhttp2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + // SETTINGS
			"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x7f\x00\x00\x00") // WINDOW_UPDATE
	}
	for n := 0; n < 8 && f.next(); n++ {
		at := f.buf.Len()
		f.buf.WriteString(f.blocks[min(f.requests, 1)])
		binary.BigEndian.PutUint32(f.buf.Bytes()[at+5:], 2*f.requests+1)
		f.requests++
	}
	return f.buf.Read(p)
}

// headerBlocks returns the HEADERS frames of a connection: the first one, and all others.
func headerBlocks() (blocks [2]string) {
	var block bytes.Buffer
	hp := hpack.NewEncoder(&block)
	for i := range blocks {
		block.Reset()
		for _, f := range []string{":method GET", ":scheme http", ":authority a.example", ":path /a?b=c", "user-agent bench", "accept */*", "origin https://b.a.example"} {
			name, value, _ := strings.Cut(f, " ")
			_ = hp.WriteField(hpack.HeaderField{Name: name, Value: value})
		}
		blocks[i] = fmt.Sprintf("\x00\x00%c\x01\x05\x00\x00\x00\x00%s", block.Len(), &block)
	}
	return blocks
}

// aRequest is the request that looped connections send.
const aRequest = "GET /a?b=c HTTP/1.1\r\nHost: a.example\r\nUser-Agent: bench\r\nAccept: */*\r\nOrigin: https://b.a.example\r\n\r\n"

// serverOf returns an HTTP/1.1 engine for p.
func serverOf(p *proxy.Proxy) *http1.Server {
	return http1.NewServer(http1.Options{Handler: p, Limits: http1.Limits{ReadHeaderTimeout: time.Hour, IdleTimeout: time.Hour, MaxHeaderBytes: 1 << 16}})
}

// Telling a refused client about several limits allocates nothing.
func TestFieldsAllocateNothing(t *testing.T) {
	if byHTTP2 || byHTTP3 {
		return // it does not depend on the client
	}
	const refusals = 2000 // so that chance matters little
	allocated := func(limits string) float64 {
		p, _ := newProxy(t, "rules: [{id: all, characteristics: [ip], "+limits+"}]", serve(t, http.HandlerFunc(ok)).URL, nil)
		url := serveProxy(t, p)
		exceed(t, client(t), func() *http.Request { return newRequest(t, "GET", url, nil) })
		s := serverOf(p)
		least := math.Inf(1) // the race detector empties pools at random
		for range 10 {
			least = min(least, testing.AllocsPerRun(1, func() {
				left := refusals
				s.Accept(&looped{sends: aRequest, next: func() bool { left--; return left >= 0 }}, http1.Start{})()
			}))
		}
		return least
	}
	one := allocated(oneLimit)
	for name, more := range map[string]string{"several limits": severalLimits, "fields of the response": oneLimit + fields} {
		if n := allocated(more); n > one+refusals/2 {
			t.Errorf("%d refusals allocate %v times with %s, %v times without", refusals, n, name, one)
		}
	}
}

const (
	oneLimit      = "limits: [{threshold: 1, period: 1h}]"
	fields        = ", response: {origins: ['https://*.a.example'], headers: {Access-Control-Allow-Origin: '{origin}', Vary: Origin, X-Support: '{id} {retry_after}'}}"
	severalLimits = "limits: [{threshold: 1, period: 1h}, {threshold: 100000, period: 1h30m}, {threshold: 1000000, period: 7d}]"
)

// BenchmarkEngine measures requests from the first byte of their head to the last byte of their
// answer, without the system calls.
func BenchmarkEngine(b *testing.B) {
	blocks := headerBlocks()
	for name, rest := range map[string]string{
		"refuse":         oneLimit,
		"refuse_several": severalLimits,
		"refuse_by_id":   oneLimit + ", response: {body: 'quote {id}, or wait {retry_after} s'}",
		"refuse_fields":  oneLimit + fields,
		"pass":           "limits: [{threshold: 1000000000000, period: 1h}]",
	} {
		rules := "rules: [{id: all, characteristics: [ip], " + rest + "}]"
		answers := func() (net.Conn, error) {
			return &looped{next: func() bool { return true }, sends: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"}, nil
		}
		b.Run(name, func(b *testing.B) {
			origin := serve(b, http.HandlerFunc(ok))
			p, _ := newProxy(b, rules, origin.URL, func(o *proxy.Options) { o.Origins.Default.RelayBy(answers) })
			run(b, serverOf(p).Accept, func(next func() bool) net.Conn { return &looped{next: next, sends: aRequest} })
		})
		b.Run(name+"_http2", func(b *testing.B) {
			origin := serve(b, http.HandlerFunc(ok))
			p, _ := newProxy(b, rules, origin.URL, func(o *proxy.Options) { o.Origins.Default.RelayBy(answers) })
			s := http2.NewServer(http1.Options{Handler: p, Limits: http1.Limits{MaxStreams: 128, MaxOverhead: 1000, ReadHeaderTimeout: time.Hour, IdleTimeout: time.Hour, MaxHeaderBytes: 1 << 16}})
			run(b, s.Accept, func(next func() bool) net.Conn {
				return &framed{looped: looped{next: next}, blocks: blocks}
			})
		})
	}
}

// run serves connections until they have sent b.N requests.
func run(b *testing.B, serve func(net.Conn, http1.Start) func(), connect func(next func() bool) net.Conn) {
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) { serve(connect(pb.Next), http1.Start{})() })
}
