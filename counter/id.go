package counter

import (
	"encoding/base32"
	"strings"
)

// An ID identifies a key to people: 40 bits in eight digits and letters, such as 7kq2-m9xd. The probability that two of
// 10,000 keys have the same ID is 1 in 22,000. Without the secret, it reveals nothing about the key. The zero ID
// identifies no key.
type ID [9]byte

// idDigits is Crockford's alphabet: no letter looks like a digit.
const idDigits = "0123456789abcdefghjkmnpqrstvwxyz"

var (
	idEncoding = base32.NewEncoding(idDigits)

	// idReplacer removes what separates digits, and replaces letters by the digits that they look like.
	idReplacer = strings.NewReplacer("-", "", " ", "", "i", "1", "l", "1", "o", "0")
)

// String returns the ID, or "" if it is zero.
func (i ID) String() string { return strings.TrimRight(string(i[:]), "\x00") }

// ID returns the ID of key: the first 40 bits of SipHash-2-4-128(secret, key ‖ "i"). It is the same on
// all nodes of a PoP. ID does not allocate.
func (s Secret) ID(key Key) (id ID) {
	var b [17]byte
	copy(b[:], key[:])
	b[16] = 'i'
	tag := s.Tag(b[:])
	idEncoding.Encode(id[1:], tag[:5])
	copy(id[:4], id[1:])
	id[4] = '-'
	return id
}

// ParseID parses an ID, with or without the hyphen. ok is false if text is not an ID.
func ParseID(text string) (id ID, ok bool) {
	text = idReplacer.Replace(strings.ToLower(text))
	if len(text) != len(id)-1 || strings.Trim(text, idDigits) != "" {
		return ID{}, false
	}
	copy(id[:], text[:4]+"-"+text[4:])
	return id, true
}
