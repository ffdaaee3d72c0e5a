// Package rule finds the rules that apply to a request, and the keys under which they count it. A rule says
// which requests it applies to, which of them are counted together, how many are too many, and what happens
// then: its [Action]. Package file reads rules from YAML, package limit turns an action into a verdict, and package
// proxy carries it out.
//
// A [Set] is built once, by [NewSet], and never changes. Its methods and those of its rules are safe for
// concurrent use. Looking up a request neither allocates nor locks.
package rule

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/internal/prose"
)

// Bounds of values in rules.
const (
	MaxThreshold = 1 << 53            // requests per period
	MinPeriod    = time.Second        // periods are whole seconds
	MaxPeriod    = 7 * 24 * time.Hour // also the maximum of a mitigation timeout
	MaxBody      = 64 << 10           // bytes of a response body
	MaxFields    = 16                 // further header fields of a response
	MaxFieldSize = 2048               // bytes of all of them, so that every proxy has room for them
	MaxOrigins   = 64                 // of a response
	MaxID        = 64                 // bytes of a rule's ID
	MaxCost      = 1_000_000          // of a request
	MaxCostJSON  = 100                // bytes of a path in JSON
	MinStatus    = 200
	MaxStatus    = 599
	MaxClients   = 100 // of MinClients
)

// A Rule says which requests are counted together and what happens to a client that exceeds a limit.
// Rules are shared and must not be modified.
type Rule struct {
	// ID is part of every key: a rule that keeps its ID and characteristics across a reload keeps its
	// counts.
	ID string

	// Index is the rule's place in the order of the files.
	Index int

	// File and Line are the place where the rule begins.
	File string
	Line int

	Match

	// Except lists exceptions: the rule does not apply to requests that match one. If a path can be read
	// in several ways, every reading must match.
	Except []Match

	// PathSyntax says how paths are read to match, except and count requests.
	PathSyntax PathSyntax

	// Statuses are those of the origin's answers for which requests are counted. If nil, all requests are, on arrival
	// unless the rule has a CostHeader or CostJSON.
	Statuses *Statuses

	// Cost is how much a request counts; 0 means 1. CostHeader is the field of the origin's answer, as
	// net/http spells it, that says how much its request counts instead, and CostJSON the path of the number in
	// the answer's body, with dots between names. At most one is set. Cost applies if both are empty, or if the answer
	// has no valid value.
	Cost                 uint64
	CostHeader, CostJSON string

	// Reserve is the part of the cost that counts on arrival, if the answer determines the cost. No request costs less,
	// and Cost is not less.
	Reserve uint64

	// Characteristics are the properties by whose values requests are counted.
	Characteristics []Characteristic

	// Limits are in the order of the file. There is at least one, and no two have the same period.
	Limits []Limit

	// Overrides is the file with the keys that have limits of their own, or empty. See [Rule.Override].
	Overrides string

	// MitigationTimeout is the minimum duration of a mitigation. If 0, a mitigation ends as soon as the
	// estimate is back at the threshold.
	MitigationTimeout time.Duration

	// CountWhileMitigated makes requests of a mitigated key count and prolong the mitigation. Otherwise
	// only requests that pass count.
	CountWhileMitigated bool

	// CountRefused makes the rule count requests that other rules refuse, unless the key that refuses belongs to fewer
	// clients, or this rule also mitigates a key of the request.
	CountRefused bool

	// MinClients is the number of different clients of a key that a node must have seen, in the current
	// and the previous window, to mitigate the key. 0 means 1.
	MinClients int

	Action   Action
	Response *Response

	// HidesQuota keeps the rule out of the fields that tell clients their quota.
	HidesQuota bool

	// OnFailure says what happens to requests if the shard of their key is unavailable. It is not part
	// of the key.
	OnFailure OnFailure

	fingerprint uint64 // 0 until the rule is in a set
	longPath    int    // see lengthOfPaths; set with fingerprint

	overrides *Overrides
	base      *Rule // the rule in the file, if this one has the limits of a key; else nil
}

// FailsClosed reports whether requests are refused while the shard of their key is unavailable. Rules
// that only log refuse nothing.
func (r *Rule) FailsClosed() bool { return r.OnFailure == FailClosed && r.Action.Refuses() }

// CountsMitigated reports whether requests of a mitigated key count even though they are refused.
func (r *Rule) CountsMitigated() bool { return r.CountWhileMitigated || r.Action == Shed }

// CountsRefused reports whether requests count even if another rule refuses them: see [Rule.CountRefused].
func (r *Rule) CountsRefused() bool { return r.CountRefused || r.Action == Shed }

// RefusesClient reports whether a mitigation by r refuses every request of a client, with the same response.
func (r *Rule) RefusesClient() bool {
	return r.Action == Block && len(r.Response.Origins) == 0 && r.Empty() && len(r.Except) == 0 &&
		len(r.Characteristics) == 1 && r.Characteristics[0].Kind == IP
}

// CountsAnswer reports whether requests are counted after the origin has answered, because the answer
// determines how much they count.
func (r *Rule) CountsAnswer() bool {
	return r.Statuses != nil || r.CostHeader != "" || r.CostJSON != ""
}

// CostSource returns the CostHeader or the CostJSON, at most one of which is set.
func (r *Rule) CostSource() string {
	if r.CostJSON != "" {
		return r.CostJSON
	}
	return r.CostHeader
}

// CostOf returns how much n requests count, at most MaxThreshold. For a rule with a CostSource, it
// returns the count of requests whose answers lack the value.
func (r *Rule) CostOf(n uint64) uint64 { return times(n, max(1, r.Cost)) }

// CostOnArrival returns how much of CostOf(n) counts on arrival.
func (r *Rule) CostOnArrival(n uint64) uint64 {
	if r.CountsAnswer() {
		return times(n, r.Reserve)
	}
	return r.CostOf(n)
}

func times(n, cost uint64) uint64 { return min(n, MaxThreshold/max(1, cost)) * cost }

// CostIn returns how much a request counts, given the values of CostSource in its answer. ok is false if they are not a
// single number up to MaxCost: the cost is then MaxCost for a greater number, else CostOf(1).
func (r *Rule) CostIn(values []string) (cost uint64, ok bool) {
	if len(values) != 1 || values[0] == "" || strings.Trim(values[0], "0123456789") != "" {
		return r.CostOf(1), false
	}
	cost, err := strconv.ParseUint(values[0], 10, 64)
	return min(cost, MaxCost), err == nil && cost <= MaxCost // ParseUint returns the greatest number if out of range
}

// OnFailure says what happens to a request while the shard of its key is unavailable. It does not affect
// active mitigations.
type OnFailure uint8

const (
	FailLocal  OnFailure = iota // count and limit based on what this node knows
	FailOpen                    // start no mitigation based on this node's counts alone
	FailClosed                  // refuse with 503, and do not count
)

var onFailureNames = [...]string{FailLocal: "local", FailOpen: "open", FailClosed: "closed"}

// OnFailureNames returns the names of all choices, in their order.
func OnFailureNames() []string { return onFailureNames[:] }

// String returns the choice as spelled in rules files.
func (o OnFailure) String() string { return onFailureNames[o] }

// Statuses is a set of response statuses.
type Statuses [(MaxStatus-MinStatus)/64 + 1]uint64

// Has reports whether status is in the set. Statuses outside 200 to 599 never are.
func (s *Statuses) Has(status int) bool {
	i := status - MinStatus
	return i >= 0 && status <= MaxStatus && s[i/64]&(1<<(i%64)) != 0
}

// Add adds status, which must be from 200 to 599.
func (s *Statuses) Add(status int) {
	i := status - MinStatus
	s[i/64] |= 1 << (i % 64)
}

// A Limit is exceeded when the estimated number of requests in any Period is
// greater than Threshold.
type Limit struct {
	Threshold uint64
	Period    time.Duration // whole seconds

	// SubWindows is the number of equal parts of a window that are counted separately. The more
	// there are, the smaller the error of the estimate. 0 means 1. Threshold and Period limit it, and so
	// does the number of nodes: a PoP with more than counter.Layout.MaxNodes refuses the rule.
	SubWindows int

	// Estimate says how the previous window counts, and whether the estimate is rounded down.
	Estimate counter.Kind
}

// Counted returns how l is counted.
func (l Limit) Counted() counter.Limit {
	layout := counter.Layouts[max(1, l.SubWindows)] // rules with more sub-windows are not loaded
	return counter.Limit{Threshold: l.Threshold, Period: l.Period.Microseconds(), Layout: layout, Kind: l.Estimate}
}

// String returns the limit in the form 50 in 1m.
func (l Limit) String() string {
	return fmt.Sprintf("%d in %s", l.Threshold, FormatDuration(l.Period))
}

// Bound returns the maximum total cost of the requests of one key that pass in any trailing period, and the
// calculation. Each request costs cost. late is the total cost of the requests that pass between the one that
// crosses the threshold and the moment when every node of the PoP acts on it:
//
//	2·(threshold + late) + cost      weighted
//	2·(threshold + late + 1) + cost  weighted, rounded down
//	2·(threshold + late + cost)      fixed
//	threshold + late + cost          whole_oldest
//
// By itself, the weighted estimate lets through at most twice the threshold, with any number of
// sub-windows: all of it at the end of a sub-window, and all of it again as that sub-window's weight falls. A fixed
// window lets one more request through: the one that crosses the threshold in the first of two windows.
// If the oldest sub-window counts in full, the estimate is never less than the actual count.
func (l Limit) Bound(late, cost uint64) (most uint64, arithmetic string) {
	switch l.Estimate {
	case counter.Fixed:
		return 2 * (l.Threshold + late + cost), fmt.Sprintf("2·(%d + %d + %d)", l.Threshold, late, cost)
	case counter.WholeOldest:
		return l.Threshold + late + cost, fmt.Sprintf("%d + %d + %d", l.Threshold, late, cost)
	case counter.WeightedRounded:
		return 2*(l.Threshold+late+1) + cost, fmt.Sprintf("2·(%d + %d + 1) + %d", l.Threshold, late, cost)
	}
	return 2*(l.Threshold+late) + cost, fmt.Sprintf("2·(%d + %d) + %d", l.Threshold, late, cost)
}

// FormatDuration formats d as spelled in rules files, without fractions of a second: 10s, 1h30m, 7d. d must
// not be negative.
func FormatDuration(d time.Duration) string { return string(AppendDuration(nil, d)) }

// AppendDuration appends d to dst in the format of FormatDuration.
func AppendDuration(dst []byte, d time.Duration) []byte {
	return prose.AppendDuration(dst, d.Truncate(time.Second))
}
