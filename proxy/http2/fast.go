// This file only saves CPU time. Its comments name cases of bench/http that measure the gain; BenchmarkEngine in
// package proxy measures it, too.

package http2

import "bytes"

// growStack grows the goroutine's stack to the size that an exchange needs. If deep calls grew it, they would copy all
// frames several times, at a sixth of the cost of a request (pass, 128 bytes, HTTP/2 over TLS).
//
//go:noinline
func growStack(i int) byte {
	var room [10 << 10]byte
	return room[i]
}

// repeats reports whether an identical block would decode to the same header, because block does not change the dynamic
// table. The requests of a flood are mostly alike: the second one need not be decoded, converted and parsed (refuse,
// HTTP/2 over TLS).
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

// A preparedBlock is the header block of the last answer of a connection's reader, and what it was made of. A client's
// refusals within a second are the same, and comparing them costs less than encoding one (refuse, HTTP/2 over TLS).
type preparedBlock struct {
	status, length      int
	date, fields, block []byte
}

func (p *preparedBlock) is(status int, date, fields []byte, length int) bool {
	return p.status == status && p.length == length && bytes.Equal(p.date, date) && bytes.Equal(p.fields, fields)
}

// set encodes lines, which AppendOwn has made from the other parameters.
func (p *preparedBlock) set(status int, date, fields []byte, length int, lines []byte) (block []byte) {
	p.status, p.length, p.date, p.fields = status, length, date, append(p.fields[:0], fields...)
	p.block = AppendLines(appendStatus(p.block[:0], status), lines, appendField)
	return p.block
}
