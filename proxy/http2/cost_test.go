package http2_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/proxy/http1"
	"github.com/edgelimit/edge/proxy/http2"
)

// An input has the frames that a client sends after its settings: first once, then each repeatedly, with n = 0, 1, ….
type input struct {
	name  string
	first func(w *writer)
	each  func(w *writer, n int)

	// most is the maximum number of units that the node reads from a connection, 0 if it reads all.
	most int
}

// A writer writes frames.
type writer struct {
	*xhttp2.Framer
	frames  bytes.Buffer
	decoder *hpack.Decoder
	decoded int // size of header blocks as text
	next    uint32
}

func newWriter() *writer {
	w := &writer{next: 1}
	w.Framer = xhttp2.NewFramer(&w.frames, nil)
	w.AllowIllegalWrites = true
	w.decoder = hpack.NewDecoder(4096, func(f hpack.HeaderField) { w.decoded += int(f.Size()) })
	return w
}

// size returns what has been written since the last call, in bytes, with header blocks as they are decoded, and 32
// bytes a field.
func (w *writer) size(from int) int {
	n := max(w.frames.Len()-from, w.decoded)
	w.decoded = 0
	return n
}

// headers writes a header block for stream id, in as many frames as it needs.
func (w *writer) headers(id uint32, end bool, block string) {
	_, _ = w.decoder.Write([]byte(block))
	_ = w.decoder.Close()
	n := min(len(block), 16<<10)
	_ = w.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: []byte(block[:n]), EndStream: end, EndHeaders: n == len(block)})
	for block = block[n:]; len(block) > 0; block = block[n:] {
		n = min(len(block), 16<<10)
		_ = w.WriteContinuation(id, n == len(block), []byte(block[:n]))
	}
}

// open writes the header block of a new request.
func (w *writer) open(end bool, block string) (id uint32) {
	w.headers(w.next, end, block)
	w.next += 2
	return w.next - 2
}

// literal returns a field that is not added to the dynamic table.
func literal(name, value string) string { return "\x00" + text(name) + text(value) }

// indexed returns a field that is.
func indexed(name, value string) string { return "\x40" + text(name) + text(value) }

func text(s string) string { return integer(0, 7, len(s)) + s }

func huffman(s string) string {
	b := hpack.AppendHuffmanString(nil, s)
	return integer(0x80, 7, len(b)) + string(b)
}

// integer returns n with a prefix of this many bits, after first (RFC 7541, 5.1).
func integer(first byte, bits, n int) string {
	most := 1<<bits - 1
	if n < most {
		return string([]byte{first | byte(n)})
	}
	b := []byte{first | byte(most)}
	for n -= most; n >= 128; n >>= 7 {
		b = append(b, byte(n)|128)
	}
	return string(append(b, byte(n)))
}

const (
	get     = "\x82\x86\x01\x01a"           // GET, http, a; without a path
	refused = get + "\x04\x08/refused"      // with one
	held    = get + "\x04\x05/held"         // is not answered
	last    = get + "\x04\x0d/refused/last" // the client is asked to open no more streams
	newest  = "\xbe"                        // field of the dynamic table
)

// ordinary returns the block of a request of about n bytes, the kth of its kind.
func ordinary(n, k int) string {
	var b strings.Builder
	b.WriteString(get + "\x04" + text(fmt.Sprintf("/refused?%07d", k)))
	for i := 0; ; i++ {
		left := n - b.Len()
		if left < 20 {
			return b.String()
		}
		b.WriteString(literal(fmt.Sprintf("x-field-%04d", i), strings.Repeat("v", min(left-14, 40))))
	}
}

// long fills the dynamic table with one field.
var long = indexed("x", strings.Repeat("y", 4000))

func resetStream(block string) func(*writer) {
	return func(w *writer) {
		if block != "" {
			w.open(true, refused+block)
		}
		w.open(false, refused)
	}
}

func holdStreams(block string) func(*writer) {
	return func(w *writer) {
		if block != "" {
			w.open(true, refused+block)
		}
		for range maxStreams {
			w.open(true, held)
		}
	}
}

const maxStreams = 32

func trailers(block string) func(*writer, int) {
	return func(w *writer, _ int) { w.headers(w.next-2, true, block) }
}

func requests(block string) func(*writer, int) {
	return func(w *writer, _ int) { w.open(true, block) }
}

func leave(w *writer) {
	w.open(true, held)
	w.open(true, last)
	_ = w.WritePing(true, [8]byte{'l', 'e', 'a', 'v', 'i', 'n', 'g'})
}

var costs = []input{
	{name: "trailers of a reset stream, short", most: 1005, first: resetStream(""), each: trailers(literal("x", "y"))},
	{name: "trailers of a reset stream, 15 KB", most: 70, first: resetStream(""), each: trailers(ordinaryFields(15 << 10))},
	{name: "trailers of a reset stream, 40 KB of 10 bytes", most: 30, first: resetStream(long), each: trailers(strings.Repeat(newest, 10))},
	{name: "trailers of a reset stream, malformed", most: 110, first: resetStream(""), each: trailers(literal("X", strings.Repeat("y", 1000)))},
	{name: "trailers of requests", most: 60, each: func(w *writer, n int) { w.headers(w.open(false, held), true, long+strings.Repeat(newest, 5)) }},
	{name: "trailers of refused requests", most: 60, each: func(w *writer, n int) { w.headers(w.open(false, refused), true, long+strings.Repeat(newest, 5)) }},
	{name: "requests after GOAWAY, short", most: 1005, first: leave, each: requests(refused)},
	{name: "requests after GOAWAY, 15 KB", most: 70, first: leave, each: requests(ordinary(15<<10, 0))},
	{name: "requests after GOAWAY, 40 KB of 10 bytes", most: 30, first: func(w *writer) { w.open(true, refused+long); leave(w) }, each: requests(refused + strings.Repeat(newest, 10))},
	{name: "streams beyond the maximum, short", most: 1010, first: holdStreams(""), each: requests(refused)},
	{name: "streams beyond the maximum, 15 KB", most: 70, first: holdStreams(""), each: func(w *writer, n int) { w.open(true, ordinary(15<<10, n)) }},
	{name: "streams beyond the maximum, 40 KB of 10 bytes", most: 30, first: holdStreams(long), each: func(w *writer, n int) {
		w.open(true, refused+literal("n", fmt.Sprint(n))+strings.Repeat(newest, 10))
	}},
	{name: "malformed requests, 15 KB", most: 60, each: requests(ordinary(15<<10, 0) + literal("X", "y"))},
	{name: "malformed requests, 40 KB of 10 bytes", most: 30, first: func(w *writer) { w.open(true, refused+long) }, each: requests(refused + literal("X", "y") + strings.Repeat(newest, 10))},
	{name: "requests that HTTP/1.1 cannot represent, 40 KB of 10 bytes", most: 30, first: func(w *writer) { w.open(true, refused+long) }, each: requests(get + "\x04\x03/ b" + strings.Repeat(newest, 10))},
	{name: "requests that are too large, 100 KB of 25 bytes", most: 12, first: func(w *writer) { w.open(true, refused+long) }, each: requests(refused + strings.Repeat(newest, 25))},
	{name: "requests that are much too large", most: 1, first: func(w *writer) { w.open(true, refused+long) }, each: requests(refused + strings.Repeat(newest, 10_000))},
	{name: "a path of 4 KB in the table, repeated", first: func(w *writer) { w.open(true, get+indexed(":path", "/refused?"+strings.Repeat("y", 3900))) }, each: requests(get + newest)},
	{name: "a path of 4 KB in the table, not repeated", first: func(w *writer) { w.open(true, get+indexed(":path", "/refused?"+strings.Repeat("y", 3900))) }, each: func(w *writer, n int) {
		w.open(true, get+newest+literal("n", fmt.Sprint(n)))
	}},
	{name: "a full table", first: func(w *writer) {
		var b strings.Builder
		for n := range 90 {
			b.WriteString(indexed(fmt.Sprint(n), ""))
		}
		w.open(true, refused+b.String())
	}, each: func(w *writer, n int) {
		var b strings.Builder
		for n := range 90 {
			b.WriteString(integer(0x80, 7, 62+n))
		}
		w.open(true, refused+b.String())
	}},
	{name: "table sizes", most: 1, each: func(w *writer, n int) {
		w.open(true, strings.Repeat("\x20", 15_000)+refused+literal("n", fmt.Sprint(n)))
	}},
	{name: "table sizes, long", most: 1, each: func(w *writer, n int) {
		w.open(true, strings.Repeat("\x3f\xe1\x1f", 5000)+refused+literal("n", fmt.Sprint(n)))
	}},
	{name: "table sizes, malformed", most: 1, each: requests(strings.Repeat("\x20\x3f\xe1\x1f", 4000))},
	{name: "Huffman, usual", each: func(w *writer, n int) {
		w.open(true, refused+"\x00\x01n"+huffman(fmt.Sprint(n, strings.Repeat("a/b-c=d ", 500))))
	}},
	{name: "Huffman, long codes", each: func(w *writer, n int) {
		w.open(true, refused+"\x00\x01n"+huffman(fmt.Sprint(n, strings.Repeat("\xff\xf9\xc0", 500))))
	}},
	{name: "Huffman, names", each: func(w *writer, n int) {
		w.open(true, refused+"\x00"+huffman(fmt.Sprint(n, strings.Repeat("a0-", 1000)))+"\x00")
	}},
	{name: "cookie crumbs, indexed", most: 299, first: func(w *writer) { w.open(true, refused+indexed("cookie", "a")) }, each: func(w *writer, n int) {
		w.open(true, refused+literal("n", fmt.Sprint(n))+strings.Repeat(newest, 1500))
	}},
	{name: "cookie crumbs, literal", most: 299, each: func(w *writer, n int) {
		w.open(true, refused+literal("n", fmt.Sprint(n))+strings.Repeat("\x0f\x11\x01a", 1500))
	}},
	{name: "cookie crumbs, empty", most: 299, each: func(w *writer, n int) {
		w.open(true, refused+literal("n", fmt.Sprint(n))+strings.Repeat("\xa0", 1500))
	}},
	{name: "short fields, indexed", most: 299, first: func(w *writer) { w.open(true, refused+indexed("a", "b")) }, each: func(w *writer, n int) {
		w.open(true, refused+literal("n", fmt.Sprint(n))+strings.Repeat(newest, 1500))
	}},
	{name: "short fields, literal", most: 299, each: func(w *writer, n int) {
		w.open(true, refused+literal("n", fmt.Sprint(n))+strings.Repeat(literal("a", "b"), 1500))
	}},
	{name: "short fields, added to the table", most: 299, each: func(w *writer, n int) {
		w.open(true, refused+literal("n", fmt.Sprint(n))+strings.Repeat(indexed("a", "b"), 1500))
	}},
	{name: "90 fields, literal", each: func(w *writer, n int) {
		w.open(true, refused+literal("n", fmt.Sprint(n))+strings.Repeat(literal("a", "b"), 90))
	}},
	{name: "90 fields, added to the table", each: func(w *writer, n int) {
		w.open(true, refused+literal("n", fmt.Sprint(n))+strings.Repeat(indexed("a", "b"), 90))
	}},
	{name: "90 fields of the table", first: func(w *writer) { w.open(true, refused+indexed("a", "b")) }, each: func(w *writer, n int) {
		w.open(true, refused+literal("n", fmt.Sprint(n))+strings.Repeat(newest, 90))
	}},
	{name: "240 cookie crumbs, added to the table", each: func(w *writer, n int) {
		w.open(true, refused+literal("n", fmt.Sprint(n))+strings.Repeat("\x60\x01a", 240))
	}},
	{name: "240 cookie crumbs of the table", first: func(w *writer) { w.open(true, refused+indexed("cookie", "a")) }, each: func(w *writer, n int) {
		w.open(true, refused+literal("n", fmt.Sprint(n))+strings.Repeat(newest, 240))
	}},
	{name: "te", most: 299, first: func(w *writer) { w.open(true, refused+indexed("te", "trailers")) }, each: func(w *writer, n int) {
		w.open(true, refused+literal("n", fmt.Sprint(n))+strings.Repeat(newest, 1400))
	}},
	{name: "host", most: 299, first: func(w *writer) { w.open(true, refused+indexed("host", "a")) }, each: func(w *writer, n int) {
		w.open(true, "\x82\x86\x84"+literal("n", fmt.Sprint(n))+strings.Repeat(newest, 1400))
	}},
	{name: "padding and priority", each: func(w *writer, n int) {
		_ = w.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: w.next, BlockFragment: []byte(refused + literal("n", fmt.Sprint(n))), EndStream: true, EndHeaders: true, PadLength: 255, Priority: xhttp2.PriorityParam{StreamDep: 1<<31 - 1}})
		w.next += 2
	}},
	{name: "CONTINUATION of 16 bytes", most: 20, each: func(w *writer, n int) {
		block := refused + literal("n", strings.Repeat("y", 1000))
		_ = w.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: w.next, BlockFragment: []byte(block[:16]), EndStream: true})
		for block = block[16:]; len(block) > 0; block = block[min(16, len(block)):] {
			_ = w.WriteContinuation(w.next, len(block) <= 16, []byte(block[:min(16, len(block))]))
		}
		w.next += 2
	}},
	{name: "SETTINGS", most: 1005, each: func(w *writer, _ int) { _ = w.WriteSettings() }},
	{name: "SETTINGS of 2,000 unknown", most: 1, each: func(w *writer, _ int) {
		_ = w.WriteRawFrame(xhttp2.FrameSettings, 0, 0, bytes.Repeat([]byte("\x99\x99\x00\x00\x00\x00"), 2000))
	}},
	{name: "WINDOW_UPDATE", most: 500, each: func(w *writer, _ int) { _ = w.WriteWindowUpdate(0, 1) }},
	{name: "WINDOW_UPDATE that may wake 32 streams", most: 252, first: holdStreams(""), each: func(w *writer, _ int) { _ = w.WriteWindowUpdate(0, 1) }},
	{name: "WINDOW_UPDATE of an ended stream", most: 1005, first: resetStream(""), each: func(w *writer, _ int) { _ = w.WriteWindowUpdate(1, 1) }},
	{name: "RST_STREAM of an ended stream", most: 1005, first: resetStream(""), each: func(w *writer, _ int) { _ = w.WriteRSTStream(1, 0) }},
	{name: "DATA of a byte for a reset stream", most: 1005, first: resetStream(""), each: func(w *writer, _ int) { _ = w.WriteData(1, false, []byte("x")) }},
	{name: "DATA of a byte for a request", first: func(w *writer) { w.open(false, held) }, each: func(w *writer, _ int) { _ = w.WriteData(1, false, []byte("x")) }},
	{name: "DATA of 16 KB for a reset stream", first: resetStream(""), each: func(w *writer, _ int) { _ = w.WriteData(1, false, make([]byte, 16<<10)) }},
	{name: "PUSH_PROMISE", most: 1, each: func(w *writer, _ int) { _ = w.WriteRawFrame(xhttp2.FramePushPromise, 4, 1, make([]byte, 16<<10)) }},
	{name: "unknown frames, empty", most: 1005, each: func(w *writer, _ int) { _ = w.WriteRawFrame(0x77, 0, 0, nil) }},
	{name: "unknown frames, 16 KB", most: 1005, each: func(w *writer, _ int) { _ = w.WriteRawFrame(0x77, 0, 0, make([]byte, 16<<10)) }},
	{name: "GOAWAY of 16 KB", most: 1005, each: func(w *writer, _ int) { _ = w.WriteGoAway(0, 0, make([]byte, 16<<10-8)) }},
	{name: "PRIORITY", most: 1005, each: func(w *writer, _ int) { _ = w.WritePriority(7, xhttp2.PriorityParam{}) }},
	{name: "PING", most: 1005, each: func(w *writer, _ int) { _ = w.WritePing(false, [8]byte{}) }},
}

func ordinaryFields(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		b.WriteString(literal(fmt.Sprintf("x-field-%04d", i), strings.Repeat("v", 40)))
	}
	return b.String()
}

// A holder refuses most requests, holds those for /held until their connection has ended, and answers those for
// /early before they have ended. Those for /brief fail after a second.
type holder struct{ release chan struct{} }

func (h *holder) Serve(s http1.Asker, r *http1.Request) (*http1.Origin, http1.Relay) {
	switch string(r.Path()) {
	case "/held":
		return nowhere, failing{before: func() { <-h.release }}
	case "/early":
		return nowhere, failing{before: func() { s.Answer(200, nil, "early") }}
	case "/brief":
		return nowhere, failing{before: func() {
			select {
			case <-h.release:
			case <-time.After(time.Second):
			}
		}}
	case "/refused/last":
		s.Refuse(true)
	}
	s.Answer(429, tooMany, "slow down\n")
	return nil, nil
}

// nowhere is an origin that cannot be reached.
var nowhere = http1.NewOrigin(dialer("invalid"), time.Minute)

// A failing request passes, but does not reach its origin.
type failing struct {
	plain
	before func()
}

func (f failing) Hasty() bool {
	f.before()
	return false
}

func (failing) Relayed(error) {}

func (*holder) Malformed(_ netip.Addr, err *http1.Error) (fields []byte, status int, body string, end bool) {
	return explain(err)
}

// A played is a connection over which a client sends one unit with each read, until it has sent all or the
// node has sent GOAWAY with an error.
type played struct {
	recorded
	units []string
	part  string // of the next unit
	read  int    // units
	ended bool
	sleep map[int]time.Duration // before a unit is sent

	windows map[uint32]int // bytes that streams, or 0 for the connection, may send in addition
	errors  []string       // of streams and the connection
}

func (p *played) Read(b []byte) (int, error) {
	if p.part == "" {
		if p.ended || p.read == len(p.units) {
			return 0, io.EOF
		}
		time.Sleep(p.sleep[p.read])
		p.part = p.units[p.read]
		p.read++
	}
	n := copy(b, p.part)
	p.part = p.part[n:]
	return n, nil
}

func (p *played) Write(b []byte) (int, error) {
	for rest := b; len(rest) >= 9; {
		id, payload := binary.BigEndian.Uint32(rest[5:]), rest[9:]
		switch xhttp2.FrameType(rest[3]) {
		case xhttp2.FrameGoAway:
			if code := xhttp2.ErrCode(payload[7]); code != 0 {
				p.ended = true
				p.errors = append(p.errors, code.String())
			}
		case xhttp2.FrameWindowUpdate:
			p.windows[id] += int(binary.BigEndian.Uint32(payload))
		case xhttp2.FrameRSTStream:
			p.errors = append(p.errors, fmt.Sprint(id, " ", xhttp2.ErrCode(payload[3])))
		}
		rest = payload[int(rest[1])<<8+int(rest[2]):]
	}
	return len(b), nil
}

// units returns n units of in, the first one with the preface, and their size.
func (in *input) units(n int) (units []string, size []int) {
	w := newWriter()
	w.frames.WriteString(xhttp2.ClientPreface)
	_ = w.WriteSettings()
	if in.first != nil {
		in.first(w)
	}
	units, size = append(units, w.frames.String()), append(size, w.size(0))
	for i := range n {
		w.frames.Reset()
		in.each(w, i)
		units, size = append(units, w.frames.String()), append(size, w.size(0))
	}
	return units, size
}

// serve serves a connection that sends units until its end.
func serve(units []string, sleep map[int]time.Duration) *played {
	conn, h := &played{units: units, sleep: sleep, windows: map[uint32]int{}}, &holder{make(chan struct{})}
	http2.NewServer(http1.Options{Handler: h, Limits: http1.Limits{MaxStreams: maxStreams, MaxOverhead: 1000, ReadHeaderTimeout: time.Hour, IdleTimeout: time.Hour, MaxHeaderBytes: 64 << 10}}).
		Accept(conn, http1.Start{})()
	close(h.release)
	return conn
}

// Frames that open no request, or cost more than their bytes, end their connection: the limit is a number of frames,
// and of KiB as decoded.
func TestInputs(t *testing.T) {
	for _, in := range costs {
		t.Run(in.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) { // time earns nothing
				n := cmp.Or(in.most, 300)
				units, _ := in.units(n + 1)
				if got := serve(units, nil).read - 1; (got > n) != (in.most == 0) {
					t.Errorf("the node reads %d units, want at most %d", got, in.most)
				}
			})
		})
	}
}

// BenchmarkInputs measures the CPU time of inputs that try to cost more than they should: per byte, and as a multiple
// of the cost of requests of the same size.
func BenchmarkInputs(b *testing.B) {
	perByte := map[int]float64{}
	for _, in := range costs {
		b.Run(in.name, func(b *testing.B) {
			units, size := in.units(1000)
			per := size[1]
			if per > 4096 {
				per = min(per&^1023, 40<<10)
			}
			if perByte[per] == 0 {
				plainRequests := input{each: func(w *writer, n int) { w.open(true, ordinary(per-40, n)) }}
				units, size := plainRequests.units(1000)
				perByte[per] = cpuPerByte(units, size, 20)
			}
			b.ResetTimer()
			ns := cpuPerByte(units, size, b.N)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(ns, "ns/B")
			b.ReportMetric(ns/perByte[per], "plain")
			b.ReportMetric(float64(per), "B")
			b.ReportMetric(float64(serve(units, nil).read-1), "units")
		})
	}
}

// cpuPerByte returns the CPU time of a byte of units, in ns, from n connections.
func cpuPerByte(units []string, size []int, n int) float64 {
	var before, after syscall.Rusage
	total := 0
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	for range n {
		for _, n := range size[1:serve(units, nil).read] {
			total += n
		}
	}
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	return float64(after.Utime.Nano()+after.Stime.Nano()-before.Utime.Nano()-before.Stime.Nano()) / float64(max(total, 1))
}
