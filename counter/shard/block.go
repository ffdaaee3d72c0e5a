package shard

import (
	"bytes"
	"encoding/binary"
)

// Items are stored in blocks of one size. The first block of an item, its head, has
// the fields below, followed by the first bytes of key and value. Each further block
// has the index of the next one, followed by more bytes. One block holds a counter:
// a 16-byte key and the longest number. Blocks refer to each other by index, so the
// garbage collector has nothing to scan.
const (
	fieldChain    = 0  // next block of this item, and headMark
	fieldBucket   = 4  // next item in the same hash bucket
	fieldNewer    = 8  // towards the most recently used item
	fieldOlder    = 12 // towards the least recently used item
	fieldFlags    = 16
	fieldValueLen = 20
	fieldCAS      = 24
	fieldDeadline = 32 // by the store's clock; 0 is never
	fieldKeyLen   = 40 // one byte

	headData  = 41 // where the bytes begin in a head
	restData  = 4  // where they begin in any other block
	blockSize = 80

	// blockCost is what a block counts for in Options.MaxBytes: its size and its
	// share of the hash table, which has at most two entries of 4 bytes per item.
	blockCost = blockSize + 8

	// pageBlocks is the number of blocks allocated at once: 80 KiB, a multiple of
	// the runtime's 8 KiB pages.
	pageBlocks = 1024

	// headMark distinguishes heads from other blocks, for code that finds them by index.
	headMark = 1 << 31
)

type block [blockSize]byte

func (b *block) u32(field int) uint32      { return binary.LittleEndian.Uint32(b[field:]) }
func (b *block) put32(field int, v uint32) { binary.LittleEndian.PutUint32(b[field:], v) }
func (b *block) u64(field int) uint64      { return binary.LittleEndian.Uint64(b[field:]) }
func (b *block) put64(field int, v uint64) { binary.LittleEndian.PutUint64(b[field:], v) }
func (b *block) keyLen() int               { return int(b[fieldKeyLen]) }
func (b *block) valueLen() int             { return int(b.u32(fieldValueLen)) }
func (b *block) chain() uint32             { return b.u32(fieldChain) &^ headMark }
func (b *block) isHead() bool              { return b.u32(fieldChain)&headMark != 0 }
func (b *block) setChain(i uint32)         { b.put32(fieldChain, b.u32(fieldChain)&headMark|i) }
func (b *block) size() int                 { return blocksFor(b.keyLen() + b.valueLen()) }
func (b *block) inline() bool              { return b.keyLen()+b.valueLen() <= blockSize-headData }
func (b *block) inlineValue() []byte       { return b[headData+b.keyLen():][:b.valueLen()] }

// blocksFor returns the number of blocks that n bytes of key and value take.
func blocksFor(n int) int {
	const first, rest = blockSize - headData, blockSize - restData
	if n <= first {
		return 1
	}
	return 1 + (n-first+rest-1)/rest
}

// arena allocates up to limit blocks, in pages, which it never frees. Block 0 is
// never used, so that 0 can mean no block.
type arena struct {
	pages  [][]block
	limit  int    // maximum number of blocks in use
	opened int    // the highest block that was ever in use
	used   int    // number of blocks in use
	free   uint32 // released blocks, linked by fieldChain
}

func (a *arena) at(i uint32) *block { return &a.pages[i/pageBlocks][i%pageBlocks] }

// take returns a block without chain and mark, or 0 if none is left.
func (a *arena) take() uint32 {
	i := a.free
	switch {
	case i != 0:
		a.free = a.at(i).u32(fieldChain)
	case a.opened < a.limit:
		a.opened++
		i = uint32(a.opened)
		if full := len(a.pages) * pageBlocks; a.opened >= full {
			a.pages = append(a.pages, make([]block, min(pageBlocks, a.limit+1-full)))
		}
	default:
		return 0
	}
	a.used++
	a.at(i).put32(fieldChain, 0)
	return i
}

// release releases block i and the blocks chained to it.
func (a *arena) release(i uint32) {
	for i != 0 {
		b := a.at(i)
		next := b.chain()
		b.put32(fieldChain, a.free)
		a.free = i
		a.used--
		i = next
	}
}

// write puts p at offset off of the bytes of the item with head i.
func (a *arena) write(i uint32, off int, p []byte) {
	start := headData
	for len(p) > 0 {
		b := a.at(i)
		if room := blockSize - start; off < room {
			p = p[copy(b[start+off:], p):]
			off = 0
		} else {
			off -= room
		}
		i, start = b.chain(), restData
	}
}

// appendBytes appends to dst the n bytes at offset off of the item with head i.
func (a *arena) appendBytes(dst []byte, i uint32, off, n int) []byte {
	start := headData
	for n > 0 {
		b := a.at(i)
		if room := blockSize - start; off < room {
			part := b[start+off:][:min(n, room-off)]
			dst = append(dst, part...)
			n -= len(part)
			off = 0
		} else {
			off -= room
		}
		i, start = b.chain(), restData
	}
	return dst
}

// keyEqual reports whether the key of the item with head i is key.
func (a *arena) keyEqual(i uint32, key []byte) bool {
	b := a.at(i)
	if b.keyLen() != len(key) {
		return false
	}
	for start := headData; ; start = restData {
		part := b[start:]
		if len(key) <= len(part) {
			return bytes.Equal(part[:len(key)], key)
		}
		if !bytes.Equal(part, key[:len(part)]) {
			return false
		}
		key = key[len(part):]
		b = a.at(b.chain())
	}
}
