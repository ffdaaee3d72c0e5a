package accesslog

import (
	"bytes"

	"github.com/dchest/siphash"
)

// clientOf names a client. Its hash is not keyed: to find two names with the same 127
// bits of it is out of reach, and the same log is to give the same clients every time.
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
