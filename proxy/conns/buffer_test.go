package conns_test

import (
	"bytes"
	"testing"

	"github.com/edgelimit/edge/proxy/conns"
)

func TestBuffersHaveRoom(t *testing.T) {
	for _, size := range []int{0, 1, 4095, 4096, 4097, 16 << 10, 256 << 10, 256<<10 + 1, 3 << 20} {
		b := conns.NewBuffer(size)
		if len(b) < size {
			t.Errorf("NewBuffer(%d) has %d bytes", size, len(b))
		}
		conns.FreeBuffer(b[:0])
		conns.FreeBuffer(make([]byte, size)) // such as a buffer that append has replaced
	}
	conns.FreeBuffer(nil)
	if b := conns.NewBuffer(8 << 10); len(b) < 8<<10 {
		t.Errorf("after other buffers were freed, a buffer of 8 KB has %d bytes", len(b))
	}
}

// A buffer that grows byte by byte keeps its content, and is rarely copied.
func TestBuffersGrow(t *testing.T) {
	var b, want []byte
	copies := 0
	for i := range 1 << 20 {
		larger := conns.Grow(b, 1)
		if cap(larger) != cap(b) {
			copies++
		}
		b, want = append(larger, byte(i>>8)), append(want, byte(i>>8))
	}
	if !bytes.Equal(b, want) || copies > 9 {
		t.Errorf("the content differs, or the buffer was replaced %d times, want 9", copies)
	}
}
