package accesslog

import "net/netip"

// An Entry is one request as a log tells it. What the log does not tell is zero. Header is valid
// only until the next one is read. Strings may be kept, but each keeps the block of the log that
// it is part of in memory: who keeps them for long clones them.
type Entry struct {
	Time   int64      // when it was logged, in microseconds since the Unix epoch
	Client string     // as the log names it: mostly an address
	Addr   netip.Addr // Client as an address; invalid if Client is something else
	Method string
	Host   string
	Path   string // as sent, percent-encoded, without the query
	Query  string // without the question mark
	Status int
	Header []Field // what the log tells of the request's header, such as User-Agent
	Attack bool    // the log marks the request as part of an attack
}

// A Field is one line of a request's header.
type Field struct {
	Name  string // as net/http spells it
	Value string
}

// An Arrival is what counting needs of a request.
type Arrival struct {
	Time   int64 // as in Entry
	Client Client
}

// A Client identifies a client within a log: its name, filled up with zeros, if that has
// at most 15 bytes, and else a hash of 128 bits with the last byte not zero.
type Client [16]byte
