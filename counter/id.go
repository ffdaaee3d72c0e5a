package counter

import (
	"encoding/binary"
	"strings"
)

// An ID identifies a key to people: 40 bits in eight digits and letters, such as 7kq2-m9xd. The probability that two of
// 10,000 keys have the same ID is 1 in 22,000. Without the secret, it reveals nothing about the key. The zero ID
// identifies no key.
type ID [9]byte

// idDigits is Crockford's alphabet: no letter looks like a digit.
const idDigits = "0123456789abcdefghjkmnpqrstvwxyz"

// String returns the ID, or "" if it is zero.
func (i ID) String() string { return strings.TrimRight(string(i[:]), "\x00") }

// ID returns the ID of key: the first 40 bits of SipHash-2-4-128(secret, key ‖ "i"). It is the same on
// all nodes of a PoP. ID does not allocate.
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

// ParseID parses an ID, with or without the hyphen. ok is false if text is not an ID.
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
