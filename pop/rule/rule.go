// Package rule turns rules files into an immutable [Set]: which requests a rule
// concerns, what it counts apart, how many are too many, and what happens then.
//
// A Set is built once, by [Load] or [Parse], and never changes. Every function
// and method of the package may be called concurrently. Looking a request up
// neither allocates nor locks.
package rule

import (
	"strconv"
	"strings"
	"time"
)

// Bounds of what a rules file may say.
const (
	MaxThreshold = 1 << 53            // requests per period
	MinPeriod    = time.Second        // periods are whole seconds
	MaxPeriod    = 7 * 24 * time.Hour // also of a mitigation timeout
	MaxBody      = 64 << 10           // bytes of a response body
	MaxID        = 64                 // bytes of a rule's ID
	MaxCost      = 1_000_000          // of a request
	MinStatus    = 200
	MaxStatus    = 599
	MaxClients   = 100 // of MinClients
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

	Match

	// Except are requests that match but are not subject to the rule. A request is
	// excepted only if it is in each form in which the rule reads its path.
	Except []Match

	// PathSyntax is how the rule reads the paths of requests, to match them, to except
	// them and to count them by path.
	PathSyntax PathSyntax

	// Statuses selects what is counted by the status that the origin answered.
	// Nil counts every request, when it arrives unless the rule has a CostHeader.
	Statuses *Statuses

	// Cost is how much a request counts; 0 is the same as 1. CostHeader is the field of the
	// origin's answer, as net/http spells it, that says how much its request counts: Cost holds
	// if the answer does not have a valid one. Empty: Cost always holds.
	Cost       uint64
	CostHeader string

	// Characteristics are the properties whose values are counted apart.
	Characteristics []Characteristic

	// Limits are in the order of the file; there is at least one, and no two
	// have the same period.
	Limits []Limit

	// Overrides is the file with the keys that have limits of their own; empty: there is no file. See
	// [Set.Override].
	Overrides string

	// MitigationTimeout is how long a mitigation lasts at least. 0 ends it as
	// soon as the estimate is back at the threshold.
	MitigationTimeout time.Duration

	// CountWhileMitigated says that requests of a mitigated key count as well, and prolong
	// the mitigation. Otherwise only requests that pass count.
	CountWhileMitigated bool

	// MinClients is how many different clients of a key a node must have seen, in this window and the one
	// before, to mitigate it. 0 is the same as 1.
	MinClients int

	Action   Action
	Response *Response

	// OnFailure is what becomes of requests whose key's counter shard is unavailable. It
	// is no part of the key.
	OnFailure OnFailure

	// Disabled says that the file has enabled: false. Such a rule is not part of a Set.
	Disabled bool

	base *Rule // that has other limits, for other keys; nil if this is it
}

// A Match says which requests are meant: those that are in each of its lists. An empty list
// means everything. Hosts are canonical, and paths are in the normal form of the rule's
// PathSyntax. A host may begin with "*.", which stands for one or more labels; a path may
// end in "*", which stands for anything, also for more slashes.
type Match struct {
	Hosts, Methods, Paths []string
	Networks              []*NetworkSet // one of them has the client's address
}

// FailsClosed reports whether requests are refused while their key's counter shard is
// unavailable. A rule that only logs refuses none.
func (r *Rule) FailsClosed() bool { return r.OnFailure == FailClosed && r.Action != Log }

// CountsMitigated reports whether requests of a mitigated key count as well, though they are refused.
func (r *Rule) CountsMitigated() bool { return r.CountWhileMitigated || r.Action == Shed }

// CountsAnswer reports whether requests are counted when the origin has answered, since what they
// count depends on the answer.
func (r *Rule) CountsAnswer() bool { return r.Statuses != nil || r.CostHeader != "" }

// CostOf returns how much n requests count, at most MaxThreshold. With a CostHeader it is that of
// requests whose answers lack the field.
func (r *Rule) CostOf(n uint64) uint64 {
	each := max(1, r.Cost)
	return min(n, MaxThreshold/each) * each
}

// CostIn returns how much a request counts whose answer has these values of CostHeader, at most
// MaxCost. ok is false if they are not one number up to MaxCost.
func (r *Rule) CostIn(values []string) (cost uint64, ok bool) {
	if len(values) != 1 || values[0] == "" || strings.Trim(values[0], "0123456789") != "" {
		return r.CostOf(1), false
	}
	cost, err := strconv.ParseUint(values[0], 10, 64)
	return min(cost, MaxCost), err == nil && cost <= MaxCost // out of range is the greatest number
}

// An Action is what happens to the requests of a mitigated key. A greater
// action is more severe: where several rules mitigate a request, the most
// severe one decides.
type Action uint8

const (
	Log       Action = iota // count and record, never act
	Shed                    // refuse as many of the key's clients as exceed the threshold
	ShadowBan               // answer a prepared response, origin untouched
	Block                   // refuse with a response that says why
	Close                   // close the connection, or reset the stream
)

var actionNames = [...]string{Log: "log", Shed: "shed", ShadowBan: "shadow_ban", Block: "block", Close: "close"}

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

// A Characteristic is a property of a request whose values are counted apart.
type Characteristic struct {
	Kind Kind

	// Name is the header (in lower case), cookie or query parameter, the labels, how many bits the
	// networks have (24/48 for IPv4 and IPv6), or the alternatives. Empty for the kinds that have no name.
	Name string

	// Skip says that a request without the value is not the rule's concern:
	// neither counted nor mitigated. If false, all requests without it share
	// one count. Always true for labels.
	Skip bool

	// First are the alternatives of the kind First: the first of which a request has a value counts, else
	// the last.
	First []Characteristic

	canonical  string // Name as net/http spells a header
	ipv4, ipv6 uint8  // bits of a network
	labels     *LabelSet
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
	Label
	Network
	First
)

var kindNames = [...]string{IP: "ip", Host: "host", Path: "path", Method: "method", Header: "header", Cookie: "cookie", Query: "query",
	Label: "label", Network: "network", First: "first"}

// String returns the kind as rules files write it.
func (k Kind) String() string { return kindNames[k] }

// named reports whether characteristics of kind k have a name.
func (k Kind) named() bool { return k >= Header }

// chosen reports whether clients choose the values of characteristics of kind k.
func (k Kind) chosen() bool { return k == Header || k == Cookie || k == Query }

// several reports whether a request may have several values of characteristics of kind k.
func (k Kind) several() bool { return k == Path || k.chosen() }

// Same reports whether c and o are the same property.
func (c Characteristic) Same(o Characteristic) bool { return c.Kind == o.Kind && c.Name == o.Name }

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
