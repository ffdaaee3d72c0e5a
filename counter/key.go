package counter

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/dchest/siphash"
)

// A Key identifies requests that are counted together. It is a 128-bit hash of a rule and the values of
// its characteristics. Without the secret, nobody can choose one.
type Key [16]byte

// String returns the key in hexadecimal.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// A Secret derives keys. All nodes of a PoP share one, and nobody else knows it.
type Secret struct {
	k0, k1 uint64
}

// MinSecret is the minimum size of a secret, in bytes.
const MinSecret = 16

// NewSecret returns a secret derived from text, which may be any bytes that are hard to guess, at
// least MinSecret of them.
func NewSecret(text string) (Secret, error) {
	if len(text) < MinSecret {
		return Secret{}, fmt.Errorf("counter: a secret of %d bytes is too short: use at least %d", len(text), MinSecret)
	}
	sum := sha256.Sum256([]byte("edge secret 1\x00" + text))
	return Secret{binary.LittleEndian.Uint64(sum[0:]), binary.LittleEndian.Uint64(sum[8:])}, nil
}

// Tag returns the key of material: SipHash-2-4-128(secret, material). It does not allocate.
func (s Secret) Tag(material []byte) (k Key) {
	lo, hi := siphash.Hash128(s.k0, s.k1, material)
	binary.LittleEndian.PutUint64(k[0:], lo)
	binary.LittleEndian.PutUint64(k[8:], hi)
	return k
}

// Fingerprint returns a hash that lets nodes compare their secrets without revealing them.
func (s Secret) Fingerprint() uint64 {
	sum := s.Tag([]byte("fingerprint"))
	return binary.LittleEndian.Uint64(sum[:])
}

// An Item is the name of a counter or a record in a shard.
type Item [16]byte

// String returns the name.
func (i Item) String() string { return string(i[:]) }

// CounterItem returns the item of a window's counter: 16 characters, the base64url of 96 bits of
//
//	SipHash-2-4-128(secret, key ‖ fields ‖ bits ‖ window length in seconds ‖ window index)
//
// in 16, 1, 1, 4 and 8 bytes, big endian. With 16 characters and a value of 20 digits, the item
// fits memcached's smallest chunk. It does not allocate.
func (s Secret) CounterItem(key Key, l Limit, index int64) Item {
	var b [30]byte
	copy(b[:], key[:])
	b[16], b[17] = l.Layout.Fields, l.Layout.Bits
	binary.BigEndian.PutUint32(b[18:], uint32(l.Period/1e6))
	binary.BigEndian.PutUint64(b[22:], uint64(index))
	return s.item(b[:])
}

// After returns the key that counts requests of key after this many lifts, so that counters from
// before a lift never count again.
func (s Secret) After(key Key, lifts uint32) Key {
	if lifts == 0 {
		return key
	}
	return s.Tag(binary.BigEndian.AppendUint32(append(key[:], 'l'), lifts))
}

// RecordItem returns the item of key's mitigation record: like CounterItem, of key ‖ "m".
func (s Secret) RecordItem(key Key) Item {
	var b [17]byte
	copy(b[:], key[:])
	b[16] = 'm'
	return s.item(b[:])
}

func (s Secret) item(b []byte) (i Item) {
	sum := s.Tag(b)
	base64.RawURLEncoding.Encode(i[:], sum[:12])
	return i
}
