package accesslog

import "net/netip"

// An Entry is one request as a log tells it. What the log does not tell is zero. Its
// strings and slices are valid only until the next one is read: who keeps them clones them.
type Entry struct {
	Time   int64      // when it was logged, in microseconds since the Unix epoch
	Client string     // as the log names it: mostly an address
	Addr   netip.Addr // Client as an address; not valid if it is none
	Method string
	Host   string
	Path   string // as sent, percent-encoded, without the query
	Query  string // without the question mark
	Status int
	Header []Field // what the log tells of the request's header, such as User-Agent
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
