package judge

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/edgelimit/edge/rule"
)

// bucket returns the requests that contradict a token bucket with the rate of a rule and the
// largest burst seen. It returns nil if nothing suggests a bucket, because no request passed
// after others of its key were refused.
func (c *court) bucket() map[*request]bool {
	type level struct {
		at    int64
		full  float64
		waits bool
	}
	levels, burst := map[*key]*level{}, map[string]float64{}
	resumed := map[string]bool{}     // rules with requests that pass after others were refused
	waited := map[*request]float64{} // level of the bucket, by refusal
	violated := map[*request]bool{}
	for i := range c.requests {
		q := &c.requests[i]
		if q.outcome == refused || q.outcome == foreign {
			violated[q] = true
		}
		keys := c.book.keysOf(q)
		if q.outcome != passed && q.outcome != refused || len(keys) != 1 || keys[0].sheds() || len(keys[0].rule.Limits) != 1 {
			continue
		}
		now, r := q.Sent+(q.Done-q.Sent)/2, keys[0].rule
		l := levels[keys[0]]
		if l == nil {
			l = &level{at: now}
			levels[keys[0]] = l
		}
		l.full = max(0, l.full-float64(now-l.at)*perMicrosecond(r))
		if l.at = now; q.outcome == refused {
			waited[q], l.waits = l.full, true
			continue
		}
		if l.waits {
			resumed[r.ID] = true
		}
		l.full += float64(costOf(r))
		burst[r.ID] = max(burst[r.ID], l.full)
	}
	for q, full := range waited {
		// The bucket may have leaked this much between sending and answer.
		r := c.book.keysOf(q)[0].rule
		cost := float64(costOf(r))
		blur := min(cost, full, float64(q.Done-q.Sent+bucketTick)*perMicrosecond(r))
		if full+cost > burst[r.ID]-blur && resumed[r.ID] {
			delete(violated, q)
		}
	}
	if len(resumed) == 0 {
		return nil
	}
	return violated
}

// perMicrosecond returns the rate that the first limit of a rule allows.
func perMicrosecond(r *rule.Rule) float64 {
	return float64(r.Limits[0].Threshold) / float64(r.Limits[0].Period.Microseconds())
}

// bucketTick is the assumed clock resolution of a token bucket, in microseconds.
const bucketTick = 2000

// sharpLag is the lag that PoPs usually stay below, in microseconds; longLag is the one that they
// should stay below.
const (
	sharpLag = 30_000
	longLag  = 100_000
)

// sharpen looks for mistakes that the bound on the lag hides. If a hypothesis explains nearly all requests
// that pass after a much shorter lag, they pass by mistake, not because of lag: during a lag,
// clients with different rates get different numbers of requests through.
func (v *investigation) sharpen() {
	if v.c.lag <= 2*sharpLag {
		return
	}
	sharp := v.c.trial(v.last.b, v.last.m)
	sharp.lag = sharpLag
	found := sharp.run()
	type crossing struct {
		key   *key
		since int64
	}
	crossings := map[crossing]bool{}
	needed := int64(0)
	for _, w := range found {
		if w.leak {
			crossings[crossing{w.key, w.since}] = true
			needed = max(needed, w.request.Sent-w.since)
		}
	}
	const enough = 10
	if len(crossings) < enough || needed < longLag && needed < v.c.fastestRefusal(sharp, found) {
		return
	}
	known := requestsOf(v.found)
	found = without(found, func(w violation) bool { return !w.leak || known[w.request] })
	look := &investigation{c: v.c, s: v.s, found: found, left: slices.Clone(found), last: sharp}
	look.sample()
	list := slices.DeleteFunc(v.c.hypotheses(found), func(h hypothesis) bool { return h.violated != nil })
	if look.assume(list, 0.98) {
		v.faults = append(v.faults, look.faults...)
	}
}

// fastestRefusal returns the shortest time from a crossing to a refusal.
func (c *court) fastestRefusal(t *trial, found []violation) int64 {
	since := map[*key]int64{}
	shortest := int64(math.MaxInt64)
	for _, w := range found {
		if w.leak {
			since[w.key] = w.since
		}
	}
	for _, q := range c.sent {
		for _, k := range t.b.keysOf(q) {
			if from, ok := since[k]; ok && q.outcome == refused && q.Sent > from {
				shortest = min(shortest, q.Sent-from)
			}
		}
	}
	return shortest
}

// situations reports the violations that no hypothesis explains by when and where they happened.
func (v *investigation) situations() {
	v.deafNode(func(own, others int) bool { return others > own })
	v.mixed()
	keys := map[*key]bool{}
	for _, w := range v.left {
		keys[w.key] = true
	}
	lines := v.c.lines(keys, func(o outcome) bool { return o == passed || o == refused })
	refusals := v.c.lines(keys, func(o outcome) bool { return o == refused })
	by := map[string][]*request{}
	for _, w := range v.left {
		name := v.situation(&w, lines[w.key], refusals[w.key])
		by[name] = append(by[name], w.request)
	}
	v.atRandom(by)
	for _, name := range slices.Sorted(maps.Keys(by)) {
		text := texts[name]
		if name == Leaks {
			text = fmt.Sprintf(text, time.Duration(v.c.lag)*time.Microsecond)
		}
		v.add(name, by[name], "%s", text)
	}
}

// texts describes situations, by name of the fault.
var texts = map[string]string{
	NeverRefused:      "some clients that exceed a threshold are never refused, although others are",
	MitigationReturns: "clients are refused, then pass, then are refused again by the same mitigation",
	MitigationShort:   "mitigations end too early",
	MitigationLong:    "mitigations end too late",
	Leaks:             "requests that should be refused pass more than %v after their client crossed the threshold",
	ByNoRule:          "requests are refused although no rule can refuse them: check that the PoP has the same rules",
	RefusesSome:       "clients that never exceed a threshold are refused",
	RefusesAtWill:     "individual requests are refused although the client's requests before and after them pass",
	ShedsEarly:        "some clients of a network or label are refused although it does not exceed a threshold",
	RefusesWrongly:    "requests are refused before their client exceeds a threshold, or after the mitigation must have ended",
}

// lines returns, by key, the requests whose outcome satisfies some, in the order in which they were sent.
func (c *court) lines(keys map[*key]bool, some func(outcome) bool) map[*key][]*request {
	lines := map[*key][]*request{}
	if len(keys) == 0 {
		return lines
	}
	for i := range c.requests {
		q := &c.requests[i]
		if !some(q.outcome) {
			continue
		}
		for _, k := range c.book.keysOf(q) {
			if keys[k] {
				lines[k] = append(lines[k], q)
			}
		}
	}
	return lines
}

// position returns the index of a request in a line, or where it would be.
func position(line []*request, q *request) int {
	at, _ := slices.BinarySearchFunc(line, q, func(a, b *request) int { return cmp.Compare(a.i, b.i) })
	return at
}

// situation classifies a violation by what happened to its key before and after.
func (v *investigation) situation(w *violation, line, refusals []*request) string {
	if w.leak {
		// Look at the adjacent refusals: requests are sorted by Sent.
		next := position(refusals, w.request)
		before := next > 0 && refusals[next-1].Sent >= w.since
		after := next < len(refusals) && refusals[next].Sent <= w.until
		switch {
		case before && after:
			return MitigationReturns
		case before:
			return MitigationShort
		case len(refusals) == 0 && v.c.refuses:
			return NeverRefused
		}
		return Leaks
	}
	at := position(line, w.request)
	refusedAt := func(i int) bool { return i >= 0 && i < len(line) && line[i].outcome == refused }
	switch {
	case w.key == nil:
		return ByNoRule
	case w.key.sheds():
		return ShedsEarly
	case !refusedAt(at-1) && !refusedAt(at+1):
		return RefusesAtWill
	case !v.over(w.key):
		return RefusesSome
	case w.until > 0 && refusedAt(at-1):
		return MitigationLong
	}
	return RefusesWrongly
}

// atRandom treats refusals as random if most are individual requests of several clients: a few random
// refusals follow one another, or a mitigation.
func (v *investigation) atRandom(by map[string][]*request) {
	random := by[RefusesAtWill]
	delete(by, RefusesAtWill)
	clients := map[uint64]bool{}
	for _, q := range random {
		clients[q.Client] = true
	}
	others := slices.Concat(by[RefusesSome], by[MitigationLong], by[RefusesWrongly])
	if len(clients) >= 3 && len(random) > 2*len(others) {
		by[RefusesAtWill] = append(random, others...)
		for _, name := range []string{RefusesSome, MitigationLong, RefusesWrongly} {
			delete(by, name)
		}
		return
	}
	for _, q := range random {
		name := RefusesSome
		if slices.ContainsFunc(v.c.book.keysOf(q), v.over) {
			name = RefusesWrongly
		}
		by[name] = append(by[name], q)
	}
}

// plainlyDeaf is how many refusals by other nodes show that a node without any refusals is deaf: a mistake
// that all nodes make would hardly leave one of them without a refusal.
const plainlyDeaf = 20

// deafNode reports the node with nearly all leaks, if deaf returns true for the numbers of refusals of the same keys by
// that node and by the others.
func (v *investigation) deafNode(deaf func(own, others int) bool) {
	leaks, _ := split(v.left)
	byNode, refusals, keys := map[int]int{}, map[int]int{}, map[*key]bool{}
	for _, q := range leaks {
		byNode[q.Node]++
		for _, k := range v.c.book.keysOf(q) {
			keys[k] = true
		}
	}
	total := 0
	for _, q := range v.c.sent {
		if q.outcome == refused && slices.ContainsFunc(v.c.book.keysOf(q), func(k *key) bool { return keys[k] }) {
			refusals[q.Node]++
			total++
		}
	}
	for node, n := range byNode {
		if 10*n < 9*len(leaks) || !deaf(refusals[node], total-refusals[node]) {
			continue
		}
		its := v.take(func(w violation) bool { return w.leak && w.request.Node == node })
		name := v.c.trace.Nodes()[node]
		v.add(DeafNode, its, "%s lets through what other nodes refuse", name).Node = name
	}
}

// Bounds on the search for confused clients, and for the ends of epochs.
const (
	maxVictims    = 20
	maxCandidates = 300
)

// mixed looks for pairs of keys of a rule that the target confuses: if the requests of both are
// counted together, all their refusals are correct.
func (v *investigation) mixed() {
	victims, candidates := map[*key]bool{}, map[*key]bool{}
	for _, w := range v.left {
		if !w.leak && w.key != nil && !w.key.sheds() && !v.over(w.key) {
			victims[w.key] = true
		}
	}
	if len(victims) == 0 || len(victims) > maxVictims {
		return
	}
	for _, k := range v.c.book.keys {
		if v.overEstimate[k] || victims[k] {
			candidates[k] = true
		}
	}
	if len(candidates) > maxCandidates {
		return
	}
	lines := v.c.lines(candidates, func(o outcome) bool { return o != unsent })
	explained := map[*key]bool{}
	for a := range victims {
		if !slices.ContainsFunc(lines[a], func(q *request) bool { return q.outcome == passed }) {
			continue // it is unknown whose requests caused its refusals
		}
		var partners []*key
		for b := range candidates {
			if a == b || a.rule != b.rule {
				continue
			}
			t := v.c.trial(v.c.book, v.last.m)
			t.one = map[*key]bool{a: true, b: true}
			t.sent = slices.SortedFunc(slices.Values(slices.Concat(lines[a], lines[b])), func(a, b *request) int { return cmp.Compare(a.i, b.i) })
			t.done = answered(t.sent)
			if len(t.run()) == 0 {
				partners = append(partners, b)
			}
		}
		if len(partners) == 1 {
			explained[a], explained[partners[0]] = true, true
		}
	}
	v.mixedUp = explained
	if requests := v.take(func(w violation) bool { return explained[w.key] }); len(requests) > 0 {
		v.add(ClientsMixed, requests, "clients are refused because of another client's requests")
	}
}

// answers reports faults in the headers of answers.
func (v *investigation) answers() {
	s, c := v.s, v.c
	wrong := map[*request]bool{}
	for _, w := range v.last.found {
		wrong[w.request] = wrong[w.request] || !w.leak
	}
	if !v.rough {
		s.RetryAfter = v.last.retry
	}
	c.headers(v.last.b, &s.Headers, &s.RetryAfter)
	countsMitigated := func(r *rule.Rule) bool { return r.CountWhileMitigated }
	if !v.last.m.refused && !slices.ContainsFunc(c.rules, countsMitigated) { // else the refused request itself may extend the mitigation
		shed := map[*key]bool{}
		for n, s := range v.last.states {
			k := v.last.b.keys[n]
			shed[k] = s != nil && k.sheds() && s.mayHaveBeenOver()
		}
		c.returned(v.last.b, wrong, shed, &s.RetryAfter)
	}
	// A few of these may be due to another fault.
	few := func(n, all uint64) bool { return len(v.faults) > 0 && 100*n < all }
	significant := func(answers []*request) uint64 {
		n := uint64(len(without(answers, func(q *request) bool {
			return slices.ContainsFunc(c.book.keysOf(q), func(k *key) bool { return v.mixedUp[k] })
		})))
		if v.rough || few(n, v.last.reported) {
			return 0
		}
		return n
	}
	s.Headers.TooLittle, s.Headers.TooMuch = significant(v.last.tooFew), significant(v.last.tooMany)
	r := &s.RetryAfter
	has := func(name string) bool {
		return slices.ContainsFunc(v.faults, func(f Fault) bool { return f.Name == name })
	}
	if few(r.TooShort, r.Compared) || has(DeafNode) { // it is unknown whether that node counts requests that it lets through
		r.TooShort = 0
	}
	if few(r.TooLong, r.Compared) || has(ShedsEarly) { // it is computed for another threshold
		r.TooLong = 0
	}
	differ, how := s.Headers.contradictions(r.Bad)
	for _, f := range []struct {
		name string
		n    uint64
		text string
	}{
		{RetryTooShort, cmp.Or(r.Untrue, r.TooShort), fmt.Sprintf("Retry-After is too short: of %d clients that returned when told to, %d were refused again; of %d responses, %d say less than the mitigation lasts",
			r.Checked, r.Untrue, r.Compared, r.TooShort)},
		{RetryTooLong, r.TooLong, fmt.Sprintf("Retry-After is too long: of %d responses, %d say more than the mitigation can last", r.Compared, r.TooLong)},
		{RetryZero, r.Zero, fmt.Sprintf("Retry-After is 0 in %d refusals", r.Zero)},
		{ShadowBanShows, s.Headers.ShadowShown, "responses of a shadow ban have a Retry-After or report remaining requests"},
		{HeadersDiffer, differ, how},
	} {
		if f.n > 0 {
			v.note(f.name, f.n, "%s", f.text)
		}
	}
}
