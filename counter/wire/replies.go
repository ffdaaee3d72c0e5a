package wire

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

var (
	// ErrMalformed is wrapped by errors about a shard that does not speak the protocol.
	ErrMalformed = errors.New("malformed reply")

	// ErrUnusable is wrapped by errors about a shard that answers but cannot count.
	ErrUnusable = errors.New("the server refuses all commands")
)

// Malformed returns the error about a malformed line or value.
func Malformed(line []byte) error { return fmt.Errorf("%w: %.40q", ErrMalformed, line) }

const (
	// Longest is the maximum size of a value, in bytes. Counters have 20 digits, records 84 bytes. Longer values are
	// skipped.
	Longest = 128

	// MaxSkip is the maximum size of a skipped value, in bytes: memcached's largest item.
	MaxSkip = 1 << 20
)

// Replies reads the answers of one connection. The reader's buffer limits the length of lines.
type Replies struct {
	*bufio.Reader
	refill func() // called before more is read from the connection
}

// Line returns the next line without CRLF. It is valid until the next read.
func (r *Replies) Line() ([]byte, error) {
	if r.Buffered() == 0 {
		r.refill()
	}
	line, err := r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, Malformed(line)
	case err != nil:
		return nil, err
	case len(line) < 2 || line[len(line)-2] != '\r':
		return nil, Malformed(line)
	}
	return line[:len(line)-2], nil
}

// Value reads n bytes and CRLF, and appends the bytes to into if n is at most longest.
func (r *Replies) Value(n, longest int, into []byte) ([]byte, error) {
	if n <= longest {
		from := len(into)
		into = append(into, make([]byte, n+2)...)
		if _, err := io.ReadFull(r, into[from:]); err != nil {
			return into, err
		}
		if string(into[from+n:]) != "\r\n" {
			return into, Malformed(into[from+n:])
		}
		return into[:from+n], nil
	}
	for n += 2; n > 0; {
		r.refill()
		k, err := r.Discard(min(n, r.Size()))
		n -= k
		if err != nil {
			return into, err
		}
	}
	return into, nil
}
