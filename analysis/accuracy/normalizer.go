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
	text  []byte        // of second
	at    int64         // the second that text stands for
}

func newNormalizer() *normalizer {
	h := sha256.New()
	return &normalizer{hash: h, lines: bufio.NewWriterSize(h, 64<<10), at: -1 << 63}
}

// add hashes a request at t, in microseconds.
func (n *normalizer) add(t int64, number uint32) {
	s := second(t)
	if s != n.at {
		n.at, n.text = s, strconv.AppendInt(n.text[:0], s, 10)
	}
	b := append(n.lines.AvailableBuffer(), n.text...)
	if fraction := t - s*1e6; fraction != 0 {
		digits := 1e6 + fraction // a 1, and six digits
		for digits%10 == 0 {
			digits /= 10
		}
		at := len(b)
		b = strconv.AppendInt(b, digits, 10)
		b[at] = '.'
	}
	b = append(b, '\t')
	b = strconv.AppendUint(b, uint64(number), 10)
	_, _ = n.lines.Write(append(b, '\n')) // a hash never fails
}

// finish returns the hash in hexadecimal.
func (n *normalizer) finish() string {
	_ = n.lines.Flush()
	return hex.EncodeToString(n.hash.Sum(nil))
}
