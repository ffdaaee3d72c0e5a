package http2_test

import (
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"github.com/edgelimit/edge/internal/bubble"
)

// A connection has a burst of frames beyond what its requests need, and earns 20 a second up to that burst. So
// it has no more after an hour, whether it has used some before or not.
func TestOverhead(t *testing.T) {
	pings := input{each: func(w *writer, _ int) { _ = w.WritePing(false, [8]byte{}) }}
	settings := 1 // is a frame, too
	for _, tt := range []struct {
		name  string
		sleep map[int]time.Duration
		want  int // pings
	}{
		{"at once", nil, 1000 - settings},
		{"after an hour", map[int]time.Duration{1: time.Hour}, 1000},
		{"in the middle", map[int]time.Duration{501: 10 * time.Second}, 1000 - settings + 200},
		{"at the end", map[int]time.Duration{1000: 10 * time.Second}, 1000 - settings + 200},
		{"an hour in the middle", map[int]time.Duration{501: time.Hour}, 500 + 1000},
		{"bit by bit", map[int]time.Duration{500: 74 * time.Millisecond, 501: 74 * time.Millisecond, 502: 74 * time.Millisecond}, 1000 - settings + 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				units, _ := pings.units(3000)
				// The read after an idle time costs nothing, and the last one ends the connection.
				if got := serve(units, tt.sleep).read - 1; got < tt.want || got > tt.want+2 {
					t.Errorf("%d pings, want %d", got, tt.want)
				}
			})
		})
	}
}

// Requests and their answers earn as many frames as they need, up to the burst: those before a flood do not extend it.
func TestRequestsEarnNoBursts(t *testing.T) {
	const early = get + "\x04\x06/early"
	for _, block := range []string{refused, early} {
		bubble.Test(t, func(t *testing.T) {
			const n = 1000
			in := input{each: func(w *writer, i int) {
				if i < n {
					w.open(true, block)
				} else {
					_ = w.WritePing(false, [8]byte{})
				}
			}}
			units, _ := in.units(3 * n)
			sleep := map[int]time.Duration{}
			for i := range n + 1 {
				sleep[1+i] = time.Microsecond // the node answers, also before the first ping
			}
			if got := serve(units, sleep).read - 1 - n; got < 1000 || got > 1002 {
				t.Errorf("%d pings after %q, want 1000", got, block)
			}
		})
	}
}

// A stream that the client resets costs five frames.
func TestResetsCost(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		in := input{
			first: func(w *writer) {
				holdStreams("")(w)
				for n := range uint32(maxStreams) {
					_ = w.WriteRSTStream(2*n+1, xhttp2.ErrCodeCancel)
				}
			},
			each: func(w *writer, _ int) { _ = w.WritePing(false, [8]byte{}) },
		}
		units, _ := in.units(2000)
		const want = 1000 - 5*maxStreams
		if got := serve(units, nil).read - 1; got < want || got > want+2 {
			t.Errorf("%d pings, want %d", got, want)
		}
	})
}

// Padding is given back to the windows of streams and of the connection when it arrives: no origin reads it.
func TestWindowsOfPadding(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const each, data = 1000, 1
		in := input{
			first: func(w *writer) {
				for range 2 {
					w.open(false, held)
				}
			},
			each: func(w *writer, n int) {
				_ = w.WriteDataPadded(uint32(1+n%2*2), false, make([]byte, data), make([]byte, 255))
			},
		}
		units, _ := in.units(2 * each)
		conn := serve(units, nil)
		const padding = each * 256
		for id, want := range map[uint32]int{0: 1<<20 - 65535 + 256<<10, 1: padding, 3: padding} {
			if got := conn.windows[id]; got < want-64<<10 || got > max(want, 1<<20-65535+2*padding) {
				t.Errorf("stream %d: the window opens by %d bytes, want about %d", id, got, want)
			}
		}
		if conn.ended || len(conn.errors) > 0 {
			t.Errorf("errors: %v", conn.errors)
		}
	})
}
