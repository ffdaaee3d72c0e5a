package http3_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/quic-go/quic-go"
)

// A client whose unidirectional streams violate RFC 9114, 6.2 and 7.2, loses its connection. Other streams and frames
// do not matter: the connection ends with the control stream, or one of QPACK (RFC 9204, 4.2).
func TestControlStream(t *testing.T) {
	const settings, goAway, maxPush, grease = "\x04\x00", "\x07\x01", "\x0d\x01", "\x21\x03abc"
	for _, tt := range []struct {
		name    string
		streams []string
		end     bool // the last stream ends
		code    uint64
	}{
		{"frames that may occur", []string{"\x02", "\x03", "\x21abc", "\x40\x00" + settings + grease + maxPush + "\x01" + maxPush + "\x01" + goAway + "\x01" + goAway + "\x00"}, true, 0x104},
		{"settings that may occur", []string{"\x00\x04\x13\x01\x10\x06\x80\x01\x00\x00\x07\x00\x08\x01\x33\x01\x40\x40\x03\x40\x42\x03"}, true, 0x104},
		{"no settings", []string{"\x00" + grease}, false, 0x10a},
		{"settings twice", []string{"\x00" + settings + settings}, false, 0x105},
		{"a setting twice", []string{"\x00\x04\x04\x06\x01\x06\x01"}, false, 0x109},
		{"a setting of HTTP/2", []string{"\x00\x04\x04\x06\x01\x03\x01"}, false, 0x109},
		{"a setting without a value", []string{"\x00\x04\x03\x06\x01\x07" + grease}, false, 0x106},
		{"a setting with a truncated value", []string{"\x00\x04\x02\x06\x40" + grease}, false, 0x106},
		{"data", []string{"\x00" + settings + "\x00\x00"}, false, 0x105},
		{"a frame of HTTP/2", []string{"\x00" + settings + grease + "\x06\x00"}, false, 0x105},
		{"a push that is canceled", []string{"\x00" + settings + "\x03\x01\x00"}, false, 0x108},
		{"fewer pushes than before", []string{"\x00" + settings + maxPush + "\x02" + maxPush + "\x01"}, false, 0x108},
		{"no number of pushes", []string{"\x00" + settings + "\x0d\x00" + grease}, false, 0x106},
		{"going away later than before", []string{"\x00" + settings + goAway + "\x01" + goAway + "\x02"}, false, 0x108},
		{"going away with more than an ID", []string{"\x00" + settings + "\x07\x02\x00\x00"}, false, 0x106},
		{"the end of the stream", []string{"\x00" + settings}, true, 0x104},
		{"the end within a frame", []string{"\x00\x04\x05"}, true, 0x104},
		{"the end of the encoder's stream", []string{"\x00" + settings, "\x02"}, true, 0x104},
		{"the end of the decoder's stream", []string{"\x03\x41"}, true, 0x104},
		{"a second control stream", []string{"\x00" + settings, "\x00"}, false, 0x103},
		{"a second encoder", []string{"\x02", "\x00" + settings, "\x02"}, false, 0x103},
		{"a second decoder", []string{"\x03", "\x03"}, false, 0x103},
		{"a push", []string{"\x01\x00"}, false, 0x103},
		{"frames without end", []string{"\x00" + settings + strings.Repeat("\x21\x00", 500)}, false, 0x107},
		{"settings without end", []string{"\x00\x04\xff\xff\xff\xff\xff\xff\xff\xff" + strings.Repeat("\x21", 50_000)}, false, 0x107},
		{"a frame without end", []string{"\x00" + settings + "\x21\xff\xff\xff\xff\xff\xff\xff\xff" + strings.Repeat("\x21", 50_000)}, false, 0x107},
	} {
		t.Run(tt.name, func(t *testing.T) {
			addr, _, _ := start(t, nil)
			c := dial(t, addr)
			for i, text := range tt.streams {
				s, err := c.OpenUniStream()
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.WriteString(s, text) // the server may close the connection
				if tt.end && i == len(tt.streams)-1 {
					_ = s.Close()
				}
			}
			<-c.Context().Done()
			if e, ok := context.Cause(c.Context()).(*quic.ApplicationError); !ok || uint64(e.ErrorCode) != tt.code {
				t.Errorf("the connection ends with %v, want %#x", context.Cause(c.Context()), tt.code)
			}
		})
	}
}

// The node stops reading streams of unknown types. A client may end streams of QPACK before it says that they are.
func TestUnknownStreams(t *testing.T) {
	addr, h, _ := start(t, nil)
	c := dial(t, addr)
	for _, text := range []string{"", "\x21abc", "\x21abc"} {
		s, err := c.OpenUniStream()
		if err == nil {
			_, err = io.WriteString(s, text)
		}
		if err != nil {
			t.Fatal(err)
		}
		if text == "" {
			_ = s.Close()
			continue
		}
		<-s.Context().Done()
		if e, ok := context.Cause(s.Context()).(*quic.StreamError); !ok || e.ErrorCode != 0x103 {
			t.Errorf("the stream ends with %v, want H3_STREAM_CREATION_ERROR", context.Cause(s.Context()))
		}
	}
	if whole, err := io.ReadAll(send(t, c, get, true)); err != nil || len(h.malformed) > 0 {
		t.Errorf("%q, %v; %d malformed requests", whole, err, len(h.malformed))
	}
}
