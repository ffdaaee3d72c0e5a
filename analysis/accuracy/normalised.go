package accuracy

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"strconv"
)

// A normalised hashes the part of a log that counting depends on: for each request a line
// "t<TAB>number\n", where t is the time in seconds since the epoch, with as many fractional
// digits as needed, and number is that of the client, from 0 in order of first appearance.
// Two readers of a log that compute the same hash have seen the same requests.
type normalised struct {
	line  []byte
	blank chan []byte
	full  chan []byte
	sum   chan hash.Hash
	text  []byte // of second
	at    int64  // the second that text stands for
}

const hashAtOnce = 64 << 10

func newNormalised() *normalised {
	n := &normalised{blank: make(chan []byte, 4), full: make(chan []byte, 2), sum: make(chan hash.Hash), at: -1 << 63}
	n.line = make([]byte, 0, hashAtOnce)
	for range 3 {
		n.blank <- make([]byte, 0, hashAtOnce)
	}
	return n
}

// run hashes the lines that it is passed, until finish.
func (n *normalised) run() {
	h := sha256.New()
	for b := range n.full {
		h.Write(b)
		n.blank <- b[:0]
	}
	n.sum <- h
}

// add hashes a request at t, in microseconds.
func (n *normalised) add(t int64, number uint32) {
	s := second(t)
	if s != n.at {
		n.at, n.text = s, strconv.AppendInt(n.text[:0], s, 10)
	}
	b := append(n.line, n.text...)
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
	n.line = append(b, '\n')
	if len(n.line) > hashAtOnce-64 {
		n.full <- n.line
		n.line = <-n.blank
	}
}

// finish returns the hash in hexadecimal.
func (n *normalised) finish() string {
	n.full <- n.line
	close(n.full)
	return hex.EncodeToString((<-n.sum).Sum(nil))
}
