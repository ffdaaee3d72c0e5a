package judge

import (
	"cmp"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/edgelimit/edge/pop/rule"
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

	// Top is the maximum number of clients that a fault names. If zero, 10.
	Top int
}

// A Trace holds requests and their answers. Its methods are called from one goroutine only.
type Trace interface {
	// Len returns the number of requests.
	Len() int

	// At returns the ith request, in the order in which they were sent.
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
	Sent, Done int64  // Done is when it was answered or given up
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
	Prepared  bool // the body is that of a rule's response
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

	book     *book // with clients as they were sent
	books    map[variant]*book
	bySent   []int32 // requests that reached the target, by Sent
	byDone   []int32 // the same, by Done
	outcomes []outcome
	refuses  bool // at least one request was refused
}

// Judge compares a trace with rules.
func Judge(trace Trace, o Options) (*Score, error) {
	if o.Rules == nil {
		return nil, errors.New("judge: Options.Rules is required")
	}
	o.Lag, o.Skew, o.Top = cmp.Or(o.Lag, 500*time.Millisecond), cmp.Or(o.Skew, 5*time.Millisecond), cmp.Or(o.Top, 10)
	c := &court{plans: map[*rule.Rule]map[string]*rule.Rule{}, o: o, trace: trace, lists: maps.Collect(o.Rules.Entries()), labels: labelsOf(o.Rules), lag: o.Lag.Microseconds(), skew: o.Skew.Microseconds()}
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
	c.book = c.bookOf(variant{})
	c.books = map[variant]*book{{}: c.book}
	c.classify()
	c.refuses = slices.Contains(c.outcomes, refused)
	for i, o := range c.outcomes {
		if o != unsent {
			c.bySent = append(c.bySent, int32(i))
		}
	}
	c.byDone = c.answered(c.bySent)
	return c.score(), nil
}

// answered returns requests sorted by the time of their answers.
func (c *court) answered(requests []int32) []int32 {
	type done struct {
		at int64
		i  int32
	}
	list := make([]done, len(requests))
	for n, i := range requests {
		list[n] = done{c.at(i).Done, i}
	}
	slices.SortStableFunc(list, func(a, b done) int { return cmp.Compare(a.at, b.at) })
	order := make([]int32, len(list))
	for n := range list {
		order[n] = list[n].i
	}
	return order
}

// at returns a request.
func (c *court) at(i int32) Request { return c.trace.At(int(i)) }

// A variant is a way to derive the keys of requests.
type variant struct {
	as     As
	client rule.ClientPrefix // if zero, that of the options
	share  bool              // requests without a value share a count even if the rule skips them
	plain  bool              // all keys have the rule's own limits
}

// A book holds the keys of all requests.
type book struct {
	of     []int32       // index in sets, by request
	sets   [][]int32     // indexes in keys
	list   []rule.Access // by set
	client []int32       // number of the client, by set
	keys   []key
	sheds  bool // at least one key's rule sheds
}

// A key identifies requests that a rule counts together.
type key struct {
	rule  *rule.Rule
	sent  int64 // number of requests
	width int
}

// most returns the maximum count of k's requests.
func (k *key) most() int64 { return k.sent * costOf(k.rule) }

// countsStatus reports whether r counts requests that the origin answers with status.
func countsStatus(r *rule.Rule, status int) bool { return r.Statuses == nil || r.Statuses.Has(status) }

// costOf returns how much each request counts.
func costOf(r *rule.Rule) int64 { return max(1, int64(r.Cost)) }

// bookOf determines the keys of all requests.
func (c *court) bookOf(v variant) *book {
	bits := v.client
	if bits == (rule.ClientPrefix{}) {
		bits = c.o.Client
	}
	type sender struct{ client, look uint64 }
	type target struct {
		method, host, path string
		addr               netip.Addr
	}
	b := &book{of: make([]int32, c.trace.Len())}
	sets, numbers, rules, clients := map[sender]int32{}, map[string]int32{}, map[target][]*rule.Rule{}, map[netip.Prefix]int32{}
	for i := range b.of {
		q := c.trace.At(i)
		set, found := sets[sender{q.Client, q.Look}]
		if !found {
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
					if r.Action != rule.Log && concerns(r, &f) {
						list = append(list, r)
					}
				}
				rules[to] = list
			}
			set = b.add(list, &f, c.listed(f.addr), v, c.plans, numbers)
			sets[sender{q.Client, q.Look}] = set
			if _, known := clients[f.client]; !known {
				clients[f.client] = int32(len(clients))
			}
			b.client = append(b.client, clients[f.client])
		}
		b.of[i] = set
		if q.Answer.Failure != NotSent {
			for _, k := range b.sets[set] {
				b.keys[k].sent++
			}
		}
	}
	return b
}

// listed returns the access of the longest listed prefix that contains a.
func (c *court) listed(a netip.Addr) rule.Access {
	access, ok := longest(c.lists, a)
	if !ok {
		return rule.Unlisted
	}
	return access
}

// add adds a set of keys and returns its index. The set is empty if the client is listed.
func (b *book) add(rules []*rule.Rule, f *form, list rule.Access, v variant, plans map[*rule.Rule]map[string]*rule.Rule, numbers map[string]int32) int32 {
	var set []int32
	for _, r := range rules {
		if list != rule.Unlisted {
			break
		}
		for _, k := range keys(r, f, v.share) {
			by, found := plans[r][k]
			if !found || v.plain {
				by = r
			}
			if by == nil {
				continue // exempt
			}
			n, found := numbers[k]
			if !found {
				n = int32(len(b.keys))
				numbers[k] = n
				b.sheds = b.sheds || by.Action == rule.Shed
				b.keys = append(b.keys, key{rule: by, width: width(by)})
			}
			set = append(set, n)
		}
	}
	b.sets, b.list = append(b.sets, set), append(b.list, list)
	return int32(len(b.sets) - 1)
}

// keysOf returns the keys of a request.
func (b *book) keysOf(i int32) []int32 { return b.sets[b.of[i]] }
