package shard

import "strconv"

// parseUint parses an unsigned decimal number of at most bits bits.
func parseUint(text []byte, bits int) (uint64, bool) {
	n, err := strconv.ParseUint(string(text), 10, bits)
	return n, err == nil
}

// parseInt parses a decimal number of at most 32 bits, with or without a sign.
func parseInt(text []byte) (int32, bool) {
	n, err := strconv.ParseInt(string(text), 10, 32)
	return int32(n), err == nil
}
