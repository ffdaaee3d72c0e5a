package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A piece is a text that is repeated.
type piece struct {
	text  string
	times int
}

func (p piece) String() string { return strings.Repeat(p.text, p.times) }

// A line is a field that is repeated. Its name may be made different each time.
type line struct {
	name     string
	value    piece
	times    int
	distinct bool
}

// A frame is an HTTP/2 frame that is repeated before each request.
type frame struct {
	kind  string
	times int
}

// An input is a request that is sent again and again over one connection.
type input struct {
	rules    int // index of the rules that refuse it
	http2    bool
	numbered bool // each request has its own number in a field, because ordinary requests differ, too
	path     [2]piece
	query    piece
	lines    []line
	frames   []frame // HTTP/2
	split    int     // HTTP/2: size of the parts of a header block; 0 for one part
	chunks   piece   // HTTP/1.1: data of chunks; none if times is 0
	trailers line    // HTTP/1.1: after the chunks
	blank    int     // HTTP/1.1: empty lines before the request
	proxied  int     // HTTP/1.1: bytes of addresses in a PROXY header, if it is not 0
}

var (
	pathUnits  = []string{"/a", "/", "/.", "/..", "/a/..", ";a", "/;", "/a;b", "%2f", "%2e", "%2E%2e/", "%25", "%2525", `\`, "A", "%41", "\xc3\xa4", "%c3%a4", "/login", "/api/", "..;/", ".", "%00", "//a"}
	queryUnits = []string{"a=b&", "&", "=", "a&", "%41=", "+", "?", "user=x&", "user=%00&", ";", "user=&", "%", "user%3d", "a[]=1&", "user=a;"}
	names      = []string{"a", "x-a", "x_a", "x.a", "cookie", "connection", "x-forwarded-for", "forwarded", "te", "accept", "x-api-key", "x_forwarded_for", "upgrade", "keep-alive", "trailer", "expect", "via", "x-api_key", "http2-settings", "content_length"}
	values     = []string{"", "a", "a,", "close,", "keep-alive,", "x-a,", "a=b; ", "sid=x; ", "sid=x,", "; ", ";", "sid=\"a\"; ", "1.2.3.4, ", ", ", "\xe9", "\"", "x=", "=", "%41", "trailers", "aaaaaaaaaaaaaaaa", "\xc2\xa0", "h2c,", "sid"}
	frameKinds = []string{"PING", "SETTINGS", "PRIORITY", "WINDOW_UPDATE", "DATA", "HEADERS", "RST_STREAM", "UNKNOWN", "PADDED"}
	counts     = []int{1, 1, 1, 2, 4, 8, 15, 16, 32, 64, 128, 200, 255, 256, 512, 1000, 2000, 4000, 8000, 16000}
)

// maxSize is the greatest size of an input: nodes refuse larger headers without reading them.
const maxSize = 60_000

func pick[T any](r *rand.Rand, all []T) T { return all[r.IntN(len(all))] }

func drawPiece(r *rand.Rand, units []string) piece {
	p := piece{pick(r, units), pick(r, counts)}
	for range r.IntN(3) {
		p.text += pick(r, units)
	}
	return p
}

func drawLine(r *rand.Rand) line {
	return line{pick(r, names), drawPiece(r, values), pick(r, counts), r.IntN(3) == 0}
}

// draw returns a random input.
func draw(r *rand.Rand) input {
	in := input{rules: r.IntN(len(ruleSets)), http2: r.IntN(2) == 0, path: [2]piece{{"/", 1}}}
	for range 1 + r.IntN(4) {
		in = in.change(r)
	}
	return in
}

// change returns the input with a random change.
func (in input) change(r *rand.Rand) input {
	for {
		next := in
		next.lines = append([]line(nil), in.lines...)
		next.frames = append([]frame(nil), in.frames...)
		switch r.IntN(16) {
		case 0:
			next.path[0] = drawPiece(r, pathUnits)
		case 1:
			next.path[1] = drawPiece(r, pathUnits)
		case 2:
			next.path[r.IntN(2)].times = pick(r, counts)
		case 3:
			next.query = drawPiece(r, queryUnits)
		case 4, 5:
			next.lines = append(next.lines, drawLine(r))
		case 6:
			if len(next.lines) > 0 {
				next.lines[r.IntN(len(next.lines))] = drawLine(r)
			}
		case 7:
			if len(next.lines) > 0 {
				l := &next.lines[r.IntN(len(next.lines))]
				l.times, l.value.times = pick(r, counts), pick(r, counts)
			}
		case 8:
			if len(next.lines) > 0 {
				next.lines = next.lines[1:]
			}
		case 9:
			next.http2 = !next.http2
		case 10:
			next.split = []int{0, 0, 1, 16, 1024}[r.IntN(5)]
		case 11:
			next.frames = append(next.frames, frame{pick(r, frameKinds), pick(r, counts[:10])})
		case 12:
			next.chunks, next.trailers = drawPiece(r, values), drawLine(r)
		case 13:
			next.blank, next.proxied = pick(r, counts[:6]), pick(r, []int{0, 0, 0, 1, 40})
		case 14:
			next.rules = r.IntN(len(ruleSets))
		case 15: // many short fields, which HTTP/2 may add to its table
			next.lines = append(next.lines, line{pick(r, names), piece{pick(r, values), 1}, pick(r, []int{50, 90, 200, 250}), r.IntN(2) == 0})
		}
		if next.size() <= maxSize {
			return next
		}
	}
}

// fields yields the fields of the request, without those that are pseudo-header fields of HTTP/2.
func (in *input) fields(yield func(name, value string)) {
	for _, l := range in.lines {
		value := strings.Trim(l.value.String(), " ")
		for i := range l.times {
			name := l.name
			if l.distinct {
				name = fmt.Sprintf("%s%d", name, i)
			}
			yield(name, value)
		}
	}
}

// target returns the target of the request line.
func (in *input) target() string {
	target := "/" + in.path[0].String() + in.path[1].String()
	if in.query.times > 0 {
		target += "?" + in.query.String()
	}
	return target
}

// size returns the size of a request in bytes: with HTTP/1.1 as it is sent, with HTTP/2 decompressed, with its frames and HPACK's
// 32 bytes a field.
func (in *input) size() (n int) {
	if !in.http2 {
		var b bytes.Buffer
		in.appendHTTP1(&b, 1000)
		return b.Len()
	}
	n = len("GET  HTTP/1.1\r\nHost: www.example.com\r\n\r\n") + len(in.target())
	if in.numbered {
		n += len("X-Request-Id: 1000\r\n")
	}
	in.fields(func(name, value string) { n += len(name) + len(value) + 32 })
	for _, f := range in.frames {
		n += f.times * 17
	}
	if in.split > 0 {
		n += 9 * n / in.split
	}
	return n
}

func (in input) String() string {
	protocol := "HTTP/1.1"
	if in.http2 {
		protocol = "HTTP/2"
	}
	text := fmt.Sprintf("rules %d %s path %q×%d %q×%d query %q×%d", in.rules, protocol, in.path[0].text, in.path[0].times, in.path[1].text, in.path[1].times, in.query.text, in.query.times)
	for _, l := range in.lines {
		text += fmt.Sprintf(", %d×%s (distinct: %t): %q×%d", l.times, l.name, l.distinct, l.value.text, l.value.times)
	}
	if in.http2 {
		return text + fmt.Sprintf(", frames %v, parts of %d", in.frames, in.split)
	}
	if in.chunks.times > 0 {
		text += fmt.Sprintf(", chunks %q×%d, trailers %d×%s: %q×%d", in.chunks.text, in.chunks.times, in.trailers.times, in.trailers.name, in.trailers.value.text, in.trailers.value.times)
	}
	return text + fmt.Sprintf(", empty lines %d, PROXY header %d", in.blank, in.proxied)
}

// appendHTTP1 appends the nth request in HTTP/1.1.
func (in *input) appendHTTP1(b *bytes.Buffer, n int) {
	b.WriteString(strings.Repeat("\r\n", in.blank))
	method := "GET"
	if in.chunks.times > 0 {
		method = "POST"
	}
	fmt.Fprintf(b, "%s %s HTTP/1.1\r\nHost: www.example.com\r\n", method, in.target())
	if in.numbered {
		fmt.Fprintf(b, "X-Request-Id: %d\r\n", n)
	}
	in.fields(func(name, value string) { fmt.Fprintf(b, "%s: %s\r\n", name, value) })
	if in.chunks.times == 0 {
		b.WriteString("\r\n")
		return
	}
	b.WriteString("Transfer-Encoding: chunked\r\n\r\n")
	for range in.chunks.times {
		fmt.Fprintf(b, "%x;%s\r\na\r\n", 1, in.chunks.text)
	}
	b.WriteString("0\r\n")
	for range in.trailers.times {
		fmt.Fprintf(b, "%s: %s\r\n", in.trailers.name, in.trailers.value)
	}
	b.WriteString("\r\n")
}

// A frames writes the requests of one HTTP/2 connection.
type frames struct {
	out    bytes.Buffer
	framer *http2.Framer
	block  bytes.Buffer
	coder  *hpack.Encoder
	stream uint32
}

func newFrames() *frames {
	f := &frames{stream: 1}
	f.framer = http2.NewFramer(&f.out, nil)
	f.framer.AllowIllegalWrites = true
	f.coder = hpack.NewEncoder(&f.block)
	f.out.WriteString(http2.ClientPreface)
	_ = f.framer.WriteSettings()
	return f
}

// add writes the frames of in and a request.
func (f *frames) add(in *input) {
	for _, frame := range in.frames {
		for range frame.times {
			last := max(f.stream, 3) - 2
			switch frame.kind {
			case "PING":
				_ = f.framer.WritePing(false, [8]byte{})
			case "SETTINGS":
				_ = f.framer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 9})
			case "PRIORITY":
				_ = f.framer.WritePriority(f.stream, http2.PriorityParam{StreamDep: 0, Weight: 7})
			case "WINDOW_UPDATE":
				_ = f.framer.WriteWindowUpdate(0, 1)
			case "DATA":
				_ = f.framer.WriteData(last, false, []byte("a"))
			case "HEADERS":
				_ = f.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: last, BlockFragment: []byte{0x82}, EndHeaders: true, EndStream: true})
			case "RST_STREAM":
				_ = f.framer.WriteRSTStream(last, http2.ErrCodeCancel)
			case "UNKNOWN":
				_ = f.framer.WriteRawFrame(0x42, 0, 0, make([]byte, 8))
			case "PADDED":
				_ = f.framer.WriteDataPadded(last, false, nil, make([]byte, 7))
			}
		}
	}
	f.block.Reset()
	write := func(name, value string) { _ = f.coder.WriteField(hpack.HeaderField{Name: name, Value: value}) }
	write(":method", "GET")
	write(":scheme", "http")
	write(":authority", "www.example.com")
	write(":path", in.target())
	if in.numbered {
		write("x-request-id", fmt.Sprint(f.stream))
	}
	in.fields(write)
	size := in.split
	if size == 0 {
		size = 16 << 10
	}
	for first := true; first || f.block.Len() > 0; first = false {
		part := f.block.Next(size)
		last := f.block.Len() == 0
		if first {
			_ = f.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: f.stream, BlockFragment: part, EndHeaders: last, EndStream: true})
		} else {
			_ = f.framer.WriteContinuation(f.stream, last, part)
		}
	}
	f.stream += 2
}
