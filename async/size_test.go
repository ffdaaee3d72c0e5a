package async

import (
	"testing"
	"unsafe"
)

// There may be a million tracks. The next larger class of allocations has 240 bytes.
func TestTrackSize(t *testing.T) {
	if size := unsafe.Sizeof(track{}); size > 224 {
		t.Errorf("a track has %d bytes, want at most 224", size)
	}
}
