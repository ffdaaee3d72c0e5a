// Package edge embeds the rate limiter in a Go server. A [Limiter] decides from memory, counts afterwards, and may
// share its counts with the other nodes of a PoP.
//
//	limiter, err := edge.New(edge.Options{Rules: edge.PerClient(100, time.Minute)})
//	if err != nil {
//		return err
//	}
//	defer limiter.Close(context.Background())
//	return http.ListenAndServe(":8080", limiter.Middleware(mux))
//
// [Limiter.Allow] limits anything other than HTTP. Rules have the format of rules files, so nodes of the command edge
// with the same secret, shards and rules can belong to the same PoP.
//
// Only the API of this package is stable. The other packages are parts of the command and change with it.
package edge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// Options configures a Limiter. Rules or RuleFiles is required. The zero value of every other field is usable: without
// Shards, the Limiter counts alone, in its own memory.
type Options struct {
	// Rules is the text of a rules file. [PerClient] returns a simple one.
	Rules string

	// RuleFiles are rules files, or directories of them, to use instead of Rules. The Limiter reloads them when they
	// change.
	RuleFiles []string

	// Name identifies the node in its PoP. If empty, the host name and the process ID.
	Name string

	// Shards are the memcached servers, as HOST:PORT, in which the nodes of a PoP count together. All nodes must have the
	// same Shards and the same Secret, of at least 16 bytes.
	Shards []string
	Secret string

	// Gossip lets the nodes of a PoP exchange mitigations immediately. If nil, they learn of mitigations from the shards.
	Gossip *Gossip

	// TrustedProxies are the networks of proxies whose X-Forwarded-For the Limiter trusts.
	TrustedProxies []netip.Prefix

	// TrackedKeys is the maximum number of keys whose counts are in memory, at 0.3 to 0.4 KB each. If zero, 262144.
	TrackedKeys int

	// Logger logs the start and end of mitigations, and errors. If nil, nothing is logged.
	Logger *slog.Logger
}

// Gossip configures how a node finds its peers.
type Gossip struct {
	Listen    string   // HOST:PORT, UDP and TCP
	Advertise string   // address at which peers reach Listen; if empty, Listen itself
	Join      []string // HOST:PORT of some peers
	Keys      [][]byte // of 16, 24 or 32 bytes; the first one encrypts packets, all decrypt them
}

// PerClient returns the text of a rules file with one rule, client: each client address may make this many requests in
// any period, which is rounded up to whole seconds. A client that makes more gets 429 until its rate has fallen again.
func PerClient(requests int, period time.Duration) string {
	return fmt.Sprintf(`rules:
  - id: client
    characteristics: [ip]
    limits: [{threshold: %d, period: %ds}]
    action: block
    mitigation_timeout: 0s
`, requests, max(1, (period+time.Second-1)/time.Second))
}

// A Limiter limits the rate of requests, or of anything that has a key. It is safe for concurrent use. Only New and
// Close block.
type Limiter struct{ node *pop.Node }

// New starts a Limiter. The caller must call Close when done with it.
func New(o Options) (*Limiter, error) {
	node := pop.Options{
		Embedded: true,
		Name:     o.Name, Secret: o.Secret, Shards: o.Shards,
		RuleFiles: o.RuleFiles, TrustedProxies: o.TrustedProxies, TrackedKeys: o.TrackedKeys,
		Logger: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
	}
	if o.Rules == "" && len(o.RuleFiles) == 0 {
		return nil, errors.New("edge: Rules or RuleFiles is required; for simple Rules, use PerClient(100, time.Minute)")
	}
	if o.Rules != "" {
		var err error
		if node.Rules, err = rulefile.Parse("Rules", []byte(o.Rules)); err != nil {
			return nil, err
		}
	}
	if node.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("edge: Name is empty, and the host name is unavailable: %w", err)
		}
		node.Name = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	if g := o.Gossip; g != nil {
		node.Gossip = pop.GossipOptions{Listen: g.Listen, Advertise: g.Advertise, Join: g.Join, Keys: g.Keys}
	}
	n, err := pop.New(node)
	if err != nil {
		return nil, err
	}
	if err := n.Start(); err != nil {
		return nil, err
	}
	return &Limiter{n}, nil
}

// Close sends pending counts and stops the Limiter. That takes at most a few seconds, even after ctx is done. A stopped
// Limiter still makes decisions, from what it knew, but counts nothing.
func (l *Limiter) Close(ctx context.Context) error { return l.node.Stop(ctx) }

// SetRules replaces the rules with those of text, the text of a rules file. After an error, the old rules remain in
// force. Rules that keep their ID and characteristics keep their counts and mitigations.
func (l *Limiter) SetRules(text string) error {
	set, err := rulefile.Parse("Rules", []byte(text))
	if err != nil {
		return err
	}
	return l.node.SetRules(set)
}

// Metrics returns the Limiter's metrics. Their names begin with edge_, go_ or process_.
func (l *Limiter) Metrics() prometheus.Gatherer { return l.node.Gatherer() }

// An Answer is the result of Allow.
type Answer struct {
	Allowed bool

	// RetryAfter is how long to wait before asking again, if not Allowed, in whole seconds and at least one.
	RetryAfter time.Duration

	// Remaining is how many more are allowed now. It is valid only if Known, once the key was counted.
	Remaining uint64
	Known     bool
}

// Allow decides by the rule with the given ID, which must have one characteristic. key is the value of that
// characteristic: an address for ip, any text for header:NAME. The rule's match and the access lists do not apply. If
// the rule does not refuse the key, Allow counts n; if n is 0, it only asks. HTTP requests with the same value share
// the counts.
//
// Allow does not block: it checks ctx only once, at the start. If ctx is done, if there is no such rule, or if no
// request can have the key, Allow returns an error and counts nothing.
func (l *Limiter) Allow(ctx context.Context, id, key string, n int) (Answer, error) {
	if err := ctx.Err(); err != nil {
		return Answer{}, err
	}
	r := l.node.Rules().Rule(id)
	switch {
	case r == nil:
		return Answer{}, fmt.Errorf("edge: there is no rule %q", id)
	case r.CountsAnswer():
		return Answer{}, fmt.Errorf("edge: rule %s counts by the response, which only HTTP requests have", id)
	case n < 0:
		return Answer{}, fmt.Errorf("edge: invalid n %d: must not be negative", n)
	}
	req, err := r.RequestOf(key)
	if err != nil {
		return Answer{}, fmt.Errorf("edge: %w", err)
	}
	d := l.node.DecideBy(pop.Ask{Rule: r, Request: &req, Times: min(uint64(n), rule.MaxThreshold)})[0]
	if d.Verdict.Refused() {
		return Answer{RetryAfter: d.RetryAfter}, nil
	}
	a := Answer{Allowed: true}
	for _, q := range d.Quotas {
		if q.Known && (!a.Known || q.Remaining < a.Remaining) {
			a.Known, a.Remaining = true, q.Remaining
		}
	}
	return a, nil
}
