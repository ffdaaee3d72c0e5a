package http3_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/quic-go/quic-go"
)

// A client whose unidirectional streams violate RFC 9114, 6.2 and 7.2, loses its connection. Other streams and frames
// do not matter: the connection ends with the control stream.
func TestControlStream(t *testing.T) {
	const settings, goAway, grease = "\x04\x00", "\x07\x01\x00", "\x21\x03abc"
	for _, tt := range []struct {
		name    string
		streams []string
		end     bool // the last stream ends
		code    uint64
	}{
		{"frames that may occur", []string{"\x02", "\x03", "\x21abc", "\x40\x00" + settings + grease + "\x03\x01\x00\x0d\x01\x01" + goAway}, true, 0x104},
		{"no settings", []string{"\x00" + grease}, false, 0x10a},
		{"settings twice", []string{"\x00" + settings + settings}, false, 0x105},
		{"data", []string{"\x00" + settings + "\x00\x00"}, false, 0x105},
		{"a frame of HTTP/2", []string{"\x00" + settings + grease + "\x06\x00"}, false, 0x105},
		{"the end of the stream", []string{"\x00" + settings}, true, 0x104},
		{"the end within a frame", []string{"\x00\x04\x05"}, true, 0x104},
		{"a push", []string{"\x01\x00"}, false, 0x103},
		{"frames without end", []string{"\x00" + settings + strings.Repeat("\x21\x00", 500)}, false, 0x107},
		{"a frame without end", []string{"\x00\x04\xff\xff\xff\xff\xff\xff\xff\xff" + strings.Repeat("\x00", 50_000)}, false, 0x107},
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
