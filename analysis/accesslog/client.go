package accesslog

import (
	"bytes"
	"encoding/binary"

	"github.com/dchest/siphash"
)

// clientOf returns the Client of a name. The key of the hash is fixed, so that the same log
// always has the same clients; finding two names with the same 127 bits is infeasible.
func clientOf(name []byte) (c Client) {
	if len(name) < len(c) && bytes.IndexByte(name, 0) < 0 {
		copy(c[:], name)
		return c
	}
	lo, hi := siphash.Hash128(0x656467652e6c6f67, 0x636c69656e742d31, name)
	binary.LittleEndian.PutUint64(c[:], lo)
	binary.LittleEndian.PutUint64(c[8:], hi)
	c[15] |= 0x80
	return c
}
