package memcached

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/edgelimit/edge/counter"
)

// A Batch holds the operations of one exchange with a shard: increments, then stores, then reads.
// The zero value is empty; [Batch.Reset] empties it for reuse. A Batch is not safe for concurrent
// use.
type Batch struct {
	Increments []counter.Increment
	Stores     []counter.Store
	Reads      []counter.Read

	out  []byte // commands
	ends []int  // of the increments and stores in out
	in   []byte // values that were read
}

// Reset empties the batch.
func (b *Batch) Reset() {
	b.Increments, b.Stores, b.Reads = b.Increments[:0], b.Stores[:0], b.Reads[:0]
}

// Len returns the number of operations in the batch.
func (b *Batch) Len() int { return len(b.Increments) + len(b.Stores) + len(b.Reads) }

const (
	// inGet is how many items one command reads. Its line must stay below 2048 bytes:
	// memcached treats a longer line without an end as an attack.
	inGet = 64

	// maxValue is the maximum size of a value, in bytes. Counters have 20 digits, records
	// 84 bytes. Longer values are skipped.
	maxValue = 128

	// maxSkip is the maximum size of a skipped value, in bytes: memcached's largest item.
	maxSkip = 1 << 20
)

// digits is the width of a new counter, that of the greatest value, so that an INCR never changes the size of an
// item: a full memcached without eviction would refuse that.
const digits = 20

// appendCounter appends n with leading zeros.
func appendCounter(b []byte, n uint64) []byte {
	var text [digits]byte
	for i := range slices.Backward(text[:]) {
		text[i], n = '0'+byte(n%10), n/10
	}
	return append(b, text[:]...)
}

// encode writes the commands.
func (b *Batch) encode() {
	b.out, b.ends = b.out[:0], b.ends[:0]
	for i := range b.Increments {
		op := &b.Increments[i]
		if op.Create {
			b.out = append(append(b.out, "add "...), op.Item[:]...)
			b.out = append(b.out, " 0 "...)
			b.out = strconv.AppendInt(b.out, int64(op.TTL), 10)
			b.out = append(b.out, " 20 noreply\r\n"...)
			b.out = append(appendCounter(b.out, op.Start), "\r\n"...)
		}
		b.out = append(append(b.out, "incr "...), op.Item[:]...)
		b.out = append(b.out, ' ')
		b.out = strconv.AppendUint(b.out, op.Delta, 10)
		b.out = append(b.out, "\r\n"...)
		b.ends = append(b.ends, len(b.out))
	}
	for i := range b.Stores {
		op := &b.Stores[i]
		name := "add "
		if op.CAS != 0 {
			name = "cas "
		}
		b.out = append(append(b.out, name...), op.Item[:]...)
		b.out = append(b.out, " 0 "...)
		b.out = strconv.AppendInt(b.out, int64(op.TTL), 10)
		b.out = append(b.out, ' ')
		b.out = strconv.AppendInt(b.out, int64(len(op.Value)), 10)
		if op.CAS != 0 {
			b.out = append(b.out, ' ')
			b.out = strconv.AppendUint(b.out, op.CAS, 10)
		}
		b.out = append(b.out, "\r\n"...)
		b.out = append(append(b.out, op.Value...), "\r\n"...)
		b.ends = append(b.ends, len(b.out))
	}
	for i := range b.Reads {
		if i%inGet == 0 {
			b.out = append(b.out, "gets"...)
		}
		b.out = append(append(b.out, ' '), b.Reads[i].Item[:]...)
		if i%inGet == inGet-1 || i == len(b.Reads)-1 {
			b.out = append(b.out, "\r\n"...)
		}
	}
	if b.Len() == 0 {
		b.out = append(b.out, "version\r\n"...)
	}
}

// prepare resets the outcomes to those of a batch that was not sent.
func (b *Batch) prepare() {
	b.in = b.in[:0]
	for i := range b.Increments {
		b.Increments[i].Outcome = counter.NotSent
	}
	for i := range b.Stores {
		b.Stores[i].Outcome = counter.NotSent
	}
	for i := range b.Reads {
		b.Reads[i].Outcome, b.Reads[i].Value = counter.NotSent, nil
	}
}

// broke sets the outcomes after at most this many bytes were written: an operation without an
// answer is Unknown if the shard may have read it.
func (b *Batch) broke(written int) {
	start := 0
	for i, end := range b.ends {
		var outcome *counter.Outcome
		if stores := i - len(b.Increments); stores < 0 {
			outcome = &b.Increments[i].Outcome
		} else {
			outcome = &b.Stores[stores].Outcome
		}
		if *outcome == counter.NotSent && start < written {
			*outcome = counter.Unknown
		}
		start = end
	}
}

// errMalformed is returned if a shard does not speak memcached's protocol.
var errMalformed = errors.New("malformed reply")

func malformed(line []byte) error {
	return fmt.Errorf("%w: %.40q", errMalformed, line)
}

// replies reads the answers of one connection. The reader's buffer limits the length of lines.
type replies struct {
	*bufio.Reader
	refill func() // called before more is read from the connection
}

// line returns the next line without CRLF. It is valid until the next read.
func (r *replies) line() ([]byte, error) {
	if r.Buffered() == 0 {
		r.refill()
	}
	line, err := r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, malformed(line)
	case err != nil:
		return nil, err
	case len(line) < 2 || line[len(line)-2] != '\r':
		return nil, malformed(line)
	}
	return line[:len(line)-2], nil
}

// value reads n bytes and CRLF, and appends the bytes to into if they are at most maxValue.
func (r *replies) value(n int, into []byte) ([]byte, error) {
	if n <= maxValue {
		from := len(into)
		into = append(into, make([]byte, n+2)...)
		if _, err := io.ReadFull(r, into[from:]); err != nil {
			return into, err
		}
		if string(into[from+n:]) != "\r\n" {
			return into, malformed(into[from+n:])
		}
		return into[:from+n], nil
	}
	for n += 2; n > 0; {
		r.refill()
		k, err := r.Discard(min(n, r.Size()))
		if n -= k; err != nil {
			return into, err
		}
	}
	return into, nil
}

// decode reads the answers. After an error the connection must be closed; the outcomes of
// operations without an answer are unchanged.
func (b *Batch) decode(r *replies) error {
	if b.Len() == 0 {
		line, err := r.line()
		if err == nil && !bytes.HasPrefix(line, []byte("VERSION ")) {
			err = malformed(line)
		}
		return err
	}
	for i := range b.Increments {
		line, err := r.line()
		if err != nil {
			return err
		}
		op := &b.Increments[i]
		switch value, ok := parseDigits(line); {
		case ok:
			op.Outcome, op.Value = counter.Done, value
		case string(line) == "NOT_FOUND":
			op.Outcome = counter.Absent
		case isError(line):
			op.Outcome = counter.Refused
		default:
			return malformed(line)
		}
	}
	for i := range b.Stores {
		line, err := r.line()
		if err != nil {
			return err
		}
		op := &b.Stores[i]
		switch {
		case string(line) == "STORED":
			op.Outcome = counter.Done
		case string(line) == "NOT_STORED", string(line) == "EXISTS", string(line) == "NOT_FOUND":
			op.Outcome = counter.Absent
		case bytes.HasPrefix(line, []byte("SERVER_ERROR ")):
			op.Outcome = counter.Refused
		default:
			return malformed(line) // the value may be read as a command
		}
	}
	for from := 0; from < len(b.Reads); from += inGet {
		if err := b.decodeReads(b.Reads[from:min(from+inGet, len(b.Reads))], r); err != nil {
			return err
		}
	}
	return nil
}

// decodeReads reads the answer to one command, which omits items that do not exist.
func (b *Batch) decodeReads(reads []counter.Read, r *replies) error {
	next := 0
	for {
		line, err := r.line()
		if err != nil {
			return err
		}
		if string(line) == "END" {
			break
		}
		if isError(line) {
			for ; next < len(reads); next++ {
				reads[next].Outcome = counter.Refused
			}
			return nil
		}
		var fields [5][]byte
		if split(line, &fields) != len(fields) || string(fields[0]) != "VALUE" {
			return malformed(line)
		}
		size, ok := parseDigits(fields[3])
		cas, okCAS := parseDigits(fields[4])
		if !ok || !okCAS || size > maxSkip {
			return malformed(line)
		}
		for next < len(reads) && string(reads[next].Item[:]) != string(fields[1]) {
			reads[next].Outcome = counter.Absent
			next++
		}
		if next == len(reads) {
			return malformed(line)
		}
		op, from := &reads[next], len(b.in)
		next++
		if b.in, err = r.value(int(size), b.in); err != nil {
			return err
		}
		op.Outcome, op.CAS, op.Value = counter.Done, cas, b.in[from:len(b.in):len(b.in)]
	}
	for ; next < len(reads); next++ {
		reads[next].Outcome = counter.Absent
	}
	return nil
}

// isError reports whether a line is memcached's refusal of a command that carries no value.
func isError(line []byte) bool {
	return bytes.HasPrefix(line, []byte("SERVER_ERROR ")) || bytes.HasPrefix(line, []byte("CLIENT_ERROR "))
}

// split splits a line at its spaces and returns the number of fields, at most len(fields)+1.
func split(line []byte, fields *[5][]byte) (n int) {
	for n < len(fields) {
		at := bytes.IndexByte(line, ' ')
		if at < 0 {
			fields[n] = line
			return n + 1
		}
		fields[n], line = line[:at], line[at+1:]
		n++
	}
	return n + 1
}

// parseDigits parses a decimal number of at most 64 bits.
func parseDigits(text []byte) (n uint64, ok bool) {
	if len(text) > digits {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text), 10, 64)
	return n, err == nil
}
