package judge

// Keys that many clients share: which rules count requests that others refuse, and how many clients a key has.

import (
	"net/netip"
	"slices"

	"github.com/edgelimit/edge/rule"
)

// reachedDespite reports whether requests that other keys refuse reach k, which counts them if it sheds or counts refused
// requests: narrower rules stop them, and what a rule itself refuses reaches it only if it sheds.
func (k *key) reachedDespite(by ...*key) bool {
	return !slices.ContainsFunc(by, func(other *key) bool {
		return other.width < k.width || !k.sheds() && other.rule.ID == k.rule.ID
	})
}

// passes returns the greatest probability that a request passes the rule of a key. It is 1 if the node that answers may
// not know that the key is over its threshold, or if another rule must refuse the request.
func (b *bounds) passes(k *key, q *request) float64 {
	if b.states[k.n].must < q.Done || b.mustRefuse(q) >= q.Done {
		return 1
	}
	p := 1.0
	for n, l := range b.states[k.n].limits {
		p = min(p, float64(l.most.threshold)/float64(max(1, b.known(k, n, q))))
	}
	return p
}

// answeredShedding handles the answer to a request, for its keys that shed. By now, more is known about who refused it.
func (b *bounds) answeredShedding(keys []*key, q *request) {
	for _, k := range keys {
		if b.states[k.n] == nil || !k.sheds() || q.outcome != passed && q.outcome != refused {
			continue
		}
		if q.outcome == refused && slices.Contains(b.suspects(q), k) {
			b.mayShed[q] = true
		}
		b.weighRefusal(k, q)
		if may, _ := b.counts(k, q); may && b.uncounted[violation{request: q, key: k}] {
			b.mayCount(k, q)
		}
	}
}

// nearest returns the key to blame for a refusal that no key justifies: the key that is nearest to its threshold if a
// rule of the request sheds, otherwise the argument blamed.
func (b *bounds) nearest(blamed *key, keys []*key, q *request) *key {
	if !slices.ContainsFunc(keys, (*key).sheds) {
		return blamed
	}
	most := 0.0
	for _, k := range keys {
		if b.states[k.n] == nil || !refuses(k.rule, &q.Answer) {
			continue
		}
		for _, l := range b.states[k.n].limits {
			if part := float64(l.most.count(q.Done)) / float64(l.most.threshold); part > most {
				blamed, most = k, part
			}
		}
	}
	return blamed
}

// Clients are distinct clients and the times at which they were last seen, in this order.
type clients []seenClient

type seenClient struct {
	client netip.Prefix
	at     int64
}

// enough adds a client of a key and reports whether at least n distinct clients were seen in the window of r's first
// limit that contains from, or in the previous one.
func (c *clients) enough(r *rule.Rule, client netip.Prefix, from, at int64, n int) bool {
	if n <= 1 {
		return true
	}
	list := slices.DeleteFunc(*c, func(s seenClient) bool { return s.client == client })
	*c = append(list[max(0, len(list)-n+1):], seenClient{client, at})
	period := r.Limits[0].Period.Microseconds()
	return len(*c) == n && !slices.ContainsFunc(*c, func(s seenClient) bool { return s.at < (floor(from, period)-1)*period })
}

// clientsFactor is the multiple of min_clients that a node may have seen without knowing that they are enough: its
// count of distinct clients is a lower bound.
const clientsFactor = 4
