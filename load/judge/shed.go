package judge

// Keys that many clients share: which rules count requests that others refuse, how many clients a key has, and how many
// requests a rule with action: shed lets through. Only nodes know the shares of clients; the judge knows their
// distribution.

import (
	"maps"
	"math"
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

// A tally compares how many requests of a key pass and are refused while its rule sheds with the averages over all
// possible shares of its clients.
type tally struct {
	shares  map[netip.Prefix]*share // by client
	changes int64                   // of shares, at least
	since   int64                   // the last change was before this time
	latest  int64                   // possible time of a request
}

// A share narrows down the position of a client, between 0 and 1, in the order in which clients are refused. A client
// passes if its position is less than the probability of passing. So the position is at least low, because of a
// refusal, and less than high, because of a request that passed.
type share struct {
	passes, refusals weight
	low, high        float64
	changes          int64 // that low and high belong to
}

// A weight compares how many of a client's requests pass, or are refused, with the expected number. All requests of a
// client share the same fate. The sum over clients has the variance of the number of requests, and the number of all
// requests of the heaviest client.
type weight struct{ all, requests, expected, variance, heaviest float64 }

func (w *weight) add(is bool, probability float64) {
	if is {
		w.requests++
	}
	w.all++
	w.expected += probability
}

// sum adds the weight of a client.
func (w *weight) sum(c weight) {
	w.all, w.requests, w.expected = w.all+c.all, w.requests+c.requests, w.expected+c.expected
	w.variance += c.expected * (c.all - c.expected)
	w.heaviest = max(w.heaviest, c.all)
}

// tolerance returns by how much the number of requests may exceed the expected one: 5% of those expected to pass, plus
// the variation that the clients' shares explain in all but one of three thousand runs.
func (w *weight) tolerance(passes float64) float64 {
	const rare = 8 // exponent of Bernstein's inequality: the probability is at most exp(−8)
	return 0.05*passes + math.Sqrt(2*rare*w.variance) + rare*w.heaviest/3
}

// share returns the share of a key that q's client has.
func (b *bounds) share(k *key, q *request) *share {
	shares, client := b.states[k.n].tally.shares, b.k.senders[q.i].client
	if shares[client] == nil {
		shares[client] = &share{high: 1}
	}
	return shares[client]
}

// askedShedding handles the sending of a request, for a key that sheds. may is whether the request may count.
func (b *bounds) askedShedding(k *key, q *request, may bool) {
	passes := q.outcome == passed
	if !may && q.outcome == refused {
		b.uncounted[violation{request: q, key: k}] = true
	}
	probability := b.passes(k, q)
	if probability == 1 || !passes && q.outcome != refused {
		return
	}
	s := b.share(k, q)
	s.passes.add(passes, probability)
	if passes {
		from, to := b.blurred(q)
		b.states[k.n].tally.observe(s, 0, probability, from, to)
	}
}

// weighRefusal adds an answered request, unless it may have been refused by other rules: then it says nothing about how
// many this one refuses.
func (b *bounds) weighRefusal(k *key, q *request) {
	if slices.ContainsFunc(b.active(q), func(by *key) bool { return by != k }) {
		return
	}
	state, s, passes := b.states[k.n], b.share(k, q), q.outcome == passed
	from, to := b.blurred(q)
	least, most := 1.0, 0.0
	for _, l := range state.limits {
		threshold, count := float64(l.most.threshold), float64(1+max(l.most.count(from), l.most.count(to)))
		least, most = min(least, threshold/count), max(most, (count+1)/threshold) // a client's threshold is rounded down
	}
	if !passes && slices.Contains(b.suspects(q), k) {
		state.tally.observe(s, 1/most, 1, from, to)
	}
	if least < 1 {
		s.refusals.add(!passes, 1-least)
	}
}

// observe adds a request whose outcome depends on this key alone: the client's position is at least low and less than
// high. If no position explains this and the earlier requests, shares must have changed between them. The next change
// must be shown by requests that are later than all of these.
func (t *tally) observe(s *share, low, high float64, from, to int64) {
	if from < t.since {
		return
	}
	t.latest = max(t.latest, to)
	if s.changes < t.changes {
		s.changes, s.low, s.high = t.changes, 0, 1
	}
	if low >= s.high || high <= s.low {
		t.changes, t.since = t.changes+1, t.latest
	}
	s.low, s.high = max(s.low, low), min(s.high, high)
}

// epoch is how long a client keeps its share of a key, in microseconds. Epochs end at different times for different
// keys, and only nodes know when.
const epoch = 600_000_000

// A Shed describes how much a shedding rule let through.
type Shed struct {
	Rule string `json:"rule"`
	Keys uint64 `json:"keys_over"` // that exceeded a threshold

	// Passed counts requests of those keys that passed and were sent while every node had to know that the key was over
	// its threshold. Expected is how many may pass on average over all possible shares of clients. It is a fault only
	// if Passed exceeds it by more than Tolerance.
	Passed    uint64  `json:"passed"`
	Expected  float64 `json:"expected"`
	Tolerance float64 `json:"tolerance"`

	NotJudged string `json:"not_judged,omitempty"` // the reason, if not judged
}

// compareShed compares how much a shedding rule lets through and refuses with the expected amounts.
func (v *investigation) compareShed(r *rule.Rule) Shed {
	shed := Shed{Rule: r.ID}
	possible := 1 + (v.j.sent[len(v.j.sent)-1].Sent-v.j.sent[0].Sent)/epoch // changes of the shares of a key
	more := int64(0)
	var passes, refusals weight
	for n, s := range v.last.states {
		if s == nil || v.last.k.keys[n].rule.ID != r.ID {
			continue
		}
		if s.may > 0 {
			shed.Keys++
		}
		for _, client := range slices.SortedFunc(maps.Keys(s.tally.shares), netip.Prefix.Compare) { // sums are rounded
			passes.sum(s.tally.shares[client].passes)
			refusals.sum(s.tally.shares[client].refusals)
		}
		more += max(0, s.tally.changes-possible)
	}
	tolerance := passes.tolerance(passes.expected)
	shed.Passed, shed.Expected, shed.Tolerance = uint64(passes.requests), math.Round(passes.expected), math.Ceil(tolerance)
	switch {
	case shed.Keys == 0:
	case passes.expected == 0:
		shed.NotJudged = "no key was over its threshold long enough for every node to know"
	case tolerance > passes.expected:
		shed.NotJudged = "too few clients or too short a run for a reliable comparison"
	}
	early := slices.ContainsFunc(v.found, func(w violation) bool { return !w.leak && w.key != nil && w.key.rule.ID == r.ID })
	check := func(name, verb string, w *weight, tolerance float64) {
		if above := w.requests - w.expected; above > tolerance {
			v.note(name, uint64(max(1, math.Round(above))), "rule %s %s %.0f requests of keys above its threshold; expected at most %.0f, with a tolerance of %.0f",
				r.ID, verb, w.requests, w.expected, tolerance)
		}
	}
	check("sheds_too_little", "passed", &passes, tolerance)
	if !early {
		check("sheds_too_much", "refused", &refusals, refusals.tolerance(refusals.all-refusals.expected))
	}
	if more >= minEvidence && len(v.faults) == 0 {
		v.note("sheds_by_request", uint64(more), "rule %s refuses some requests of a client and passes others, although the estimate of its network or label "+
			"did not require it: it changed the selection of clients %d times too often", r.ID, more)
	}
	return shed
}
