package accuracy

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"strconv"
)

// A normalizer hashes the part of a log that counting depends on: for each request a line
// "t<TAB>number\n", where t is the time in seconds since the epoch, with as many fractional
// digits as needed, and number is that of the client, from 0 in order of first appearance.
// Two readers of a log that compute the same hash have seen the same requests.
type normalizer struct {
	hash  hash.Hash
	lines *bufio.Writer // to hash
	last  int64         // time of the last request
	text  []byte        // and its part of the line
}

func newNormalizer() *normalizer {
	h := sha256.New()
	return &normalizer{hash: h, lines: bufio.NewWriterSize(h, 64<<10)}
}

// add hashes a request at t, in microseconds.
func (n *normalizer) add(t int64, number uint32) {
	if n.text == nil || t != n.last {
		n.last, n.text = t, strconv.AppendFloat(n.text[:0], float64(t)/1e6, 'f', -1, 64) // exact up to the year 2255
		n.text = append(n.text, '\t')
	}
	b := strconv.AppendUint(append(n.lines.AvailableBuffer(), n.text...), uint64(number), 10)
	_, _ = n.lines.Write(append(b, '\n')) // a hash never fails
}

// finish returns the hash in hexadecimal.
func (n *normalizer) finish() string {
	_ = n.lines.Flush()
	return hex.EncodeToString(n.hash.Sum(nil))
}
