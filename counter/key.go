package counter

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/dchest/siphash"
)

// A Key is what is counted apart: 128 bits that stand for a rule and the values of its
// characteristics. Nobody who does not have the secret can choose one.
type Key [16]byte

// String returns the key in hexadecimal.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// A Secret makes keys. All nodes of a PoP have the same one, and nobody else has.
type Secret struct {
	k0, k1 uint64
}

// MinSecret is how many bytes a secret has at least.
const MinSecret = 16

// NewSecret returns the secret that text stands for: any bytes, hard to guess, at least
// MinSecret of them.
func NewSecret(text string) (Secret, error) {
	if len(text) < MinSecret {
		return Secret{}, fmt.Errorf("counter: a secret of %d bytes is too short, it has at least %d", len(text), MinSecret)
	}
	sum := sha256.Sum256([]byte("edge secret 1\x00" + text))
	return Secret{binary.LittleEndian.Uint64(sum[0:]), binary.LittleEndian.Uint64(sum[8:])}, nil
}

// Tag returns the key of what is counted apart, described by bytes:
// SipHash-2-4-128(secret, what). It does not allocate.
func (s Secret) Tag(what []byte) Key {
	var k Key
	lo, hi := siphash.Hash128(s.k0, s.k1, what)
	binary.LittleEndian.PutUint64(k[0:], lo)
	binary.LittleEndian.PutUint64(k[8:], hi)
	return k
}

// Fingerprint returns a hash by which two nodes can tell that they have the same secret,
// and nobody can tell which.
func (s Secret) Fingerprint() uint64 {
	sum := s.Tag([]byte("fingerprint"))
	return binary.LittleEndian.Uint64(sum[:])
}

// CounterKey returns the key in memcached of a window's number: 16 characters, the
// base64url of 96 bits of
//
//	SipHash-2-4-128(secret, tag ‖ fields ‖ bits ‖ window length in seconds ‖ window number)
//
// in 16, 1, 1, 4 and 8 bytes, big endian. 16 characters leave an item in memcached's
// smallest chunk even where its number has 20 digits.
func (s Secret) CounterKey(tag Key, l Limit, window int64) string {
	b := make([]byte, 0, 30)
	b = append(b, tag[:]...)
	b = append(b, l.Layout.Fields, l.Layout.Bits)
	b = binary.BigEndian.AppendUint32(b, uint32(l.Period/1e6))
	b = binary.BigEndian.AppendUint64(b, uint64(window))
	return s.name(b)
}

// RecordKey returns the key in memcached of the mitigation record: like CounterKey, of
// tag ‖ "m".
func (s Secret) RecordKey(tag Key) string {
	return s.name(append(tag[:], 'm'))
}

func (s Secret) name(b []byte) string {
	sum := s.Tag(b)
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}
