package async

import (
	"testing"
	"unsafe"
)

// There may be a million tracks. The next larger class of allocations has 256 bytes.
func TestTrackSize(t *testing.T) {
	if size := unsafe.Sizeof(track{}); size > 240 {
		t.Errorf("a track has %d bytes, want at most 240", size)
	}
}
