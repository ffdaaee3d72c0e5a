// Package mitigation implements the records by which the nodes of a PoP agree on which
// clients to stop: the [Record], the [Table] of records that every node keeps in memory,
// and their encodings in shards and between nodes.
//
// The node that sees a limit exceeded makes a record, all nodes merge it, and they forget it when it expires. Merging
// is commutative, associative and idempotent in all compared fields, so records may arrive in any order, and more than
// once. The package does no networking.
package mitigation

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/edgelimit/edge/counter"
)

// MaxLifetime is the maximum lifetime of a record. A mitigation lasts for its rule's timeout,
// at most 7 days, or until the estimate is back at the threshold, which takes at most two
// periods of 7 days.
const MaxLifetime = 14 * 24 * time.Hour

// A Record says that a key is mitigated, or that its mitigation was lifted. The fields from Key to
// Node are the same on every node and never change.
type Record struct {
	Key counter.Key

	// Generation counts the lifts before this record. A record made after a lift has the
	// lift's generation + 1, and so wins over it.
	Generation uint32

	// Lifted ends all mitigations of the generation.
	Lifted bool

	// Start is when the mitigation began, in microseconds since the Unix epoch, by the clock of the node that made the
	// record. If the previous mitigation ends later, by another clock, Start is moved so that the new mitigation ends
	// last.
	Start int64

	// Lifetime is how long the mitigation lasts, in whole microseconds.
	Lifetime time.Duration

	// Node is the node that made the record.
	Node NodeID

	// ByHand reports whether an operator made the record. It is not compared.
	ByHand bool

	// ID identifies the key to people: see Options.ID. Estimate is that of Why, rounded up. Only records from a Table
	// have them. They are neither compared nor sent: each node computes them once.
	ID       counter.ID
	Estimate uint64

	// Why is the evaluation that led to the record. It may be zero for lifts and for records made
	// by hand.
	Why Why

	// Rule is the fingerprint of the exceeded rule, or 0 if unknown, as on a node that has the record from a shard. Client
	// is the address of the request that exceeded the limit; it is invalid if unknown, or if operators do not allow
	// logging it. Neither is compared, and both are sent only between nodes.
	Rule   uint64
	Client netip.Addr

	// Sample is the request that exceeded the limit. It is nil except on the node where the
	// mitigation started. It is not compared and never leaves the node.
	Sample *Sample

	// Acted is the number of requests that this node has acted on because of the record. Only Table.Expire sets it.
	Acted uint64

	// Deadline is when the record ends on this node, by its own monotonic clock. It is not compared: of two copies of a
	// record, the earlier deadline applies.
	Deadline time.Time
}

// AnyRule is the Rule of a record with which an operator refuses a client, regardless of rules.
const AnyRule = 1

// A NodeID identifies a node of a PoP.
type NodeID uint64

// A Sample is the last request that was counted before a mitigation started.
type Sample struct {
	Rule               string // ID
	Client             netip.Addr
	Method, Host, Path string

	// At is when the request arrived, or an earlier one that was counted with it, in microseconds since
	// the Unix epoch.
	At int64
}

// Why holds the numbers that show that a limit is exceeded.
type Why struct {
	Limit     counter.Limit
	Prev, Cur uint64 // values of the previous and the current window
	Elapsed   int64  // elapsed part of the current window, in microseconds
}

// estimate returns the estimate, rounded up, or 0 if w is zero.
func (w Why) estimate() uint64 {
	if w == (Why{}) {
		return 0
	}
	return w.Limit.Estimate(w.Prev, w.Cur, w.Elapsed).Ceil()
}

// String explains the numbers; see [counter.Limit.Explain].
func (w Why) String() string {
	if w == (Why{}) {
		return ""
	}
	return w.Limit.Explain(w.Prev, w.Cur, w.Elapsed)
}

// End returns when r ends, in microseconds since the Unix epoch, by the clock of the node
// that made it.
func (r Record) End() int64 { return r.Start + r.Lifetime.Microseconds() }

// lift returns the lift that the generation of a mitigation implies. If r is of generation 0, or a lift itself, lift
// returns a record that has ended. A table keeps the lift once it forgets r, so that nodes agree on the key's
// generation, even if they never knew r. The lift is the same on every node.
func (r Record) lift() (lift Record) {
	if r.Lifted || r.Generation == 0 {
		return lift
	}
	r.Generation--
	r.Deadline = r.Deadline.Add(MaxLifetime - r.Lifetime)
	r.Lifted, r.Lifetime, r.Why, r.ByHand, r.Sample = true, MaxLifetime, Why{}, false, nil
	return r
}

// merge merges r, which has not ended at now, into have, the record that a node holds for the same key: see
// [Table.Merge]. changed reports whether the result differs from have in more than the deadline.
func merge(have, r Record, now time.Time) (merged Record, changed bool) {
	active, order := now.Before(have.Deadline), compare(r, have)
	switch {
	case order > 0:
		if r.Rule == 0 {
			r.Rule = have.Rule // a key has one rule
		}
		if active {
			r.complete(&have)
			r.Sample = cmp.Or(r.Sample, have.Sample)
		}
		return r, true
	case !active:
		return have, false
	case order < 0:
		r.Client = netip.Addr{} // it comes from an earlier request
	case r.Deadline.Before(have.Deadline):
		have.Deadline = r.Deadline
	}
	changed = have.complete(&r)
	return have, changed
}

// complete copies the rule and the client of o if r lacks them, and reports whether it copied anything.
func (r *Record) complete(o *Record) (more bool) {
	if r.Rule == 0 && o.Rule != 0 {
		r.Rule, more = o.Rule, true
	}
	if !r.Client.IsValid() && o.Client.IsValid() {
		r.Client, more = o.Client, true
	}
	return more
}

// Wins reports whether r takes precedence over o, a record of the same key.
func (r Record) Wins(o Record) bool { return compare(r, o) > 0 }

// compare orders the records of one key; the greatest takes precedence. It is a total order on the fields that are the
// same on every node.
func compare(a, b Record) int {
	return cmp.Or(
		cmp.Compare(a.Generation, b.Generation),
		cmp.Compare(a.next(), b.next()), // lifted
		cmp.Compare(a.End(), b.End()),
		cmp.Compare(a.Node, b.Node),
		cmp.Compare(a.Start, b.Start),
	)
}
