// Command frames floods a node with HTTP/2 frames that are cheap to send and expensive to handle, over
// cleartext and TLS, and prints what each flood costs the node and whether another client notices.
//
//	go build -o /tmp/edge ./cmd/edge && cd bench && go run ./frames -edge /tmp/edge
//
// It reconnects when the node ends its connection, until it has sent all frames.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/edgelimit/edge/bench/harness"
)

var (
	edge  = flag.String("edge", "edge", "the `binary`")
	count = flag.Int("frames", 20_000, "frames of each flood")
	only  = flag.String("only", "", "run the floods whose names contain this `text`")
)

// A flood has the frames that a client sends after its settings: once, then repeatedly. n counts from 0 on each
// connection.
type flood struct {
	name  string
	first func(w *writer)
	each  func(w *writer, n uint32)
}

// A writer writes frames.
type writer struct {
	*http2.Framer
	block bytes.Buffer
	hp    *hpack.Encoder
}

// open writes the header of the nth request, with which the request ends or not, and returns its stream.
func (w *writer) open(n uint32, method string, end bool, more ...string) uint32 {
	w.block.Reset()
	fields := append([]string{":method", method, ":scheme", "http", ":authority", "a.example", ":path", "/"}, more...)
	for i := 0; i < len(fields); i += 2 {
		_ = w.hp.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*n + 1, BlockFragment: w.block.Bytes(), EndStream: end, EndHeaders: true})
	return 2*n + 1
}

// begin writes a header that CONTINUATION frames have to end.
func (w *writer) begin() {
	_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("\x82\x86\x84\x41\x01a"), EndStream: true})
}

var floods = []flood{
	{name: "rapid reset (CVE-2023-44487)", each: func(w *writer, n uint32) { _ = w.WriteRSTStream(w.open(n, "GET", true), http2.ErrCodeCancel) }},
	{name: "MadeYouReset (CVE-2025-8671): a window update of 0", each: func(w *writer, n uint32) { _ = w.WriteWindowUpdate(w.open(n, "POST", false), 0) }},
	{name: "MadeYouReset: a window that overflows", each: func(w *writer, n uint32) { _ = w.WriteWindowUpdate(w.open(n, "POST", false), 1<<31-1) }},
	{name: "MadeYouReset: a stream that depends on itself", each: func(w *writer, n uint32) {
		_ = w.WritePriority(w.open(n, "POST", false), http2.PriorityParam{StreamDep: 2*n + 1})
	}},
	{name: "malformed requests", each: func(w *writer, n uint32) { w.open(n, "GET", true, "Upper", "x") }},
	{name: "streams beyond the maximum", each: func(w *writer, n uint32) { w.open(n, "POST", false) }},
	{name: "CONTINUATION of 1,000 bytes (CVE-2024-27316)", first: (*writer).begin, each: func(w *writer, _ uint32) {
		_ = w.WriteContinuation(1, false, append([]byte("\x00\x01x\x7f\xe9\x06"), make([]byte, 1000)...))
	}},
	{name: "empty CONTINUATION", first: (*writer).begin, each: func(w *writer, _ uint32) { _ = w.WriteContinuation(1, false, nil) }},
	{name: "HPACK bomb: 4 KB in the table, 10,000 times in a header", first: func(w *writer) { w.open(0, "GET", true, "x", strings.Repeat("y", 4000)) }, each: func(w *writer, n uint32) {
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*n + 3, BlockFragment: []byte("\x82\x86\x84" + strings.Repeat("\xbe", 10_000)), EndStream: true, EndHeaders: true})
	}},
	{name: "HPACK: the table's size changes 4,000 times in a header", each: func(w *writer, n uint32) {
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*n + 1, BlockFragment: []byte(strings.Repeat("\x20\x3f\xe1\x1f", 4000)), EndStream: true, EndHeaders: true})
	}},
	{name: "trailers of a stream that was reset: 4 KB in the table, 15 times", first: func(w *writer) {
		w.open(0, "GET", true, "x", strings.Repeat("y", 4000))
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte("\x83\x86\x84\x00\x05Upper\x01x"), EndHeaders: true})
	}, each: func(w *writer, _ uint32) {
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte(strings.Repeat("\xbe", 15)), EndStream: true, EndHeaders: true})
	}},
	{name: "1,000 short fields for the table in a request", each: func(w *writer, n uint32) {
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*n + 1, BlockFragment: []byte("\x82\x86\x84\x41\x01a" + strings.Repeat("\x40\x01x\x01y", 1000)), EndStream: true, EndHeaders: true})
	}},
	{name: "SETTINGS", each: func(w *writer, _ uint32) {
		_ = w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 65536})
	}},
	{name: "SETTINGS of 2,000 windows", each: func(w *writer, _ uint32) {
		_ = w.WriteSettings(slices.Repeat([]http2.Setting{http2.Setting{ID: http2.SettingInitialWindowSize, Val: 65536}}, 2000)...)
	}},
	{name: "acknowledgments of SETTINGS", each: func(w *writer, _ uint32) { _ = w.WriteSettingsAck() }},
	{name: "PING", each: func(w *writer, _ uint32) { _ = w.WritePing(false, [8]byte{}) }},
	{name: "PRIORITY", each: func(w *writer, n uint32) { _ = w.WritePriority(2*n+1, http2.PriorityParam{Weight: 1}) }},
	{name: "unknown frames", each: func(w *writer, _ uint32) { _ = w.WriteRawFrame(0x77, 0, 0, nil) }},
	{name: "empty DATA", first: func(w *writer) { w.open(0, "POST", false) }, each: func(w *writer, _ uint32) { _ = w.WriteData(1, false, nil) }},
	{name: "DATA of padding alone", first: func(w *writer) { w.open(0, "POST", false) }, each: func(w *writer, _ uint32) { _ = w.WriteDataPadded(1, false, nil, make([]byte, 100)) }},
	{name: "DATA after the end", first: func(w *writer) { w.open(0, "GET", true) }, each: func(w *writer, _ uint32) { _ = w.WriteData(1, false, []byte("x")) }},
	{name: "DATA of one byte", first: func(w *writer) { w.open(0, "POST", false) }, each: func(w *writer, _ uint32) { _ = w.WriteData(1, false, []byte("x")) }},
	{name: "windows that open by a byte", first: func(w *writer) { w.open(0, "GET", true) }, each: func(w *writer, _ uint32) { _ = w.WriteWindowUpdate(0, 1) }},
	{name: "windows that open by a byte, 100 streams wait", first: func(w *writer) {
		for n := range uint32(100) {
			w.open(n, "GET", true)
		}
	}, each: func(w *writer, _ uint32) { _ = w.WriteWindowUpdate(0, 1) }},
	{name: "responses that trickle: a window of 1", first: func(w *writer) {
		_ = w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
		w.open(0, "GET", true)
	}, each: func(w *writer, _ uint32) { _ = w.WriteWindowUpdate(1, 1) }},
}

func main() {
	flag.Parse()
	harness.Main(run)
}

func run() {
	dir, remove := harness.TempDir()
	defer remove()
	origin := harness.StartOrigin("", dir)
	defer origin.End()
	addrs := harness.FreeAddrs(3)
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	harness.Run(exec.Command("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
		"-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost"))
	rules := filepath.Join(dir, "rules.yaml")
	harness.Check(os.WriteFile(rules, []byte("rules: []\n"), 0o600))
	node := harness.Start("", *edge, "node", "--name", "bench", "--rules", rules, "--listen", addrs[0], "--tls-listen", addrs[1],
		"--tls-cert", cert, "--tls-key", key, "--metrics-listen", "", "--admin-listen", "", "--origin", "http://"+origin.Addr, "--log-level", "error")
	defer node.End()
	harness.WaitFor(addrs[0])
	harness.WaitFor(addrs[1])
	fmt.Printf("| %d frames of | over | CPU s | connections | others: requests, failed, slowest |\n|---|---|--:|--:|--:|\n", *count)
	for _, f := range floods {
		if !strings.Contains(f.name, *only) {
			continue
		}
		for i, transport := range []string{"cleartext", "TLS"} {
			before := node.CPU()
			stop, others := watch(addrs[0])
			connections := f.run(addrs[i], i == 1)
			time.Sleep(100 * time.Millisecond)
			used := node.CPU() - before
			stop()
			o := <-others
			fmt.Printf("| %s | %s | %.2f | %d | %d, %d, %v |\n", f.name, transport, used.Seconds(), connections, o.requests, o.failed, o.slowest.Round(time.Millisecond))
		}
	}
}

// run sends the flood and returns the number of connections that it needed.
func (f *flood) run(addr string, secure bool) (connections int) {
	for sent := 0; sent < *count; connections++ {
		sent += f.connection(addr, secure, *count-sent)
	}
	return connections
}

// connection sends at most maxFrames frames over one connection, until the node ends it, and returns how many it sent.
func (f *flood) connection(addr string, secure bool, maxFrames int) int {
	conn, err := net.Dial("tcp", addr)
	harness.Check(err)
	if secure {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, conn)
	}()
	var out bytes.Buffer
	w := &writer{Framer: http2.NewFramer(&out, nil)}
	w.AllowIllegalWrites = true
	w.hp = hpack.NewEncoder(&w.block)
	out.WriteString(http2.ClientPreface)
	_ = w.WriteSettings()
	if f.first != nil {
		f.first(w)
	}
	for n := range maxFrames {
		f.each(w, uint32(n))
		if out.Len() > 16<<10 || n == maxFrames-1 {
			if _, err := conn.Write(out.Bytes()); err != nil {
				return n + 1
			}
			out.Reset()
		}
	}
	_ = conn.(interface{ CloseWrite() error }).CloseWrite()
	<-ended // the node has read everything
	return maxFrames
}

// outcome has the results of another client.
type outcome struct {
	requests, failed int
	slowest          time.Duration
}

// watch sends a request every 10 ms over HTTP/2 until stop is called.
func watch(addr string) (stop func(), result chan outcome) {
	ctx, cancel := context.WithCancel(context.Background())
	t := &http.Transport{Protocols: new(http.Protocols)}
	t.Protocols.SetUnencryptedHTTP2(true)
	result = make(chan outcome, 1)
	go func() {
		defer t.CloseIdleConnections()
		var o outcome
		for ctx.Err() == nil {
			start := time.Now()
			resp, err := (&http.Client{Transport: t, Timeout: 5 * time.Second}).Get("http://" + addr + "/")
			if o.requests++; err != nil || resp.StatusCode != http.StatusOK {
				o.failed++
			}
			if err == nil {
				_ = resp.Body.Close()
			}
			o.slowest = max(o.slowest, time.Since(start))
			time.Sleep(10 * time.Millisecond)
		}
		result <- o
	}()
	return cancel, result
}
