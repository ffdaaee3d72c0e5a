package counter

import (
	"encoding/binary"
	"strings"
)

// An ID names a key to people: 40 bits in eight digits and letters, such as 7kq2-m9xd. Of 10,000 keys two
// have the same ID with a probability of 1 in 22,000. It tells nothing about the key to those who do not
// know the secret. The zero ID names no key.
type ID [9]byte

// idDigits are Crockford's: no letter looks like a digit.
const idDigits = "0123456789abcdefghjkmnpqrstvwxyz"

// String returns the ID, or nothing if it is zero.
func (i ID) String() string { return strings.TrimRight(string(i[:]), "\x00") }

// ID returns the ID of key: the first 40 bits of SipHash-2-4-128(secret, key ‖ "i"). All nodes of a PoP
// have the same ones. It does not allocate.
func (s Secret) ID(key Key) (id ID) {
	var b [17]byte
	copy(b[:], key[:])
	b[16] = 'i'
	tag := s.Tag(b[:])
	bits := binary.BigEndian.Uint64(tag[:]) >> 24
	for at := len(id) - 1; at >= 0; at-- {
		if at == 4 {
			id[at] = '-'
			continue
		}
		id[at], bits = idDigits[bits%32], bits/32
	}
	return id
}

// ParseID reads an ID as people write one, with or without the hyphen, and reports whether text is one.
func ParseID(text string) (id ID, ok bool) {
	at := 0
	for _, c := range strings.ToLower(text) {
		switch c {
		case '-', ' ':
			continue
		case 'i', 'l':
			c = '1'
		case 'o':
			c = '0'
		}
		if at == 4 {
			id[at] = '-'
			at++
		}
		if at == len(id) || !strings.ContainsRune(idDigits, c) {
			return ID{}, false
		}
		id[at] = byte(c)
		at++
	}
	if at < len(id) {
		return ID{}, false
	}
	return id, true
}
