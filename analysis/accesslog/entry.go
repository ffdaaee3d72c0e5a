package accesslog

import "net/netip"

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
