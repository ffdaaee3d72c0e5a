package conns

import (
	"math/bits"
	"sync"
	"unsafe"
)

// minBuffer is the size of the smallest buffers, in bytes.
const minBuffer = 4 << 10

// buffers are shared by all connections; idle connections hold none. Each pool has buffers of twice the size of the one
// before. It holds pointers to their first bytes, because a slice in an interface would be allocated.
var buffers [7]sync.Pool

// NewBuffer returns a buffer of at least size bytes. Its content is undefined.
func NewBuffer(size int) []byte {
	class := bits.Len(uint(max(size, 1)-1) / minBuffer)
	if class < len(buffers) {
		size = minBuffer << class
		if first, ok := buffers[class].Get().(*byte); ok {
			return unsafe.Slice(first, size)
		}
	}
	return make([]byte, size)
}

// Grow returns b, or a larger buffer with the same bytes that replaces it, so that n more bytes can be appended.
func Grow(b []byte, n int) []byte {
	if len(b)+n <= cap(b) {
		return b
	}
	larger := append(NewBuffer(max(len(b)+n, 2*cap(b)))[:0], b...)
	FreeBuffer(b)
	return larger
}

// FreeBuffer makes b available to NewBuffer. Nothing may refer to it afterwards.
func FreeBuffer(b []byte) {
	if class := bits.Len(uint(cap(b)/minBuffer)) - 1; class >= 0 && class < len(buffers) {
		buffers[class].Put(unsafe.SliceData(b))
	}
}
