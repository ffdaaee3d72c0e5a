package mitigation

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

// buckets is the number of buckets of a digest. The first byte of a key is the index of its bucket.
const buckets = 256

// A Digest summarizes the records of a table that have not ended. Each bucket is the sum (XOR) of hashes of its
// records. A hash covers the fields that are the same on every node, and whether the rule is known. Two nodes with
// equal digests hold the same records; otherwise their records differ in the buckets that differ. A Digest does not
// protect against an attacker who can make records.
type Digest [buckets]uint32

const digestSize = 4 * buckets // of the encoding, in bytes

// toggle adds r, or removes it if it is present.
func (d *Digest) toggle(r Record) {
	known := byte(min(r.Rule, 1))
	r.Why, r.ByHand = Why{}, false
	d[r.Key[0]] ^= uint32(xxhash.Sum64(append(r.AppendStored(make([]byte, 0, StoredSize+1)), known)))
}

// Sum returns a hash of d.
func (d *Digest) Sum() uint64 { return xxhash.Sum64(d.Append(make([]byte, 0, digestSize))) }

// Append appends the encoding of d for other nodes, of digestSize bytes.
func (d *Digest) Append(dst []byte) []byte {
	for _, sum := range d {
		dst = binary.BigEndian.AppendUint32(dst, sum)
	}
	return dst
}

// ParseDigest parses a digest that another node sent.
func ParseDigest(b []byte) (d Digest, err error) {
	if len(b) != digestSize {
		return d, errors.New("mitigation: the size of a digest is wrong")
	}
	for i := range d {
		d[i] = binary.BigEndian.Uint32(b[4*i:])
	}
	return d, nil
}

// Digest returns the digest of t.
func (t *Table) Digest() Digest {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.digest
}

// Where returns the records that have not ended at now and are in buckets where t differs from d, those that end last
// first. If there are more than limit, it omits whole buckets at random, so that repeated exchanges make the tables
// equal.
func (t *Table) Where(d Digest, limit int, now time.Time) (records []Record) {
	ours := t.Digest()
	begin := rand.IntN(parts)
	for i := range parts {
		p := (begin + i) % parts
		differs := false
		for b := p; b < buckets; b += parts {
			differs = differs || ours[b] != d[b]
		}
		if !differs {
			continue
		}
		before := len(records)
		for _, h := range t.part[p].Values() {
			if ours[h.Key[0]] != d[h.Key[0]] && now.Before(h.Deadline) {
				records = append(records, h.Record)
			}
		}
		if before > 0 && len(records) > limit {
			records = records[:before]
			break
		}
	}
	slices.SortFunc(records, func(a, b Record) int { return b.Deadline.Compare(a.Deadline) })
	return records
}
