package accesslog

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"strconv"

	"github.com/cespare/xxhash/v2"
	"github.com/dchest/siphash"
)

// An Entry is one request in a log. Fields that the log does not have are zero. Header is valid
// only until the next entry is read. Strings may be retained, but each keeps its block of the
// log in memory: clone those that are kept for long.
type Entry struct {
	Time   int64      // when it was logged, in microseconds since the Unix epoch
	Client string     // as in the log: usually an address
	Addr   netip.Addr // Client as an address; invalid if it is not one
	Method string
	Host   string
	Path   string // as sent, percent-encoded, without the query
	Query  string // without the question mark
	Status int
	Header []Field // those of the request's header fields that the log has, such as User-Agent
	Attack bool    // whether the log marks the request as part of an attack
}

// Address returns the address of e's client. A client that the log identifies by something else gets an address
// in fd00::/8, so that rules that count by ip distinguish it from others: client n, a number below 2^55, has n
// in the 55 bits after fd0, any other client a hash of its name in those after fd8. They are in the upper half
// of the address, which identifies a client by default. The lowest bit of n comes first, so that clients stay
// distinct if a shorter prefix identifies a client.
func (e *Entry) Address() netip.Addr {
	if e.Addr.IsValid() {
		return e.Addr
	}
	const hashed = 1 << 55 // set for a hash
	n, err := strconv.ParseUint(e.Client, 10, 64)
	if err != nil || n >= hashed || len(e.Client) > 1 && e.Client[0] == '0' { // 007 is not 7
		n = hashed | xxhash.Sum64String(e.Client)%hashed
	} else {
		n = bits.Reverse64(n) >> 9
	}
	addr := [16]byte{0: 0xfd, 15: 1}
	for i := range 7 {
		addr[7-i] = byte(n >> (8 * i))
	}
	return netip.AddrFrom16(addr)
}

// A Field is a field of a request's header.
type Field struct {
	Name  string // in canonical form, as in net/http
	Value string
}

// An Arrival is the part of an Entry that counting needs.
type Arrival struct {
	Time   int64 // as in Entry
	Client Client
}

// A Client identifies a client within a log: it is the client's name padded with zeros if that
// has at most 15 bytes, otherwise a 128-bit hash of it whose last byte is not zero.
type Client [16]byte

// ClientOf returns the client with a name.
func ClientOf(name string) Client { return clientOf([]byte(name)) }

// Name returns the name of a client, and whether c has it: longer names are hashed.
func (c *Client) Name() (name string, ok bool) {
	if c[len(c)-1] != 0 {
		return "", false
	}
	return string(bytes.TrimRight(c[:], "\x00")), true
}

// clientOf returns the Client of a name. The key of the hash is fixed, so that the same log
// always has the same clients; finding two names with the same 127 bits is infeasible.
func clientOf(name []byte) (c Client) {
	if len(name) < len(c) && bytes.IndexByte(name, 0) < 0 {
		copy(c[:], name)
		return c
	}
	lo, hi := siphash.Hash128(0x656467652e6c6f67, 0x636c69656e742d31, name)
	binary.LittleEndian.PutUint64(c[:], lo)
	binary.LittleEndian.PutUint64(c[8:], hi)
	c[15] |= 0x80
	return c
}
