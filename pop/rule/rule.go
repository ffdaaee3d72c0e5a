// Package rule turns rules files into an immutable [Set]: which requests a rule
// concerns, what it counts apart, how many are too many, and what happens then.
//
// A Set is built once, by [Load] or [Parse], and never changes. Every function
// and method of the package may be called concurrently. Looking a request up
// neither allocates nor locks.
package rule

import (
	"time"
)

// Bounds of what a rules file may say.
const (
	MaxThreshold = 1 << 53            // requests per period
	MinPeriod    = time.Second        // periods are whole seconds
	MaxPeriod    = 7 * 24 * time.Hour // also of a mitigation timeout
	MaxBody      = 64 << 10           // bytes of a response body
	MaxID        = 64                 // bytes of a rule's ID
	MinStatus    = 200
	MaxStatus    = 599
)

// A Rule says which requests are counted together and what happens to a client
// that exceeds a limit. Rules are shared and must not be modified.
type Rule struct {
	// ID is stable over reloads and part of every key: a rule that keeps its ID
	// and characteristics keeps its counts.
	ID string

	// Index is the rule's place in the order of the files.
	Index int

	// File and Line are where the rule begins.
	File string
	Line int

	// Hosts, Methods and Paths are what a request is matched against; an empty
	// list matches everything. Hosts are canonical, and paths are in the normal form
	// of PathSyntax. A host may begin with "*.", which stands for one or more labels;
	// a path may end in "*", which stands for anything, also for more slashes.
	Hosts, Methods, Paths []string

	// PathSyntax is how the rule reads the paths of requests, to match them and to
	// count them by path.
	PathSyntax PathSyntax

	// Statuses selects what is counted by the status that the origin answered.
	// Nil counts every request, when it arrives.
	Statuses *Statuses

	// Characteristics are the properties whose values are counted apart.
	Characteristics []Characteristic

	// Limits are in the order of the file; there is at least one, and no two
	// have the same period.
	Limits []Limit

	// MitigationTimeout is how long a mitigation lasts at least. 0 ends it as
	// soon as the estimate is back at the threshold.
	MitigationTimeout time.Duration

	Action   Action
	Response *Response

	// OnFailure is what becomes of requests whose key's counter shard is unavailable. It
	// is no part of the key.
	OnFailure OnFailure
}

// FailsClosed reports whether requests are refused while their key's counter shard is
// unavailable. A rule that only logs refuses none.
func (r *Rule) FailsClosed() bool { return r.OnFailure == FailClosed && r.Action != Log }

// An Action is what happens to the requests of a mitigated key. A greater
// action is more severe: where several rules mitigate a request, the most
// severe one decides.
type Action uint8

const (
	Log       Action = iota // count and record, never act
	ShadowBan               // answer a prepared response, origin untouched
	Block                   // refuse with a response that says why
	Close                   // close the connection, or reset the stream
)

var actionNames = [...]string{Log: "log", ShadowBan: "shadow_ban", Block: "block", Close: "close"}

// String returns the action as rules files write it.
func (a Action) String() string { return actionNames[a] }

// OnFailure says what happens to a request while the counter shard that owns its key is
// unavailable. Mitigations in force stay in force whatever it says.
type OnFailure uint8

const (
	FailLocal  OnFailure = iota // count and limit by what this node knows
	FailOpen                    // start no mitigation by what this node counts alone
	FailClosed                  // refuse with 503, and do not count
)

var onFailureNames = [...]string{FailLocal: "local", FailOpen: "open", FailClosed: "closed"}

// String returns the choice as rules files write it.
func (o OnFailure) String() string { return onFailureNames[o] }

// A Response is what a refused request gets.
type Response struct {
	Status      int
	ContentType string
	Body        string
}

// A Characteristic is a property of a request whose values are counted apart.
type Characteristic struct {
	Kind Kind

	// Name is the header (in lower case), cookie or query parameter. Empty for
	// the kinds that have no name.
	Name string

	// Skip says that a request without the value is not the rule's concern:
	// neither counted nor mitigated. If false, all requests without it share
	// one count.
	Skip bool

	canonical string // Name as net/http spells a header
}

// A Kind is what a characteristic looks at. Its number is part of every key.
type Kind uint8

const (
	IP Kind = iota + 1
	Host
	Path
	Method
	Header
	Cookie
	Query
)

var kindNames = [...]string{IP: "ip", Host: "host", Path: "path", Method: "method", Header: "header", Cookie: "cookie", Query: "query"}

// String returns the kind as rules files write it.
func (k Kind) String() string { return kindNames[k] }

// named reports whether characteristics of kind k have a name.
func (k Kind) named() bool { return k >= Header }

// several reports whether a request may have several values of characteristics of kind k.
func (k Kind) several() bool { return k == Path || k.named() }

// String returns the characteristic as rules files write it: ip, header:x-api-key.
func (c Characteristic) String() string {
	if !c.Kind.named() {
		return c.Kind.String()
	}
	return c.Kind.String() + ":" + c.Name
}

// Statuses is a set of response statuses.
type Statuses [(MaxStatus-MinStatus)/64 + 1]uint64

// Has reports whether status is in the set. Statuses outside of 200 to 599 never are.
func (s *Statuses) Has(status int) bool {
	i := status - MinStatus
	return i >= 0 && status <= MaxStatus && s[i/64]&(1<<(i%64)) != 0
}

func (s *Statuses) add(status int) {
	i := status - MinStatus
	s[i/64] |= 1 << (i % 64)
}

// List returns the statuses in ascending order.
func (s *Statuses) List() []int {
	var list []int
	for status := MinStatus; status <= MaxStatus; status++ {
		if s.Has(status) {
			list = append(list, status)
		}
	}
	return list
}
