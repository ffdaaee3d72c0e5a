package shard

import (
	"encoding/base64"
	"time"
)

// Limits of the words of a meta command, the name and the key included, and of
// an opaque token with its letter.
const (
	maxMetaTokens = 19
	maxOpaque     = 32
)

const (
	badToken      = "CLIENT_ERROR bad token in command line format"
	opaqueTooLong = "CLIENT_ERROR opaque token too long"
)

// metaRequest is a meta command. It holds no reference to the command line,
// which goes as the value is read.
type metaRequest struct {
	keyBytes    [maxKey]byte
	opaqueBytes [maxOpaque]byte
	letterBytes [maxMetaTokens]byte

	key     []byte
	opaque  []byte // as it was given, letter included
	letters []byte // of all flags, in order: what they add to the reply is in this order too

	longOpaque bool
	binaryKey  bool // b
	noreply    bool // q
	value      bool // v
	noUpdate   bool // u
	invalidate bool // I
	vivify     bool // N
	hasTTL     bool // T
	hasCAS     bool // C

	vivifyDeadline  int64 // N
	deadline        int64 // T
	recacheDeadline int64 // R

	mode        byte   // M
	clientFlags uint32 // F
	cas         uint64 // C
	initial     uint64 // J
	delta       uint64 // D
}

// parse reads a command's key and flags. If it cannot, it returns the error to
// answer. Flags that the command does not know are accepted.
func (r *metaRequest) parse(st *store, key []byte, flags [][]byte, now time.Time) (problem string) {
	*r = metaRequest{delta: 1}
	r.key = append(r.keyBytes[:0], key...)
	r.letters = r.letterBytes[:0]
	var seen [127]bool
	fault := badFormat
	ok := true
	check := func(valid bool, f string) {
		if !valid {
			fault, ok = f, false
		}
	}
	deadline := func(token []byte) int64 {
		n, valid := parseInt32(token)
		check(valid, badToken)
		return st.deadline(n, now)
	}
	for _, flag := range flags {
		letter, token := flag[0], flag[1:]
		if letter >= 127 || seen[letter] {
			return "CLIENT_ERROR duplicate flag"
		}
		seen[letter] = true
		r.letters = append(r.letters, letter)
		valid := true
		switch letter {
		case 'k', 's', 't', 'c', 'f', 'h', 'l', 'P', 'L':
		case 'b':
			r.key, r.binaryKey = decodeKey(r.keyBytes[:], key), true
			check(len(r.key) > 0, "CLIENT_ERROR error decoding key")
		case 'q':
			r.noreply = true
		case 'v':
			r.value = true
		case 'u':
			r.noUpdate = true
		case 'I':
			r.invalidate = true
		case 'O':
			r.longOpaque = len(flag) > maxOpaque
			r.opaque = r.opaqueBytes[:copy(r.opaqueBytes[:], flag)]
		case 'N':
			r.vivify, r.vivifyDeadline = true, deadline(token)
		case 'T':
			r.hasTTL, r.deadline = true, deadline(token)
		case 'R':
			r.recacheDeadline = deadline(token)
		case 'M':
			check(len(token) == 1, "CLIENT_ERROR incorrect length for M token")
			if len(token) == 1 {
				r.mode = token[0]
			}
		case 'F':
			r.clientFlags, valid = parseUint32(token)
			check(valid, fault)
		case 'C':
			r.cas, valid = parseUint64(token)
			r.hasCAS = valid
			check(valid, badToken)
		case 'J':
			r.initial, valid = parseUint64(token)
			check(valid, "CLIENT_ERROR invalid numeric initial value")
		case 'D':
			r.delta, valid = parseUint64(token)
			check(valid, "CLIENT_ERROR invalid numeric delta value")
		default:
			return "CLIENT_ERROR invalid flag"
		}
	}
	if ok {
		return ""
	}
	return fault
}

// decodeKey decodes a base64 key into dst. It returns nothing if it cannot.
// Like memcached it passes over what is not of the alphabet.
func decodeKey(dst, key []byte) []byte {
	var buf [maxKey]byte
	clean := buf[:0]
	for _, ch := range key {
		if 'A' <= ch && ch <= 'Z' || 'a' <= ch && ch <= 'z' || '0' <= ch && ch <= '9' ||
			ch == '+' || ch == '/' || ch == '=' {
			clean = append(clean, ch)
		}
	}
	n, err := base64.StdEncoding.Decode(dst, clean)
	if err != nil {
		return nil
	}
	return dst[:n]
}

// appendEcho appends what flags k and O add to a reply.
func (r *metaRequest) appendEcho(dst []byte, letter byte) []byte {
	switch letter {
	case 'O':
		dst = append(dst, ' ')
		dst = append(dst, r.opaque...)
	case 'k':
		dst = appendMetaKey(dst, r.key, r.binaryKey)
	}
	return dst
}

func appendMetaKey(dst, key []byte, binary bool) []byte {
	dst = append(dst, " k"...)
	if !binary {
		return append(dst, key...)
	}
	dst = base64.StdEncoding.AppendEncode(dst, key)
	return append(dst, " b"...)
}

const tooManyOptions = "CLIENT_ERROR options flags too long"

// metaWords checks the number of words of a meta command and its key.
func (c *conn) metaWords(n int, tooMany string) bool {
	switch {
	case n < 2:
		c.reply("ERROR")
	case len(c.tokens[1]) > maxKey:
		c.reply(badFormat)
	case n > maxMetaTokens:
		c.reply(tooMany)
	default:
		return true
	}
	return false
}

// metaChange reads an md or ma into c.meta. It answers what is wrong with it
// and returns false, if anything is.
func (c *conn) metaChange(n int, now time.Time) bool {
	if !c.metaWords(n, tooManyOptions) {
		return false
	}
	if c.meta.parse(c.store, c.tokens[1], c.tokens[2:n], now) != "" {
		c.reply("CLIENT_ERROR invalid or duplicate flag")
		return false
	}
	return true
}

// metaStatus answers status with what c.meta wants echoed.
func (c *conn) metaStatus(status string) {
	c.out = append(c.out, status...)
	for _, letter := range c.meta.letters {
		c.out = c.meta.appendEcho(c.out, letter)
	}
	c.out = append(c.out, "\r\n"...)
}
