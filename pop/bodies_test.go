package pop_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/quic-go/quic-go"
	"golang.org/x/net/http2"
)

// post returns the frame of a request with HTTP/3: POST, https and the path / from the static table, the authority a, and
// further fields.
func post(fields string) string {
	return fmt.Sprintf("\x01%c\x00\x00\xd4\xd7\xc1\x50\x01a%s", 8+len(fields), fields)
}

// length is the field Content-Length: 5.
const length = "\x54\x015"

// Bodies over HTTP/3 reach the origin whole, whatever frames follow them. Frames that end early, and data that differs
// from Content-Length, reset the stream or end the connection.
func TestBodiesOverHTTP3(t *testing.T) {
	const trailers, grease = "\x01\x08\x00\x00\x23x-a\x01b", "\x21\x01g"
	for _, tt := range []struct {
		name, text string
		got        string // by the origin
		code       uint64 // of the error
		closes     bool   // the error is the connection's
	}{
		{"unknown length", post("") + "\x00\x05hello", "hello ", 0, false},
		{"known length", post(length) + "\x00\x05hello", "hello ", 0, false},
		{"parts", post(length) + "\x00\x02he\x00\x03llo" + grease, "hello ", 0, false},
		{"trailers", post("") + "\x00\x05hello" + trailers, "hello b", 0, false},
		{"a frame after trailers", post("") + "\x00\x05hello" + trailers + grease, "hello b", 0, false},
		{"a frame after trailers of a GET", strings.Replace(post(""), "\xd4", "\xd1", 1) + trailers + grease, " ", 0, false},
		{"a truncated frame", post("") + "\x00\x06hello", "", 0x106, true},
		{"a frame that is truncated at Content-Length", post(length) + "\x00\x06hello", "", 0x10e, false},
		{"less than Content-Length", post(length) + "\x00\x04hell", "", 0x10e, false},
		{"more than Content-Length", post(length) + "\x00\x05hello\x00\x01!", "", 0x10e, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := startSecure(t, "rules: []", func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err == nil {
					if tt.code != 0 {
						t.Errorf("the origin gets %q as a whole body", body)
					}
					fmt.Fprintf(w, "[%s %s]", body, r.Trailer.Get("X-A"))
				}
			}, nil)
			conn := w.dialHTTP3()
			s, err := conn.OpenStream()
			if err == nil {
				_, err = io.WriteString(s, tt.text)
				_ = s.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(s)
			if tt.got != "" && (err != nil || !strings.Contains(string(answer), "["+tt.got+"]")) {
				t.Errorf("%q, %v; the origin must get %q", answer, err, tt.got)
			}
			stream, _ := errors.AsType[*quic.StreamError](err)
			closed, _ := errors.AsType[*quic.ApplicationError](err)
			switch {
			case tt.code == 0:
			case tt.closes && (closed == nil || uint64(closed.ErrorCode) != tt.code):
				t.Errorf("%q, %v; want the connection's error %#x", answer, err, tt.code)
			case !tt.closes && (stream == nil || uint64(stream.ErrorCode) != tt.code):
				t.Errorf("%q, %v; want the stream's error %#x", answer, err, tt.code)
			}
		})
	}
}

// A client may leave its stream open after the bytes that Content-Length announces. It gets the answer, and the
// connection to the origin serves further requests.
func TestOpenStreams(t *testing.T) {
	w := startSecure(t, "rules: []", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "[%s from %s]", body, r.RemoteAddr)
	}, nil)
	conn := w.dialHTTP3()
	client, in := w.dial(preface)
	frames := http2.NewFramer(io.Discard, in)
	fields := strings.Replace(request, "GET", "PUT", 1) + field("content-length", "5")
	var first string
	for i := range 6 {
		var answer []byte
		var err error
		if i%2 == 0 {
			s, _ := conn.OpenStream()
			_, _ = io.WriteString(s, post(length)+"\x00\x05hello")
			answer, err = io.ReadAll(s)
		} else {
			_, _ = io.WriteString(client, frame(headers, endHeaders, uint32(i), fields)+frame(0, 0, uint32(i), "hello"))
			for ended := false; err == nil && !ended; {
				var f http2.Frame
				if f, err = frames.ReadFrame(); err == nil && f.Header().Type == http2.FrameData {
					answer = append(answer, f.(*http2.DataFrame).Data()...)
					ended = f.(*http2.DataFrame).StreamEnded()
				}
			}
		}
		_, got, ok := strings.Cut(string(answer), "[hello from ")
		if err != nil || !ok || i > 0 && got != first {
			t.Fatalf("request %d: %q, %v; want the connection %q", i, answer, err, first)
		}
		first = got
	}
}
