package http2

import "sync"

// A part is what has come of a request's body and is not sent yet. It is behind room for what the origin gets before
// it, a head or the size of a chunk, so that nothing of it is copied to be sent.
type part struct{ b []byte }

// headroom is that room, in bytes. Few heads are longer.
const headroom = 2 << 10

// parts are shared: a stream has one only while it has something to send, and bodies do not grow from nothing each time.
var parts = sync.Pool{New: func() any { return &part{make([]byte, headroom, headroom+maxFrame)} }}

func (p *part) size() int {
	if p == nil {
		return 0
	}
	return len(p.b) - headroom
}

// behind returns head followed by p. Neither may be used afterwards, but p may be freed.
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
