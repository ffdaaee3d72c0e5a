package http2_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"github.com/edgelimit/edge/internal/bubble"
)

// TestStates checks how streams and the connection end, and how much the connection's window opens, after frames that
// violate RFC 9113 or that the node does not need. Each step is sent once the node has handled the previous one.
func TestStates(t *testing.T) {
	const early, brief = get + "\x04\x06/early", get + "\x04\x06/brief"
	const length = held + "\x0f\x0d\x011" // Content-Length: 1
	open := func(end bool, block string) func(*writer) { return func(w *writer) { w.open(end, block) } }
	data := func(id uint32, frames, size int) func(*writer) {
		return func(w *writer) {
			for range frames {
				_ = w.WriteData(id, false, make([]byte, size))
			}
		}
	}
	end := func(id uint32) func(*writer) { return func(w *writer) { _ = w.WriteData(id, true, nil) } }
	reset := func(id uint32) func(*writer) {
		return func(w *writer) { _ = w.WriteRSTStream(id, xhttp2.ErrCodeCancel) }
	}
	widen := func(id, n uint32) func(*writer) { return func(w *writer) { _ = w.WriteWindowUpdate(id, n) } }
	setting := func(n uint32) func(*writer) {
		return func(w *writer) { _ = w.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: n}) }
	}
	each := func(steps ...func(*writer)) func(*writer) {
		return func(w *writer) {
			for _, step := range steps {
				step(w)
			}
		}
	}
	all := func(step func(id uint32) func(*writer)) func(*writer) {
		return func(w *writer) {
			for n := range uint32(maxStreams) {
				step(2*n + 1)(w)
			}
		}
	}
	opens := func(block string, end bool) func(uint32) func(*writer) {
		return func(uint32) func(*writer) { return open(end, block) }
	}
	sums := func(id uint32) func(*writer) { return func(w *writer) { w.headers(id, true, literal("x-sum", "7")) } }
	many := func(code string) string { // of each stream
		var all []string
		for n := range maxStreams {
			all = append(all, fmt.Sprint(2*n+1, " ", code))
		}
		return strings.Join(all, ", ")
	}
	for _, tt := range []struct {
		name   string
		steps  []func(*writer)
		errors string // of streams, and of the connection
		window int    // KiB
	}{
		{"data beyond a stream's window", []func(*writer){open(false, held), data(1, 17, 16<<10)}, "1 FLOW_CONTROL_ERROR", 0},
		{"the same, is given back with the body", []func(*writer){each(open(false, brief), data(1, 17, 16<<10))}, "1 FLOW_CONTROL_ERROR", 272},
		{"data beyond the connection's window", []func(*writer){
			each(open(false, held), data(1, 16, 16<<10), open(false, held), data(3, 16, 16<<10), open(false, held), data(5, 16, 16<<10), open(false, held), data(7, 16, 16<<10)),
			each(open(false, held), data(9, 1, 1)),
		}, "FLOW_CONTROL_ERROR", 0},
		{"data within it", []func(*writer){open(false, brief), data(1, 16, 16<<10), end(1), open(false, brief), data(3, 16, 16<<10), end(3),
			open(false, brief), data(5, 16, 16<<10), end(5), open(false, brief), data(7, 16, 16<<10), end(7), open(false, brief), data(9, 16, 16<<10), end(9),
		}, "1 INTERNAL_ERROR, 3 INTERNAL_ERROR, 5 INTERNAL_ERROR, 7 INTERNAL_ERROR, 9 INTERNAL_ERROR", 5 * 256},
		{"more data than declared", []func(*writer){
			all(func(id uint32) func(*writer) { return each(open(false, length), data(id, 1, 8<<10)) }),
		}, many("PROTOCOL_ERROR"), maxStreams * 8},
		{"data after the end", []func(*writer){open(true, held), data(1, 1, 1)}, "1 STREAM_CLOSED", 0},
		{"data for a stream that was not opened", []func(*writer){data(1, 1, 1)}, "PROTOCOL_ERROR", 0},
		{"reset of a stream that was not opened", []func(*writer){reset(1)}, "PROTOCOL_ERROR", 0},
		{"a window of a stream that was not opened", []func(*writer){widen(1, 1)}, "PROTOCOL_ERROR", 0},
		{"a reset stream is ignored", []func(*writer){open(false, held), reset(1), data(1, 1, 1), widen(1, 1)}, "1 STREAM_CLOSED", 0},
		{"a stream that the node has reset is ignored", []func(*writer){open(false, refused), data(1, 1, 1), sums(1), widen(1, 1), reset(1)}, "1 NO_ERROR", 0},
		{"the last of many that the node has reset", []func(*writer){all(opens(refused, false)), all(sums)},
			many("NO_ERROR"), 0},
		{"a header for a stream that has ended", []func(*writer){open(true, refused), sums(1)}, "STREAM_CLOSED", 0},
		{"a header for a stream that the client has ended", []func(*writer){open(true, held), sums(1)}, "STREAM_CLOSED", 0},
		{"padding of more than the frame", []func(*writer){open(false, held), func(w *writer) { _ = w.WriteRawFrame(xhttp2.FrameData, 8, 1, []byte{2, 0}) }}, "PROTOCOL_ERROR", 0},
		{"padding of a whole frame", []func(*writer){open(false, held), func(w *writer) { _ = w.WriteRawFrame(xhttp2.FrameData, 8, 1, []byte{1, 0}) }}, "", 0},
		{"a request after the final GOAWAY", []func(*writer){leave, each(open(false, held), data(5, 1, 1), sums(5))}, "", 0},
		{"an even stream", []func(*writer){func(w *writer) { w.headers(2, true, refused) }}, "PROTOCOL_ERROR", 0},
		{"a window that overflows", []func(*writer){open(true, held), widen(1, 1<<31-65536), widen(1, 1)}, "1 FLOW_CONTROL_ERROR", 0},
		{"a connection's window that overflows", []func(*writer){widen(0, 1<<31-65536), widen(0, 1)}, "FLOW_CONTROL_ERROR", 0},
		{"a setting that makes a window overflow", []func(*writer){open(true, held), widen(1, 1<<31-65536), setting(65536)}, "FLOW_CONTROL_ERROR", 0},
		{"a setting that makes windows smaller", []func(*writer){open(true, held), widen(1, 1<<31-65536), setting(65535 - 2), widen(1, 2), widen(1, 1)}, "1 FLOW_CONTROL_ERROR", 0},
		{"streams that were reset occupy their places", []func(*writer){all(opens(held, true)), all(reset), open(true, held)}, "65 REFUSED_STREAM", 0},
		{"they are free when their requests have ended", []func(*writer){each(all(opens(brief, true)), all(reset)), open(true, held)}, "", 0},
		{"bodies of requests that were answered early", []func(*writer){open(false, early), data(1, 16, 16<<10), data(1, 1, 16<<10)}, "1 NO_ERROR", 256},
		{"ends of such bodies free the places", []func(*writer){all(opens(early, false)), all(end), open(true, held)}, "", 0},
		{"trailers of such bodies do so, too", []func(*writer){all(opens(early, false)), all(sums), open(true, held)}, "", 0},
		{"without an end they do not", []func(*writer){all(opens(early, false)), open(true, held)}, "65 REFUSED_STREAM", 0},
		{"small data for a request that was answered early", []func(*writer){open(false, early), data(1, 1100, 1)}, "ENHANCE_YOUR_CALM", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				tt.steps = append(tt.steps, func(w *writer) { _ = w.WritePing(true, [8]byte{}) }) // after the last one
				in, sleep := input{each: func(w *writer, n int) { tt.steps[n](w) }}, map[int]time.Duration{}
				units, _ := in.units(len(tt.steps))
				for n := range units {
					sleep[n] = 2 * time.Second
				}
				conn := serve(units, sleep)
				if got := strings.Join(conn.errors, ", "); got != tt.errors {
					t.Errorf("errors %q, want %q", got, tt.errors)
				}
				if got := conn.windows[0] - (1<<20 - 65535); got != tt.window<<10 {
					t.Errorf("the connection's window opens by %d KiB, want %d", got>>10, tt.window)
				}
			})
		})
	}
}
