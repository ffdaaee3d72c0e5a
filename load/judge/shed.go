package judge

// Keys that many clients share: which rules count requests that others refuse, and how many requests a rule with
// action: shed lets through. Only nodes know the shares of clients; the judge knows their distribution.

import (
	"maps"
	"math"
	"slices"

	"github.com/edgelimit/edge/rule"
)

// width ranks rules by how many clients share a key. It returns 0 if clients do not share keys.
func width(r *rule.Rule) int {
	const label, all = 33, 34
	width := all
	for _, c := range r.Characteristics {
		switch c.Kind {
		case rule.IP, rule.Header, rule.Cookie, rule.Query, rule.First:
			return 0
		case rule.Network:
			bits, _ := sizesOf(c.Name)
			width = min(width, label-bits)
		case rule.Label:
			width = min(width, label)
		}
	}
	return width
}

// A claim is what is known about a request and a key of a shedding rule. Whether the request counts under the key may
// not be known until it is answered.
type claim struct {
	may, sure bool    // it may count, and must count
	passes    float64 // the greatest probability that it passes the rule
}

// canRefuse reports whether q may have been refused because of a key, given what is known so far.
func (t *trial) canRefuse(k *key, q *request) bool {
	s := t.spanOf(k, q)
	return s != nil && refuses(k.rule, &q.Answer) && s.refuses(k) >= q.Sent
}

// reaches reports whether a refused request may, and must, count under a key of a shedding rule: it does unless a
// narrower rule refuses it.
func (t *trial) reaches(k *key, q *request) (may, must bool) {
	narrower := false
	for _, by := range t.b.keysOf(q) {
		if !t.canRefuse(by, q) {
			continue
		}
		if by.width < k.width {
			narrower = true
		} else {
			may = true
		}
	}
	return may || t.m.wider, may && !narrower || t.m.wider
}

// claim handles the sending of a request for a key of a shedding rule, the nth of the request's keys. may reports whether
// it is counted already.
func (t *trial) claim(k *key, n int, q *request, may bool) {
	keys := t.b.keysOf(q)
	if t.claims[q] == nil {
		t.claims[q] = make([]claim, len(keys))
	}
	t.claims[q][n] = claim{may: may, passes: t.passes(k, keys, q)}
}

// passes returns the greatest probability that a request passes the rule of a key. It is 1 if the node that answers may
// not know that the key is over its threshold, or if another rule must refuse the request.
func (t *trial) passes(k *key, keys []*key, q *request) float64 {
	if t.states[k.n].views == nil || t.spanOf(k, q).sheds < q.Done {
		return 1
	}
	for _, by := range keys {
		if s := t.spanOf(by, q); s != nil && s.must >= q.Done {
			return 1
		}
	}
	from, to := t.blurred(q)
	v := &t.states[k.n].views[q.Node]
	p := 1.0
	for n, l := range k.rule.Limits {
		if v.knows(from, to, l.Period.Microseconds()) {
			p = min(p, float64(t.threshold(l.Threshold))/float64(max(1, min(v.limits[n].count(from), v.limits[n].count(to)))))
		}
	}
	return p
}

// settle handles the answer to a request, for its keys of shedding rules.
func (t *trial) settle(keys []*key, q *request) {
	claims := t.claims[q]
	if claims == nil {
		return
	}
	if q.outcome == passed {
		delete(t.claims, q)
	}
	known := slices.ContainsFunc(keys, func(k *key) bool { return t.canRefuse(k, q) })
	for n, k := range keys {
		if t.states[k.n] == nil || !k.sheds() {
			continue
		}
		counted := claims[n].may
		claims[n].may, claims[n].sure = t.counts(k, q)
		if q.outcome == refused && !known { // for an unknown reason
			claims[n].may = true
		}
		if q.outcome == refused && t.canRefuse(k, q) {
			t.shed[q] = true
		}
		if !t.brief && !t.m.apart {
			t.tally(k, q, claims[n].passes)
		}
		if claims[n].may && !counted {
			t.mayCount(k, q)
		}
	}
}

// nearest returns the key to blame for a refusal that no key justifies. If a rule of the request sheds, it is the
// key that is nearest to its threshold; otherwise, it is blamed.
func (t *trial) nearest(blamed *key, keys []*key, q *request) *key {
	if !slices.ContainsFunc(keys, (*key).sheds) {
		return blamed
	}
	most := 0.0
	for _, k := range keys {
		if t.states[k.n] == nil || !refuses(k.rule, &q.Answer) {
			continue
		}
		for l, b := range t.limitsAt(k, q) {
			if part := float64(b.most.count(q.Done)) / float64(t.threshold(k.rule.Limits[l].Threshold)); part > most {
				blamed, most = k, part
			}
		}
	}
	return blamed
}

// A crowd holds distinct clients in the order in which they were last seen, and the times when they were.
type crowd struct {
	clients []int32
	seen    []int64
}

// enough adds a client of a key and reports whether at least n distinct clients were seen in the window of r's
// first limit that contains from, or in the previous one.
func (c *crowd) enough(r *rule.Rule, client int32, from, at int64, n int) bool {
	if n <= 1 {
		return true
	}
	if i := slices.Index(c.clients, client); i >= 0 {
		c.clients, c.seen = slices.Delete(c.clients, i, i+1), slices.Delete(c.seen, i, i+1)
	} else if len(c.clients) == n {
		c.clients, c.seen = c.clients[1:], c.seen[1:]
	}
	c.clients, c.seen = append(c.clients, client), append(c.seen, at)
	period := r.Limits[0].Period.Microseconds()
	return len(c.clients) == n && slices.Min(c.seen) >= (floor(from, period)-1)*period
}

// crowdFactor is the multiple of min_clients that a node may have seen without knowing that they are enough: its
// count of distinct clients is a lower bound.
const crowdFactor = 4

// crowded adds a client that a node must have counted, and reports whether the node must know by late that the key
// has enough clients.
func (b *state) crowded(r *rule.Rule, client int32, node, nodes int, from, late int64) bool {
	if r.MinClients <= 1 {
		return true
	}
	if b.crowds == nil {
		b.crowds = make([]crowd, nodes)
	}
	return b.crowds[node].enough(r, client, late, from, crowdFactor*r.MinClients)
}

// A tally compares how many requests of a key pass and are refused while its rule sheds with the averages over all
// possible shares of its clients.
type tally struct {
	passed  balance // requests that pass while the rule certainly sheds
	refused balance // requests that are refused

	steady  map[int32]*steady // by client
	changes []change
}

// A balance compares requests with their expected number, by client: all requests of a client share the same fate.
type balance map[int32]*weight

// A weight is the contribution of a client: its requests, those of them that are counted, and their expected number.
type weight struct{ all, requests, expected float64 }

// add adds a request of a client. is reports whether it is one of those counted, which had the given probability.
func (b balance) add(client int32, is bool, probability float64) {
	w := b[client]
	if w == nil {
		w = &weight{}
		b[client] = w
	}
	if is {
		w.requests++
	}
	w.all++
	w.expected += probability
}

// A total is the sum of balances: their requests, expected number, requests of either fate, the variance of the number,
// and the requests of the heaviest client.
type total struct{ requests, expected, all, variance, heaviest float64 }

func (s *total) add(b balance) {
	for _, client := range slices.Sorted(maps.Keys(b)) { // in a fixed order: sums are rounded
		w := b[client]
		s.all, s.requests, s.expected = s.all+w.all, s.requests+w.requests, s.expected+w.expected
		s.variance += w.expected * (w.all - w.expected)
		s.heaviest = max(s.heaviest, w.all)
	}
}

// tolerance returns by how much the number of requests may exceed the expected one: 5% of those expected to pass, plus
// the variation due to the clients' shares, except for one key in three thousand.
func (s *total) tolerance(passes float64) float64 {
	const rare = 8 // exponent of Bernstein's inequality: the probability is at most exp(−8)
	return 0.05*passes + math.Sqrt(2*rare*s.variance) + rare*s.heaviest/3
}

// exceeds reports whether there are more requests than expected and tolerated.
func (s *total) exceeds(passes float64) bool { return s.requests > s.expected+s.tolerance(passes) }

// tally adds an answered request, which passed with at most the given probability. Requests that other rules may
// refuse say nothing about how many this one refuses.
func (t *trial) tally(k *key, q *request, probability float64) {
	y := t.states[k.n].tally
	if y == nil {
		y = &tally{passed: balance{}, refused: balance{}, steady: map[int32]*steady{}}
		t.states[k.n].tally = y
	}
	client, passes := t.b.of(q).client, q.outcome == passed
	from, to := t.blurred(q)
	if probability < 1 {
		y.passed.add(client, passes, probability)
		if passes {
			y.observe(client, true, level{1 / probability, from, to})
		}
	}
	for _, by := range t.b.keysOf(q) {
		if s := t.spanOf(by, q); by != k && s != nil && s.refuses(by) >= q.Sent {
			return
		}
	}
	least, most := 1.0, 0.0
	for l, of := range t.limitsAt(k, q) {
		threshold, count := float64(t.threshold(k.rule.Limits[l].Threshold)), float64(1+max(of.most.count(from), of.most.count(to)))
		least, most = min(least, threshold/count), max(most, (count+1)/threshold) // a client's threshold is rounded down
	}
	if !passes && t.canRefuse(k, q) {
		y.observe(client, false, level{most, from, to})
	}
	if least < 1 {
		y.refused.add(client, !passes, 1-least)
	}
}

// mayHaveBeenOver reports whether a key of a shedding rule may have exceeded a threshold.
func (s *state) mayHaveBeenOver() bool {
	return slices.ContainsFunc(s.spans, func(s span) bool { return s.over > 0 })
}

// A Shed describes how much a shedding rule let through.
type Shed struct {
	Rule string `json:"rule"`
	Keys uint64 `json:"keys_over"` // that exceeded a threshold

	// Passed counts requests of those keys that passed and were sent while every node had to know that the key
	// was over its threshold. Expected is how many may pass on average over all possible shares of clients. It
	// is a fault only if Passed exceeds it by more than Tolerance.
	Passed    uint64  `json:"passed"`
	Expected  float64 `json:"expected"`
	Tolerance float64 `json:"tolerance"`

	NotJudged string `json:"not_judged,omitempty"` // the reason, if not judged
}

// shed compares what a shedding rule lets through and refuses with what it should.
func (v *investigation) shed(r *rule.Rule) Shed {
	shed := Shed{Rule: r.ID}
	var passes, refusals total
	little, much := false, false
	for n, s := range v.last.states {
		if v.last.b.keys[n].rule.ID != r.ID || s == nil {
			continue
		}
		if s.mayHaveBeenOver() {
			shed.Keys++
		}
		if s.tally == nil {
			continue
		}
		var p, r total // of this key alone
		p.add(s.tally.passed)
		r.add(s.tally.refused)
		little, much = little || p.exceeds(p.expected), much || r.exceeds(r.all-r.expected)
		passes.add(s.tally.passed)
		refusals.add(s.tally.refused)
	}
	little, much = little || passes.exceeds(passes.expected), much || refusals.exceeds(refusals.all-refusals.expected)
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
	add := func(name, what string, t *total, tolerance float64) {
		v.note(name, uint64(max(1, math.Round(t.requests-t.expected))), "rule %s %s %.0f requests of keys above its threshold; expected at most %.0f, with a tolerance of %.0f",
			r.ID, what, t.requests, t.expected, tolerance)
	}
	if little {
		add(ShedsTooLittle, "passed", &passes, tolerance)
	}
	if much && !early {
		add(ShedsTooMuch, "refused", &refusals, refusals.tolerance(refusals.all-refusals.expected))
	}
	if !little && !much && len(v.faults) == 0 {
		v.byRequest(r.ID)
	}
	return shed
}
