// What is done for speed alone. BenchmarkEngine in package proxy, and the cases of bench/http that each comment names,
// show what it saves.

package http2

import "bytes"

// growStack grows the goroutine's stack to the size that an exchange needs. Growing it in deep calls would
// copy all frames several times, which is a sixth of the cost of a request (pass, 128 bytes, HTTP/2 over TLS).
//
//go:noinline
func growStack(i int) byte {
	var room [10 << 10]byte
	return room[i]
}

// repeats reports whether an identical block would decode to the same header: block does not change the dynamic
// table. The requests of a flood are mostly alike: the second one need not be decoded,
// converted and parsed (refuse, HTTP/2 over TLS).
func repeats(block []byte) bool {
	for len(block) > 0 {
		bits, strings := 4, 2
		switch b := block[0]; {
		case b >= 0x80: // RFC 7541, 6.1
			bits, strings = 7, 0
		case b >= 0x20: // 6.2.1, 6.3
			return false
		case b&0x0f > 0: // 6.2.2, 6.2.3
			strings = 1
		}
		for _, block = integer(block, bits); strings > 0; strings-- {
			var n int
			n, block = integer(block, 7)
			block = block[n:]
		}
	}
	return true
}

// A prepared is the header block of the last answer of a connection's reader. The refusals of a client are
// the same within a second, and encoding one costs more than comparing (refuse, HTTP/2 over TLS).
type prepared struct {
	status, length      int
	date, fields, block []byte
}

func (p *prepared) is(status int, date, fields []byte, length int) bool {
	return p.status == status && p.length == length && bytes.Equal(p.date, date) && bytes.Equal(p.fields, fields)
}

// set encodes lines, which AppendOwn has made of the other parameters.
func (p *prepared) set(status int, date, fields []byte, length int, lines []byte) (block []byte) {
	p.status, p.length, p.date, p.fields = status, length, date, append(p.fields[:0], fields...)
	p.block = AppendLines(appendStatus(p.block[:0], status), lines, appendField)
	return p.block
}
