package http2

import "sync"

// A part holds the bytes of a request's body that have arrived but not been sent yet. Space before them is
// reserved for a head or the size of a chunk, so that sending does not copy them.
type part struct{ b []byte }

// headroom is the size of the reserved space, in bytes. Longer heads are rare.
const headroom = 2 << 10

// parts is shared by all streams. A stream holds a part only while it has something to send.
var parts = sync.Pool{New: func() any { return &part{make([]byte, headroom, headroom+maxFrame)} }}

func (p *part) size() int {
	if p == nil {
		return 0
	}
	return len(p.b) - headroom
}

// behind returns head followed by p. The result is valid until p is freed; head must not be used afterwards.
func (p *part) behind(head []byte) []byte {
	if p == nil {
		return head
	}
	if len(head) > headroom {
		return append(head, p.b[headroom:]...)
	}
	all := p.b[headroom-len(head):]
	copy(all, head)
	return all
}

func (p *part) free() {
	if p != nil {
		p.b = p.b[:headroom]
		parts.Put(p)
	}
}
