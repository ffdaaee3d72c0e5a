package http2_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/edgelimit/edge/proxy/http1"
	"github.com/edgelimit/edge/proxy/http2"
)

// A recorded is a connection over which a client has sent something and then disconnected.
type recorded struct {
	io.Reader
	written bytes.Buffer
}

func (r *recorded) Write(p []byte) (int, error)      { return r.written.Write(p) }
func (*recorded) Close() error                       { return nil }
func (*recorded) LocalAddr() net.Addr                { return &net.TCPAddr{} }
func (*recorded) RemoteAddr() net.Addr               { return &net.TCPAddr{} }
func (*recorded) SetDeadline(time.Time) error        { return nil }
func (*recorded) SetReadDeadline(t time.Time) error  { return nil }
func (*recorded) SetWriteDeadline(t time.Time) error { return nil }

// A seer notes the requests that it refuses.
type seer struct{ seen []string }

func (s *seer) Serve(st http1.Asker, r *http1.Request) (*http1.Origin, http1.Relay) {
	s.seen = append(s.seen, fmt.Sprintf("%s %s %s", r.Method(), r.Host(), r.Path()))
	st.Answer(429, tooMany, "slow down\n")
	return nil, nil
}

func (*seer) Malformed(_ netip.Addr, err *http1.Error) (fields []byte, status int, body string, end bool) {
	return explain(err)
}

// play makes the engine read frames to their end, and returns the requests that it sees and what it writes.
func play(frames []byte) ([]string, *bytes.Buffer) {
	conn, h := &recorded{Reader: bytes.NewReader(frames)}, &seer{}
	http2.NewServer(http1.Options{Handler: h, Limits: http1.Limits{MaxStreams: 128, MaxOverhead: 1000, ReadHeaderTimeout: time.Hour, IdleTimeout: time.Hour, MaxHeaderBytes: 4 << 10}}).
		Accept(conn, http1.Start{})()
	return h.seen, &conn.written
}

// Whatever a client sends, the engine terminates, and writes frames that can be read.
func FuzzFrames(f *testing.F) {
	var b bytes.Buffer
	fr := xhttp2.NewFramer(&b, nil)
	block := []byte("\x82\x86\x84\x41\x01a") // GET, http, /, a
	_ = fr.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true})
	_ = fr.WriteData(1, true, []byte("abc"))
	f.Add(b.Bytes())
	_ = fr.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 1})
	_ = fr.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 3, BlockFragment: block, EndStream: true})
	_ = fr.WriteContinuation(3, true, []byte("\x00\x01x\x01y"))
	_ = fr.WriteWindowUpdate(3, 1)
	_ = fr.WriteRSTStream(1, 8)
	_ = fr.WritePing(false, [8]byte{})
	_ = fr.WritePriority(5, xhttp2.PriorityParam{StreamDep: 5})
	_ = fr.WriteGoAway(1, 0, nil)
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, frames []byte) {
		_, written := play(append([]byte(xhttp2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00"), frames...))
		fr := xhttp2.NewFramer(io.Discard, written)
		fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		for {
			if _, err := fr.ReadFrame(); err == io.EOF {
				return
			} else if err != nil {
				t.Fatalf("what the engine writes: %v", err)
			}
		}
	})
}

// net/http reads a request in the same way as the engine, or refuses it: the engine leaves it to the rules to
// refuse some methods, targets and hosts.
func FuzzHeader(f *testing.F) {
	f.Add(":method\nGET\n:scheme\nhttp\n:authority\na.example\n:path\n/a?b\nx\ny")
	f.Add(":method\nPOST\n:scheme\nhttps\n:path\n/\nhost\na\ncookie\na=b\ncookie\nc\nte\ntrailers")
	f.Add(":method\nOPTIONS\n:scheme\nhttp\n:path\n*\nhost\na\nconnection\nclose")
	f.Fuzz(func(t *testing.T, text string) {
		var frames bytes.Buffer
		frames.WriteString(xhttp2.ClientPreface)
		fr := xhttp2.NewFramer(&frames, nil)
		_ = fr.WriteSettings()
		var block bytes.Buffer
		hp := hpack.NewEncoder(&block)
		for n := range uint32(4) { // from the second one on it may come from the dynamic table, and repeat
			block.Reset()
			for fields := strings.Split(text, "\n"); len(fields) > 1; fields = fields[2:] {
				_ = hp.WriteField(hpack.HeaderField{Name: fields[0], Value: fields[1]})
			}
			if block.Len() > 3000 {
				return
			}
			_ = fr.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 2*n + 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
		}
		seen, _ := play(frames.Bytes())
		for _, other := range seen {
			if len(seen) != 4 || other != seen[0] {
				t.Fatalf("a request that comes four times: %q", seen)
			}
		}
		if len(seen) == 0 {
			return
		}
		theirs := make(chan string, 1)
		near, far := net.Pipe()
		defer near.Close()
		//lint:ignore SA1019 net/http's server cannot serve an individual connection
		go (&xhttp2.Server{}).ServeConn(far, &xhttp2.ServeConnOpts{BaseConfig: &http.Server{}, Context: context.Background(), Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			select {
			case theirs <- fmt.Sprintf("%s %s %s", r.Method, r.Host, r.RequestURI):
			default: // it is the same as the first one
			}
		})})
		go func() { _, _ = near.Write(frames.Bytes()) }()
		reader := xhttp2.NewFramer(io.Discard, near)
		for {
			select {
			case got := <-theirs:
				if got != seen[0] {
					t.Errorf("net/http reads %q, the engine %q", got, seen[0])
				}
				return
			default:
			}
			frame, err := reader.ReadFrame()
			if err != nil {
				return
			}
			switch frame.(type) {
			case *xhttp2.RSTStreamFrame, *xhttp2.GoAwayFrame:
				return // net/http refuses it
			case *xhttp2.HeadersFrame:
				select {
				case got := <-theirs:
					if got != seen[0] {
						t.Errorf("net/http reads %q, the engine %q", got, seen[0])
					}
				default: // net/http answers it itself
				}
				return
			}
		}
	})
}
