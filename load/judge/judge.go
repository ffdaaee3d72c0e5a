// Package judge finds the faults of a PoP by examining the requests sent to it and its answers.
//
// The only code it shares with nodes is the parser of rules files, whose result it uses as plain data. docs/judge.md
// explains how it decides and what it cannot know.
//
// Memory use grows with the number of requests, clients, and keys that exceed a threshold. Judging starts after all
// requests have been sent.
package judge

import (
	"cmp"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/edgelimit/edge/rule"
)

// Options configures Judge. Rules is required; the zero value of every other field is usable.
type Options struct {
	Rules *rule.Set

	// Client is the prefix of an address that identifies a client, as set on the nodes. NAT64 is ignored.
	Client rule.ClientPrefix

	// Lag is the maximum time until all nodes have counted a request and act on the resulting mitigation. If zero, 500
	// ms.
	Lag time.Duration

	// Skew is the maximum difference between the clocks of the generator and the nodes.
	Skew time.Duration

	// Distrust is advice to show if the target does not learn the addresses of clients.
	Distrust string

	// Policies are the values of RateLimit-Policy in responses. They show whether the target has other rules.
	Policies []string
}

// A Trace holds requests and their answers. Its methods are called from one goroutine only.
type Trace interface {
	// Len returns the number of requests.
	Len() int

	// At returns the ith request, in the order in which they were sent. It is called once for each.
	At(i int) Request

	// Properties returns the properties of the ith request that rules examine. If alike, the target sees the generator's
	// address instead of the clients'.
	Properties(i int, alike bool) Properties

	// Nodes returns the names of the nodes.
	Nodes() []string

	// Name returns the name of the ith request's client.
	Name(i int) string
}

// A Request is a request of a trace. Times are in microseconds since the Unix epoch.
type Request struct {
	Sent, Done int64  // Done is when it was answered or given up on
	Client     uint64 // the sender
	Look       uint64 // requests with the same client and look have the same properties
	Attack     bool   // it is meant to be refused
	Node       int    // index in Trace.Nodes of the node that answered
	Answer     Answer
}

// An Answer is the target's answer to a request.
type Answer struct {
	Failure   Failure
	Status    int  // 0 without an answer
	Expected  int  // the origin's status
	Prepared  bool // the body or ID shows that a rule refused the request
	Head      bool // the request was a HEAD, so there is no body
	Retry     int  // Retry-After in seconds; NoRetry if missing, BadRetry if not a number
	Remaining int  // the least reported for any limit, or −1 if not reported
	OtherTime bool // the time given for an exhausted limit differs from Retry-After
}

// Values of Answer.Retry.
const (
	NoRetry  = -1
	BadRetry = -2
)

// A Failure is the reason why there is no answer.
type Failure uint8

const (
	Answered Failure = iota
	NotSent          // it did not reach the target
	Closed           // the connection ended first
	NoAnswer         // this and all greater values: any other reason
)

// A judgment holds a trace, the rules, and the keys and outcomes of requests.
type judgment struct {
	o         Options
	trace     Trace
	lists     map[netip.Prefix]rule.Access
	labels    labels
	rules     []*rule.Rule                         // judged
	others    []*rule.Rule                         // not judged
	why       []string                             // the reason for each of others
	plans     map[*rule.Rule]map[string]*rule.Rule // by key: the rule with the key's overridden limits
	lag, skew int64
	memory    time.Duration // the longest time for which earlier traffic matters

	requests []request
	keys     *keying // by the clients' own addresses
	keyings  map[variant]*keying
	sent     []*request // those that reached the target, in the order in which they were sent
	done     []*request // the same, in the order in which they were answered
	refuses  bool       // at least one request was refused, by a rule or not
}

// A request is a request of the trace and its outcome.
type request struct {
	Request
	i       int // in the trace
	outcome outcome
}

// Judge compares a trace with rules.
func Judge(trace Trace, o Options) (*Score, error) {
	if o.Rules == nil {
		return nil, errors.New("judge: Options.Rules is required")
	}
	o.Lag = cmp.Or(o.Lag, 500*time.Millisecond)
	j := &judgment{
		o: o, trace: trace, lists: maps.Collect(o.Rules.Entries()), labels: labelsOf(o.Rules), plans: map[*rule.Rule]map[string]*rule.Rule{},
		lag: o.Lag.Microseconds(), skew: o.Skew.Microseconds(), requests: make([]request, trace.Len()), keyings: map[variant]*keying{},
	}
	for _, r := range o.Rules.Rules() {
		why := unknown(r)
		if why == "" && r.Overrides != "" {
			var err error
			if j.plans[r], err = overrides(r); err != nil {
				why = err.Error()
			}
		}
		if why != "" {
			j.others, j.why = append(j.others, r), append(j.why, r.ID+": "+why)
			continue
		}
		j.rules = append(j.rules, r)
		for _, l := range r.Limits {
			j.memory = max(j.memory, 2*l.Period+r.MitigationTimeout)
		}
	}
	for i := range j.requests {
		j.requests[i] = request{Request: trace.At(i), i: i}
	}
	j.keys = j.keying(variant{})
	for i := range j.requests {
		q := &j.requests[i]
		if q.outcome = j.outcomeOf(q); q.outcome != unsent {
			j.sent = append(j.sent, q)
		}
		j.refuses = j.refuses || q.outcome == refused || q.outcome == foreign
	}
	j.done = answered(j.sent)
	return j.score(), nil
}

// some reports whether a judged rule satisfies is.
func (j *judgment) some(is func(*rule.Rule) bool) bool { return slices.ContainsFunc(j.rules, is) }

// answered returns requests in the order in which they were answered.
func answered(requests []*request) []*request {
	return slices.SortedStableFunc(slices.Values(requests), func(a, b *request) int { return cmp.Compare(a.Done, b.Done) })
}

// without returns list without the entries for which remove returns true. If it removes nothing, it returns list itself.
func without[T any](list []T, remove func(T) bool) []T {
	if slices.ContainsFunc(list, remove) {
		list = slices.DeleteFunc(slices.Clone(list), remove)
	}
	return list
}
