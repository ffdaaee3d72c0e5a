// Package edge embeds the rate limiter in a Go server: a [Limiter] decides from memory, counts
// afterwards, and shares its counts with the other nodes of its PoP, or with nobody.
//
//	limiter, err := edge.New(edge.Options{Rules: edge.PerClient(100, time.Minute)})
//	if err != nil {
//		return err
//	}
//	defer limiter.Close(context.Background())
//	return http.ListenAndServe(":8080", limiter.Middleware(mux))
//
// [Limiter.Allow] limits what is not HTTP. Rules are those of rules files; a node of the command
// edge with the same secret, shards and rules may belong to the same PoP.
//
// This package is the one whose API is stable. The others are parts of the command, and change
// with it.
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
	"github.com/edgelimit/edge/pop/rule"
)

// Options configures a Limiter. Rules or RuleFiles are required. The zero value of every other
// field is usable, and makes a Limiter that counts alone, in its own memory.
type Options struct {
	// Rules is the text of a rules file. [PerClient] writes a simple one.
	Rules string

	// RuleFiles are rules files and directories of them, instead of Rules. They are read again when
	// they change.
	RuleFiles []string

	// Name tells the nodes of a PoP apart. If empty, the host's name and the process ID.
	Name string

	// Shards are the memcached servers, as HOST:PORT, in which the nodes of a PoP count together.
	// All are given the same ones, and the same Secret of at least 16 bytes.
	Shards []string
	Secret string

	// Gossip lets the nodes of a PoP tell each other at once whom they mitigate. If nil, they learn
	// it from the shards.
	Gossip *Gossip

	// TrustedProxies are the networks of proxies whose X-Forwarded-For is believed.
	TrustedProxies []netip.Prefix

	// TrackedKeys is how many keys have their counts in memory, about 0.3 KB each. If zero, 262144.
	TrackedKeys int

	// Logger gets mitigations that begin and end, and what goes wrong. If nil, nothing is logged.
	Logger *slog.Logger
}

// Gossip says how a node finds the others of its PoP.
type Gossip struct {
	Listen    string   // HOST:PORT, UDP and TCP
	Advertise string   // where others reach Listen; if empty, its own address
	Join      []string // HOST:PORT of some other nodes
	Keys      [][]byte // 16, 24 or 32 bytes; packets are encrypted by the first
}

// PerClient returns the text of a rules file with one rule, client: each client address may make
// this many requests in any period, which is a multiple of a second. A client that makes more is
// refused with 429 until its rate has fallen again.
func PerClient(requests int, period time.Duration) string {
	return fmt.Sprintf(`rules:
  - id: client
    characteristics: [ip]
    limits: [{threshold: %d, period: %ds}]
    action: block
    mitigation_timeout: 0s
`, requests, max(1, (period+time.Second-1)/time.Second))
}

// A Limiter limits the rate of requests, or of anything that has a key. Its methods may be called
// concurrently. None but New and Close waits for anything.
type Limiter struct{ node *pop.Node }

// New returns a Limiter that counts. Close ends it.
func New(o Options) (*Limiter, error) {
	node := pop.Options{
		Embedded: true,
		Name:     o.Name, Secret: o.Secret, Shards: o.Shards,
		RuleFiles: o.RuleFiles, TrustedProxies: o.TrustedProxies, TrackedKeys: o.TrackedKeys,
		Logger: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
	}
	if o.Rules == "" && len(o.RuleFiles) == 0 {
		return nil, errors.New("edge: Rules or RuleFiles are required; PerClient(100, time.Minute) makes simple Rules")
	}
	if o.Rules != "" {
		var err error
		if node.Rules, err = rule.Parse("Rules", []byte(o.Rules)); err != nil {
			return nil, err
		}
	}
	if node.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("edge: Name is empty, and the host has none: %w", err)
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

// Close sends the counts that wait, until ctx is done, and ends the Limiter. Requests are decided
// afterwards as well, by what is known, and not counted.
func (l *Limiter) Close(ctx context.Context) error { return l.node.Stop(ctx) }

// SetRules replaces the rules by the text of a rules file. After an error the old rules stay. Counts
// and mitigations of rules that keep their ID and characteristics are kept.
func (l *Limiter) SetRules(text string) error {
	set, err := rule.Parse("Rules", []byte(text))
	if err != nil {
		return err
	}
	return l.node.SetRules(set)
}

// Metrics returns the Limiter's metrics. Their names begin with edge_, go_ and process_.
func (l *Limiter) Metrics() prometheus.Gatherer { return l.node.Gatherer() }

// An Answer says whether something may be done.
type Answer struct {
	Allowed bool

	// RetryAfter is after what time to ask again if it may not: whole seconds, at least one.
	RetryAfter time.Duration

	// Remaining is how many times more it may be done now, and Known whether the Limiter knows that:
	// it does once it has counted the key.
	Remaining uint64
	Known     bool
}

// Allow decides by a rule with one characteristic. key is its value: an address for ip, any text for
// header:NAME. The rule's match and the access lists do not apply. Allow counts n if it allows; 0 only
// asks. HTTP requests with this value share the counts.
//
// Allow does not wait: ctx is looked at first and no more. It returns an error if ctx is done, if
// there is no such rule, or if no request can have the key; then nothing was counted.
func (l *Limiter) Allow(ctx context.Context, id, key string, n int) (Answer, error) {
	if err := ctx.Err(); err != nil {
		return Answer{}, err
	}
	r := l.node.Rules().Rule(id)
	switch {
	case r == nil:
		return Answer{}, fmt.Errorf("edge: there is no rule %q", id)
	case r.CountsAnswer():
		return Answer{}, fmt.Errorf("edge: rule %s counts by an answer, which only requests have", id)
	case n < 0:
		return Answer{}, fmt.Errorf("edge: n is %d: must not be negative", n)
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
