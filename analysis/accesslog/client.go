package accesslog

import (
	"bytes"

	"github.com/dchest/siphash"
)

// clientOf returns the Client of a name. The key of the hash is fixed, so that the same log
// always has the same clients; finding two names with the same 127 bits is infeasible.
func clientOf(name []byte) (c Client) {
	if len(name) < len(c) && bytes.IndexByte(name, 0) < 0 {
		copy(c[:], name)
		return c
	}
	return hashed(name)
}

func hashed(name []byte) (c Client) {
	lo, hi := siphash.Hash128(0x656467652e6c6f67, 0x636c69656e742d31, name)
	for i := range 8 {
		c[i], c[8+i] = byte(lo>>(8*i)), byte(hi>>(8*i))
	}
	c[15] |= 0x80
	return c
}
