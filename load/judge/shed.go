package judge

// Keys that many clients share: which rules count requests that others refuse, and how many requests a rule with
// action: shed lets through. Only nodes know the shares of clients; the judge knows their distribution.

import (
	"math"
	"slices"

	"github.com/edgelimit/edge/pop/rule"
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

// An offer holds what is known about a request with keys of shedding rules. Under which of them it counts may
// not be known until it is answered.
type offer struct {
	answered bool
	later    []int32 // keys under which it did not count when it was sent
	may      []int32 // keys under which it may count
	sure     []int32 // keys under which it must count
	shed     bool    // it may have been refused because of a key of a shedding rule
	passes   []pass  // by key
}

// A pass holds the greatest probability that a request passes the rule of a key, given all requests that may count,
// and given only those that must.
type pass struct{ all, sure float64 }

// refuses returns the time until which r may refuse requests.
func (s *span) refuses(r *rule.Rule) int64 {
	if r.Action == rule.Shed {
		return s.over
	}
	return s.may
}

// canRefuse reports whether q may have been refused because of a key, as far as is known yet.
func (t *trial) canRefuse(k int32, q *Request) bool {
	r := t.b.keys[k].rule
	s := t.spanOf(k, q)
	return s != nil && refuses(r, &q.Answer) && s.refuses(r) >= q.Sent
}

// offered reports whether a refused request may, and must, count under a key of a shedding rule. It does not count
// if a narrower rule refuses it.
func (t *trial) offered(k, i int32, q *Request) (may, must bool) {
	if t.m.wider {
		return true, true
	}
	if o := t.offers[i]; o != nil && o.answered {
		return slices.Contains(o.may, k), slices.Contains(o.sure, k)
	}
	return t.reaches(k, i, q)
}

// reaches reports whether a refused request may, and must, have been refused because of a key or one at least as
// wide.
func (t *trial) reaches(k, i int32, q *Request) (may, must bool) {
	narrower := false
	for _, by := range t.b.keysOf(i) {
		if !t.canRefuse(by, q) {
			continue
		}
		if t.b.keys[by].width < t.b.keys[k].width {
			narrower = true
		} else {
			may = true
		}
	}
	return may, may && !narrower
}

// unsure reports whether a refused request may, but need not, count under a key.
func (t *trial) unsure(k, i int32) bool {
	o := t.offers[i]
	return o != nil && slices.Contains(o.may, k) && !slices.Contains(o.sure, k)
}

// offer handles the sending of a request for the keys of shedding rules. later holds those under which it does
// not count yet.
func (t *trial) offer(i int32, keys, later []int32, q *Request) {
	if o := t.c.outcomes[i]; o != passed && o != refused {
		return
	}
	var o *offer
	for n, k := range keys {
		if r := t.b.keys[k].rule; t.keys[k] != nil && r.Action == rule.Shed {
			if o == nil {
				o = &offer{later: later, passes: make([]pass, len(keys))}
				t.offers[i] = o
			}
			o.passes[n] = t.passes(k, keys, q)
		}
	}
}

// passes returns the probability that a request passes the rule of a key. It is 1 if the node that answers may
// not know that the key is over its threshold, or if another rule must refuse the request.
func (t *trial) passes(k int32, keys []int32, q *Request) pass {
	b, r := t.keys[k], t.b.keys[k].rule
	if b.views == nil || t.spanOf(k, q).sheds < q.Done {
		return pass{1, 1}
	}
	for _, by := range keys {
		if s := t.spanOf(by, q); s != nil && s.must >= q.Done {
			return pass{1, 1}
		}
	}
	from, to := t.blurred(q)
	v := &b.views[q.Node]
	least := func(counters []counter) float64 {
		p := 1.0
		for l, c := range counters {
			if limit := &r.Limits[l]; v.knows(from, to, limit.Period.Microseconds()) {
				p = min(p, float64(t.threshold(limit.Threshold))/float64(max(1, min(c.count(from), c.count(to)))))
			}
		}
		return p
	}
	return pass{least(v.all), least(v.limits)}
}

// settle handles the answer to a request for the keys of shedding rules.
func (t *trial) settle(i int32, keys []int32, q *Request) {
	o := t.offers[i]
	if o == nil {
		return
	}
	if t.c.outcomes[i] == passed {
		delete(t.offers, i)
	}
	wrong := !slices.ContainsFunc(keys, func(k int32) bool { return t.canRefuse(k, q) }) // if refused, the reason is unknown
	for n, k := range keys {
		if t.keys[k] == nil || t.b.keys[k].rule.Action != rule.Shed {
			continue
		}
		may, sure := true, true
		if t.c.outcomes[i] == refused {
			may, sure = t.reaches(k, i, q)
			may = may || wrong
			o.shed = o.shed || t.canRefuse(k, q)
		}
		if may {
			o.may = append(o.may, k)
		}
		if sure {
			o.sure = append(o.sure, k)
		}
		if !t.brief && !t.m.apart {
			t.tally(k, i, q, o.passes[n], sure)
		}
	}
	o.answered, o.passes = true, nil
	for _, k := range o.later {
		if slices.Contains(o.may, k) {
			t.mayCount(k, i, q)
		}
	}
}

// nearest returns the key to blame for a refusal that no key justifies. If a rule of the request sheds, it is the
// key that is nearest to its threshold, else blamed.
func (t *trial) nearest(blamed int32, keys []int32, q *Request) int32 {
	if !slices.ContainsFunc(keys, func(k int32) bool { return t.b.keys[k].rule.Action == rule.Shed }) {
		return blamed
	}
	most := 0.0
	for _, k := range keys {
		if t.keys[k] == nil || !refuses(t.b.keys[k].rule, &q.Answer) {
			continue
		}
		for l, b := range t.limitsAt(k, q) {
			if part := float64(b.most.count(q.Done)) / float64(t.threshold(t.b.keys[k].rule.Limits[l].Threshold)); part > most {
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
// first limit that contains from and the previous one.
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
func (b *keyBounds) crowded(r *rule.Rule, client int32, node, nodes int, from, late int64) bool {
	if r.MinClients <= 1 {
		return true
	}
	if b.crowds == nil {
		b.crowds = make([]crowd, nodes)
	}
	return b.crowds[node].enough(r, client, late, from, crowdFactor*r.MinClients)
}

// A tally compares the requests of a key that pass while its rule certainly sheds with the number that passes on
// average over all possible shares of its clients.
type tally struct {
	all, sure balance // of requests that pass, with refused ones that may (all) or must (sure) count
	refused   balance // of requests that are refused
	passes    float64 // number of those in refused that should pass
	unsure    bool    // some requests may, but need not, count
	growth    float64 // the greatest estimate, as a multiple of the threshold

	steady  map[int32]*steady // by client
	changes []change
}

// A balance compares requests with their expected number.
type balance struct {
	requests, expected float64
	clients            map[int32]*weight
}

// A weight is the contribution of one client, whose requests all share the same fate.
type weight struct{ requests, expected float64 }

// add adds a request of a client. is says whether it is one of those counted, which had the given probability.
func (b *balance) add(client int32, is bool, probability float64) {
	if b.clients == nil {
		b.clients = map[int32]*weight{}
	}
	w := b.clients[client]
	if w == nil {
		w = &weight{}
		b.clients[client] = w
	}
	if is {
		b.requests++
	}
	b.expected += probability
	w.requests++
	w.expected += probability
}

// variance returns the variance of the number of requests, and the contribution of the heaviest client.
func (b *balance) variance() (sum, heaviest float64) {
	for _, w := range b.clients {
		sum += w.expected * (w.requests - w.expected)
		heaviest = max(heaviest, w.requests)
	}
	return sum, heaviest
}

// A total is the sum of balances.
type total struct{ requests, expected, passes, variance, heaviest float64 }

func (s *total) add(b *balance, passes float64) {
	variance, heaviest := b.variance()
	s.requests, s.expected, s.passes = s.requests+b.requests, s.expected+b.expected, s.passes+passes
	s.variance, s.heaviest = s.variance+variance, max(s.heaviest, heaviest)
}

// tolerance returns by how much the number of requests may exceed the expected one: 5% of what passes, plus the
// variation due to the clients' shares, except for one key in ten thousand.
func (s *total) tolerance() float64 {
	const rare = 8 // exponent of Bernstein's inequality: the probability is at most exp(−8)
	return 0.05*s.passes + math.Sqrt(2*rare*s.variance) + rare*s.heaviest/3
}

// tally adds an answered request. Requests that other rules may refuse say nothing about this one.
func (t *trial) tally(k, i int32, q *Request, p pass, sure bool) {
	b, r := t.keys[k], t.b.keys[k].rule
	if b.tally == nil {
		b.tally = &tally{}
	}
	client, passes := t.b.client[t.b.of[i]], t.c.outcomes[i] == passed
	from, to := t.blurred(q)
	if p.sure < 1 && sure {
		b.tally.sure.add(client, passes, p.sure)
		if passes {
			b.tally.observe(client, true, level{1 / p.sure, from, to})
		}
	}
	if p.all < 1 {
		b.tally.all.add(client, passes, p.all)
		b.tally.unsure = b.tally.unsure || !sure
		b.tally.growth = max(b.tally.growth, 1/p.all)
	}
	for _, by := range t.b.keysOf(i) {
		if s := t.spanOf(by, q); by != k && s != nil && s.refuses(t.b.keys[by].rule) >= q.Sent {
			return
		}
	}
	least, most := 1.0, 0.0
	for l, of := range t.limitsAt(k, q) {
		threshold, count := float64(t.threshold(r.Limits[l].Threshold)), float64(1+max(of.most.count(from), of.most.count(to)))
		least, most = min(least, threshold/count), max(most, (count+1)/threshold) // a client's threshold is rounded down
	}
	if !passes && t.canRefuse(k, q) {
		b.tally.observe(client, false, level{most, from, to})
	}
	if least < 1 {
		b.tally.refused.add(client, !passes, 1-least)
		b.tally.passes += least
	}
}

// sheds reports whether a refused request may have been refused by a shedding rule.
func (t *trial) sheds(i int32) bool {
	o := t.offers[i]
	return o != nil && o.shed
}

// spanOf returns the span of a key at the node that answered q, or nil if the key cannot exceed a threshold.
func (t *trial) spanOf(k int32, q *Request) *span {
	if t.keys[k] == nil {
		return nil
	}
	return &t.keys[k].spans[slot(t.m.alone, q)]
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

// shedding compares what shedding rules let through and refuse with what they should.
func (v *investigation) shedding(s *Score) {
	for _, r := range v.c.rules {
		if r.Action == rule.Shed {
			s.Shed = append(s.Shed, v.shed(r))
		}
	}
}

func (v *investigation) shed(r *rule.Rule) Shed {
	shed := Shed{Rule: r.ID}
	var all, sure, refused total
	var little, much uint64 // keys
	slack := 0.0
	for k, b := range v.last.keys {
		if v.last.b.keys[k].rule.ID != r.ID || b == nil {
			continue
		}
		if slices.ContainsFunc(b.spans, func(s span) bool { return s.over > 0 }) {
			shed.Keys++
		}
		if b.tally == nil {
			continue
		}
		more := 0.0
		if b.tally.unsure {
			more = (1 + math.Log(b.tally.growth)) * float64(v.last.b.keys[k].rule.Limits[0].Threshold) / float64(costOf(r))
		}
		one := func(of *total, b *balance, passes float64) bool {
			of.add(b, passes)
			var alone total
			alone.add(b, passes)
			return alone.requests > alone.expected+alone.tolerance()+more
		}
		a, b, c := one(&all, &b.tally.all, b.tally.all.expected), one(&sure, &b.tally.sure, b.tally.sure.expected), one(&refused, &b.tally.refused, b.tally.passes)
		slack += more
		if a && b {
			little++
		}
		if c {
			much++
		}
	}
	lenient := &sure
	if all.expected+all.tolerance() > sure.expected+sure.tolerance() {
		lenient = &all
	}
	tolerance := lenient.tolerance() + slack
	shed.Passed, shed.Expected, shed.Tolerance = uint64(lenient.requests), math.Round(lenient.expected), math.Ceil(tolerance)
	switch {
	case shed.Keys == 0:
	case slack > lenient.expected/2:
		shed.NotJudged = "narrower rules shed as well, and it is not known which of them refuses a request"
	case lenient.expected == 0:
		shed.NotJudged = "no key was over its threshold long enough for every node to know"
	case tolerance > lenient.expected:
		shed.NotJudged = "too few clients or too short a run for a reliable comparison"
	}
	early := slices.ContainsFunc(v.found, func(w violation) bool {
		return !w.leak && w.key != noKey && v.c.book.keys[w.key].rule.ID == r.ID
	})
	beyond := func(t *total) uint64 { return uint64(max(1, math.Round(t.requests-t.expected))) }
	if little > 0 || sure.requests > sure.expected+sure.tolerance()+slack && all.requests > all.expected+all.tolerance()+slack {
		v.note(ShedsTooLittle, beyond(lenient), "rule %s passed %.0f requests of keys above its threshold; expected at most %.0f ± %.0f", r.ID, lenient.requests, lenient.expected, tolerance)
	}
	if !early && (much > 0 || refused.requests > refused.expected+refused.tolerance()) {
		v.note(ShedsTooMuch, beyond(&refused), "rule %s refused %.0f requests of keys above its threshold; expected at most %.0f ± %.0f", r.ID, refused.requests, refused.expected, refused.tolerance())
	}
	if little == 0 && much == 0 && len(v.faults) == 0 {
		v.byRequest(r.ID)
	}
	return shed
}
