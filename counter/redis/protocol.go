package redis

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/wire"
)

// replace replaces a value if it is the one whose SHA-1 sum begins with ARGV[1], in hexadecimal digits.
const replace = `local old = redis.call('GET', KEYS[1])
if old and string.sub(redis.sha1hex(old), 1, 16) == ARGV[1] then
redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3])
return 1
end
return 0`

var replaceSum = fmt.Sprintf("%x", sha1.Sum([]byte(replace)))

// A protocol is RESP2 over one connection.
type protocol struct {
	greeting []byte // commands that begin a connection
	replies  int    // to the greeting
	lost     []int  // increments that may have created a counter without an expiry
}

// command appends a command of n words, the first of which is name.
func command(out []byte, n int, name string) []byte {
	out = append(strconv.AppendInt(append(out, '*'), int64(n), 10), "\r\n"...)
	return word(out, name)
}

// word appends a word of a command.
func word[T string | []byte](out []byte, text T) []byte {
	out = append(strconv.AppendInt(append(out, '$'), int64(len(text)), 10), "\r\n"...)
	return append(append(out, text...), "\r\n"...)
}

// number appends a number as a word.
func number(out []byte, n uint64) []byte {
	var digits [counter.Digits]byte
	return word(out, strconv.AppendUint(digits[:0], n, 10))
}

// Append appends the commands of b or, when it is called again, an EXPIRE for each lost counter.
func (p *protocol) Append(out []byte, ends []int, b *counter.Batch) ([]byte, []int) {
	if len(p.lost) > 0 {
		for _, i := range p.lost {
			op := &b.Increments[i]
			out = number(word(command(out, 3, "EXPIRE"), op.Item[:]), uint64(op.TTL))
		}
		return out, ends
	}
	if b.Len() == 0 {
		return command(append(out, p.greeting...), 1, "PING"), ends
	}
	for i := range b.Increments {
		op := &b.Increments[i]
		if op.Create {
			out = number(word(command(out, 6, "SET"), op.Item[:]), op.Start)
			out = word(number(word(out, "EX"), uint64(op.TTL)), "NX")
		}
		out = number(word(command(out, 3, "INCRBY"), op.Item[:]), op.Delta)
		ends = append(ends, len(out))
	}
	for i := range b.Stores {
		op := &b.Stores[i]
		if op.CAS == 0 {
			out = word(word(command(out, 6, "SET"), op.Item[:]), op.Value)
			out = word(number(word(out, "EX"), uint64(op.TTL)), "NX")
		} else {
			out = word(word(word(command(out, 7, "EVALSHA"), replaceSum), "1"), op.Item[:])
			out = word(out, fmt.Sprintf("%016x", op.CAS))
			out = number(word(out, op.Value), uint64(op.TTL))
		}
		ends = append(ends, len(out))
	}
	for i := range b.Reads {
		out = word(command(out, 2, "GET"), b.Reads[i].Item[:])
	}
	return out, ends
}

// Read reads the answers. Each connection loads the script when it begins: a server that has forgotten the script is
// unusable until the next connection.
func (p *protocol) Read(r *wire.Replies, b *counter.Batch) (again bool, err error) {
	var fault failure
	if len(p.lost) > 0 {
		n := len(p.lost)
		p.lost = p.lost[:0]
		return false, skip(r, n, &fault)
	}
	if b.Len() == 0 {
		n := p.replies + 1
		p.greeting, p.replies = nil, 0
		return false, errors.Join(skip(r, n, &fault), fault.err())
	}
	for i := range b.Increments {
		op := &b.Increments[i]
		var created reply
		if op.Create {
			if created, err = readReply(r, wire.Longest, nil); err != nil {
				return false, err
			}
		}
		counted, err := readReply(r, wire.Longest, nil)
		if err != nil {
			return false, err
		}
		op.Value = uint64(counted.number)
		switch {
		case counted.kind == '-':
			op.Outcome = fault.outcome(counted.text)
			continue
		case counted.kind != ':' || counted.number < 0:
			return false, wire.Malformed(counted.text)
		}
		op.Outcome = counter.Done
		// A counter is new if its SET failed, and may be new if its value is below an earlier answer.
		if created.kind == '-' || op.Value < op.Start+op.Delta {
			p.lost = append(p.lost, i)
		}
	}
	for i := range b.Stores {
		answer, err := readReply(r, wire.Longest, nil)
		if err != nil {
			return false, err
		}
		switch op := &b.Stores[i]; {
		case answer.kind == '+', answer.kind == ':' && answer.number == 1:
			op.Outcome = counter.Done
		case answer.isNil, answer.kind == ':':
			op.Outcome = counter.Absent
		case answer.kind == '-':
			op.Outcome = fault.outcome(answer.text)
		default:
			return false, wire.Malformed(answer.text)
		}
	}
	for i := range b.Reads {
		op, from := &b.Reads[i], len(b.Values)
		answer, err := readReply(r, max(wire.Longest, maxStored-from), &b.Values)
		if err != nil {
			return false, err
		}
		switch {
		case answer.isNil:
			op.Outcome = counter.Absent
		case answer.kind == '$':
			op.Outcome, op.Value = counter.Done, b.Values[from:len(b.Values):len(b.Values)]
			op.CAS = version(op.Value)
		case answer.kind == '-':
			op.Outcome = fault.outcome(answer.text)
		default:
			return false, wire.Malformed(answer.text)
		}
	}
	return len(p.lost) > 0, fault.err()
}

// version returns the version of a value, by which the script recognizes it.
func version(value []byte) uint64 {
	sum := sha1.Sum(value)
	return binary.BigEndian.Uint64(sum[:])
}

// A reply is one answer of a server.
type reply struct {
	kind   byte   // as sent: + - : or $
	text   []byte // of a line, valid until the next reply
	number int64
	isNil  bool
}

// readReply reads a reply, and appends its string to into if that has at most longest bytes.
func readReply(r *wire.Replies, longest int, into *[]byte) (a reply, err error) {
	line, err := r.Line()
	if err != nil {
		return a, err
	}
	if len(line) == 0 {
		return a, wire.Malformed(line)
	}
	a.kind, a.text = line[0], line[1:]
	switch a.kind {
	case '+', '-':
		return a, nil
	case ':', '$':
	default:
		return a, wire.Malformed(line)
	}
	if a.number, err = strconv.ParseInt(string(a.text), 10, 64); err != nil {
		return a, wire.Malformed(line)
	}
	if a.kind == ':' {
		return a, nil
	}
	if a.isNil = a.number == -1; a.isNil {
		return a, nil
	}
	if a.number < 0 || a.number > wire.MaxSkip {
		return a, wire.Malformed(line)
	}
	if into == nil {
		into = new([]byte)
	}
	*into, err = r.Value(int(a.number), longest, *into)
	return a, err
}

// skip reads n replies. It notes the first error among them: whatever it is, the connection cannot be used.
func skip(r *wire.Replies, n int, fault *failure) error {
	for range n {
		answer, err := readReply(r, wire.Longest, nil)
		if err != nil {
			return err
		}
		if answer.kind == '-' && fault.outcome(answer.text) == counter.Refused {
			fault.note(answer.text, "the shard's URL does not fit this server")
		}
	}
	return nil
}

// A failure is the first error that concerns all commands, with its remedy; "" if there was no such error.
type failure string

// remedies tell what to do about errors that concern all commands, by their first word.
var remedies = map[string]string{
	"NOAUTH":      "give a password in the shard's URL: redis://USER:PASSWORD@HOST:PORT, or ?password_file=",
	"WRONGPASS":   "correct the user and the password in the shard's URL",
	"NOPERM":      "the user needs +ping +select +script|load +set +get +incrby +expire +evalsha and all keys",
	"READONLY":    "name the primary, not a replica",
	"MASTERDOWN":  "name the primary, not a replica",
	"LOADING":     "wait until it has loaded its data",
	"BUSY":        "a script blocks it: see SCRIPT KILL",
	"MISCONF":     "it cannot save its data: see its log, or turn off stop-writes-on-bgsave-error",
	"NOREPLICAS":  "it lacks replicas: see min-replicas-to-write",
	"MOVED":       "it is part of a Redis Cluster, which is not supported: name servers without cluster-enabled",
	"CLUSTERDOWN": "it is part of a Redis Cluster, which is not supported: name servers without cluster-enabled",
	"NOSCRIPT":    "its scripts were flushed; the next connection loads them again",
}

// outcome returns the outcome of an operation that the server answered with an error, text. After an error that
// concerns all commands, it was provably not done, and may be repeated.
func (f *failure) outcome(text []byte) counter.Outcome {
	word, _, _ := bytes.Cut(text, []byte(" "))
	remedy, ok := remedies[string(word)]
	if !ok {
		return counter.Refused
	}
	f.note(text, remedy)
	return counter.NotSent
}

// note keeps the first error, with its remedy.
func (f *failure) note(text []byte, remedy string) {
	if *f == "" {
		*f = failure(fmt.Sprintf("%.80s (%s)", strings.ToValidUTF8(string(text), "?"), remedy))
	}
}

// err returns the error about the server, or nil if it can be used.
func (f *failure) err() error {
	if *f == "" {
		return nil
	}
	return fmt.Errorf("%w: %s", wire.ErrUnusable, string(*f))
}
