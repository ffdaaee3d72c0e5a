// Package judge finds the faults of a PoP by examining the requests sent to it and its answers.
//
// The only code it shares with nodes is the parser of rules files, whose result it uses as plain
// data. docs/judge.md explains how it decides and what it cannot know.
//
// Memory use grows with the number of requests, clients, and keys that exceed a threshold.
// Judging starts after all requests have been sent.
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

	// Client is the prefix of an address that identifies a client, as set on the nodes.
	Client rule.ClientPrefix

	// Lag is the maximum time until all nodes have counted a request and act on the
	// resulting mitigation. If zero, 500 ms.
	Lag time.Duration

	// Skew is the maximum difference between the clocks of the generator and the nodes. If
	// zero, 5 ms.
	Skew time.Duration

	// Distrust is advice to show if the target does not learn the addresses of clients.
	Distrust string
}

// A Trace holds requests and their answers. Its methods are called from one goroutine only.
type Trace interface {
	// Len returns the number of requests.
	Len() int

	// At returns the ith request, in the order in which they were sent. It is called once for each.
	At(i int) Request

	// Properties returns the properties of the ith request that rules examine.
	Properties(i int, as As) Properties

	// Nodes returns the names of the nodes.
	Nodes() []string

	// Name returns the name of the ith request's client.
	Name(i int) string
}

// As selects the address under which a target counts a client.
type As int

const (
	AsSent     As = iota // the client's
	AsOne                // the generator's: clients are not distinguished
	AsLeftmost           // the leftmost address of X-Forwarded-For
)

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
type Failure int

const (
	Answered Failure = iota
	NotSent          // it did not reach the target
	Closed           // the connection ended first
	NoAnswer         // any other reason
)

// A court holds a trace and its analysis.
type court struct {
	o         Options
	trace     Trace
	lists     map[netip.Prefix]rule.Access
	labels    labels
	rules     []*rule.Rule                         // judged
	others    []*rule.Rule                         // not judged
	why       []string                             // the reason for each of others
	plans     map[*rule.Rule]map[string]*rule.Rule // by key: the rule with the key's overridden limits
	lag, skew int64
	memory    int64 // the longest period or mitigation timeout

	requests []request
	book     *book // with clients as they were sent
	books    map[variant]*book
	sent     []*request // those that reached the target, in the order in which they were sent
	done     []*request // the same, in the order in which they were answered
	refuses  bool       // at least one request was refused
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
	o.Lag, o.Skew = cmp.Or(o.Lag, 500*time.Millisecond), cmp.Or(o.Skew, 5*time.Millisecond)
	c := &court{
		o: o, trace: trace, lists: maps.Collect(o.Rules.Entries()), labels: labelsOf(o.Rules), plans: map[*rule.Rule]map[string]*rule.Rule{},
		lag: o.Lag.Microseconds(), skew: o.Skew.Microseconds(), requests: make([]request, trace.Len()), books: map[variant]*book{},
	}
	for _, r := range o.Rules.Rules() {
		why := unknown(r)
		if why == "" && r.Overrides != "" {
			var err error
			if c.plans[r], err = overrides(r); err != nil {
				why = err.Error()
			}
		}
		if why != "" {
			c.others, c.why = append(c.others, r), append(c.why, r.ID+": "+why)
			continue
		}
		c.rules = append(c.rules, r)
		c.memory = max(c.memory, r.MitigationTimeout.Microseconds())
		for _, l := range r.Limits {
			c.memory = max(c.memory, l.Period.Microseconds())
		}
	}
	for i := range c.requests {
		c.requests[i] = request{Request: trace.At(i), i: i}
	}
	c.book = c.bookOf(variant{})
	for i := range c.requests {
		q := &c.requests[i]
		if q.outcome = c.outcomeOf(q); q.outcome != unsent {
			c.sent = append(c.sent, q)
		}
		c.refuses = c.refuses || q.outcome == refused
	}
	c.done = answered(c.sent)
	return c.score(), nil
}

func (c *court) sheds() bool {
	return slices.ContainsFunc(c.rules, func(r *rule.Rule) bool { return r.Action == rule.Shed })
}

// answered returns requests in the order in which they were answered.
func answered(requests []*request) []*request {
	return slices.SortedStableFunc(slices.Values(requests), func(a, b *request) int { return cmp.Compare(a.Done, b.Done) })
}

// A variant is a way to derive the keys of requests.
type variant struct {
	as     As
	client rule.ClientPrefix // if zero, that of the options
	share  bool              // requests without a value share a count even if the rule skips them
	plain  bool              // all keys have the rule's own limits
}

// A book holds the keys of all requests.
type book struct {
	sets []*set // by request
	keys []*key
}

// A set is what requests with the same client and look have in common.
type set struct {
	keys   []*key // none if the client is listed
	list   rule.Access
	client int32 // number of the client
}

// A key identifies requests that a rule counts together.
type key struct {
	n     int // in book.keys
	rule  *rule.Rule
	sent  int64 // number of requests
	width int
}

// most returns the maximum count of k's requests.
func (k *key) most() int64 { return k.sent * costOf(k.rule) }

// mayExceed reports whether k has enough requests to exceed a limit.
func (k *key) mayExceed(l rule.Limit) bool { return k.most() > int64(min(l.Threshold, 1<<62)) }

func (k *key) sheds() bool { return k.rule.Action == rule.Shed }

// countsStatus reports whether r counts requests that the origin answers with status.
func countsStatus(r *rule.Rule, status int) bool { return r.Statuses == nil || r.Statuses.Has(status) }

// costOf returns how much each request counts.
func costOf(r *rule.Rule) int64 { return max(1, int64(r.Cost)) }

// of returns what b holds about a request.
func (b *book) of(q *request) *set { return b.sets[q.i] }

func (b *book) keysOf(q *request) []*key { return b.sets[q.i].keys }

// bookOf determines the keys of all requests, once for each variant.
func (c *court) bookOf(v variant) *book {
	if b := c.books[v]; b != nil {
		return b
	}
	bits := v.client
	if bits == (rule.ClientPrefix{}) {
		bits = c.o.Client
	}
	type sender struct{ client, look uint64 }
	type target struct {
		method, host, path string
		addr               netip.Addr
	}
	b := &book{sets: make([]*set, len(c.requests))}
	c.books[v] = b
	sets, known, rules, clients := map[sender]*set{}, map[string]*key{}, map[target][]*rule.Rule{}, map[netip.Prefix]int32{}
	for i := range c.requests {
		q := &c.requests[i]
		s := sets[sender{q.Client, q.Look}]
		if s == nil {
			p := c.trace.Properties(i, v.as)
			f := formOf(&p, bits)
			f.labels = c.labels
			to := target{method: p.Method, host: p.Host, path: p.Target}
			if len(c.o.Rules.NetworkSets()) > 0 {
				to.addr = f.addr
			}
			list, found := rules[to]
			if !found {
				for _, r := range c.rules {
					if r.Action != rule.Log && len(paths(r, &f)) > 0 {
						list = append(list, r)
					}
				}
				rules[to] = list
			}
			if _, known := clients[f.client]; !known {
				clients[f.client] = int32(len(clients))
			}
			access, _ := longest(c.lists, f.addr)
			s = &set{list: access, client: clients[f.client]}
			if access == rule.Unlisted {
				s.keys = c.keys(b, list, &f, v, known)
			}
			sets[sender{q.Client, q.Look}] = s
		}
		b.sets[i] = s
		if q.Answer.Failure != NotSent {
			for _, k := range s.keys {
				k.sent++
			}
		}
	}
	return b
}

// keys returns the keys under which rules count a request. It adds those that are not known yet to b.
func (c *court) keys(b *book, rules []*rule.Rule, f *form, v variant, known map[string]*key) (list []*key) {
	for _, r := range rules {
		for _, name := range keys(r, f, v.share) {
			by, found := c.plans[r][name]
			if !found || v.plain {
				by = r
			}
			k := known[name]
			if k == nil {
				k = &key{n: len(b.keys), rule: by, width: width(by)}
				known[name], b.keys = k, append(b.keys, k)
			}
			list = append(list, k)
		}
	}
	return list
}
