package memcached

import (
	"bytes"
	"strconv"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/wire"
)

// inGet is the maximum number of items that one command reads. Its line must stay below 2048 bytes: memcached treats
// more without a line end as an attack.
const inGet = 64

// zeros has as many digits as the greatest counter. New counters have that many, so that an INCR never changes the size
// of an item: a full memcached without eviction would refuse that.
const zeros = "00000000000000000000"

// A protocol is memcached's text protocol.
type protocol struct{}

// Append appends the commands of b.
func (protocol) Append(out []byte, ends []int, b *counter.Batch) ([]byte, []int) {
	var room [len(zeros)]byte
	for i := range b.Increments {
		op := &b.Increments[i]
		if op.Create {
			out = append(append(out, "add "...), op.Item[:]...)
			out = append(out, " 0 "...)
			out = strconv.AppendInt(out, int64(op.TTL), 10)
			out = append(out, " 20 noreply\r\n"...)
			start := strconv.AppendUint(room[:0], op.Start, 10)
			out = append(append(append(out, zeros[len(start):]...), start...), "\r\n"...)
		}
		out = append(append(out, "incr "...), op.Item[:]...)
		out = append(out, ' ')
		out = strconv.AppendUint(out, op.Delta, 10)
		out = append(out, "\r\n"...)
		ends = append(ends, len(out))
	}
	for i := range b.Stores {
		op := &b.Stores[i]
		name := "add "
		if op.CAS != 0 {
			name = "cas "
		}
		out = append(append(out, name...), op.Item[:]...)
		out = append(out, " 0 "...)
		out = strconv.AppendInt(out, int64(op.TTL), 10)
		out = append(out, ' ')
		out = strconv.AppendInt(out, int64(len(op.Value)), 10)
		if op.CAS != 0 {
			out = append(out, ' ')
			out = strconv.AppendUint(out, op.CAS, 10)
		}
		out = append(out, "\r\n"...)
		out = append(append(out, op.Value...), "\r\n"...)
		ends = append(ends, len(out))
	}
	for i := range b.Reads {
		if i%inGet == 0 {
			out = append(out, "gets"...)
		}
		out = append(append(out, ' '), b.Reads[i].Item[:]...)
		if i%inGet == inGet-1 || i == len(b.Reads)-1 {
			out = append(out, "\r\n"...)
		}
	}
	if b.Len() == 0 {
		out = append(out, "version\r\n"...)
	}
	return out, ends
}

// Read reads the answers.
func (protocol) Read(r *wire.Replies, b *counter.Batch) (again bool, err error) {
	if b.Len() == 0 {
		line, err := r.Line()
		if err == nil && !bytes.HasPrefix(line, []byte("VERSION ")) {
			err = wire.Malformed(line)
		}
		return false, err
	}
	for i := range b.Increments {
		line, err := r.Line()
		if err != nil {
			return false, err
		}
		op := &b.Increments[i]
		switch value, ok := counter.ParseValue(line); {
		case ok:
			op.Outcome, op.Value = counter.Done, value
		case string(line) == "NOT_FOUND":
			op.Outcome = counter.Absent
		case isError(line):
			op.Outcome = counter.Refused
		default:
			return false, wire.Malformed(line)
		}
	}
	for i := range b.Stores {
		line, err := r.Line()
		if err != nil {
			return false, err
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
			return false, wire.Malformed(line) // the value may be read as a command
		}
	}
	for from := 0; from < len(b.Reads); from += inGet {
		if err := readValues(r, b, b.Reads[from:min(from+inGet, len(b.Reads))]); err != nil {
			return false, err
		}
	}
	return false, nil
}

// readValues reads the answer to one command, which omits items that do not exist.
func readValues(r *wire.Replies, b *counter.Batch, reads []counter.Read) error {
	next := 0
	for {
		line, err := r.Line()
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
		name, rest, _ := bytes.Cut(line, []byte(" "))
		item, rest, _ := bytes.Cut(rest, []byte(" "))
		_, rest, _ = bytes.Cut(rest, []byte(" ")) // flags
		length, unique, _ := bytes.Cut(rest, []byte(" "))
		size, ok := counter.ParseValue(length)
		cas, okCAS := counter.ParseValue(unique)
		if string(name) != "VALUE" || !ok || !okCAS || size > wire.MaxSkip {
			return wire.Malformed(line)
		}
		for next < len(reads) && string(reads[next].Item[:]) != string(item) {
			reads[next].Outcome = counter.Absent
			next++
		}
		if next == len(reads) {
			return wire.Malformed(line)
		}
		op, from := &reads[next], len(b.Values)
		next++
		if b.Values, err = r.Value(int(size), wire.Longest, b.Values); err != nil {
			return err
		}
		op.Outcome, op.CAS, op.Value = counter.Done, cas, b.Values[from:len(b.Values):len(b.Values)]
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
