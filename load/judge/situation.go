package judge

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/pop/rule"
)

// bucket returns the requests that contradict a token bucket with the rate of a rule and the
// largest burst seen. It returns nil if nothing suggests a bucket, because no request passed
// after others of its key were refused.
func (c *court) bucket() map[int32]bool {
	type level struct {
		at    int64
		full  float64
		waits bool
	}
	levels, burst := map[int32]*level{}, map[string]float64{}
	resumed := map[string]bool{}  // rules with requests that pass after others were refused
	waited := map[int32]float64{} // level of the bucket, by refusal
	for i, o := range c.outcomes {
		keys := c.book.keysOf(int32(i))
		if (o != passed && o != refused) || len(keys) != 1 || c.book.keys[keys[0]].rule.Action == rule.Shed || len(c.book.keys[keys[0]].rule.Limits) != 1 {
			continue
		}
		q, r := c.at(int32(i)), c.book.keys[keys[0]].rule
		now, limit := q.Sent+(q.Done-q.Sent)/2, r.Limits[0]
		l := levels[keys[0]]
		if l == nil {
			l = &level{at: now}
			levels[keys[0]] = l
		}
		l.full = max(0, l.full-float64(now-l.at)*float64(limit.Threshold)/float64(limit.Period.Microseconds()))
		if l.at = now; o == refused {
			waited[int32(i)], l.waits = l.full, true
			continue
		}
		if l.waits {
			resumed[r.ID] = true
		}
		l.full += float64(costOf(r))
		burst[r.ID] = max(burst[r.ID], l.full)
	}
	if len(resumed) == 0 {
		return nil
	}
	violated := map[int32]bool{}
	for i, full := range waited {
		q, r := c.at(i), c.book.keys[c.book.keysOf(i)[0]].rule
		// The bucket may have leaked this much between sending and answer.
		cost := float64(costOf(r))
		blur := min(cost, full, float64(q.Done-q.Sent+bucketTick)*float64(r.Limits[0].Threshold)/float64(r.Limits[0].Period.Microseconds()))
		if full+cost <= burst[r.ID]-blur || !resumed[r.ID] {
			violated[i] = true
		}
	}
	for i, o := range c.outcomes {
		if o == refused || o == foreign {
			if _, known := waited[int32(i)]; !known {
				violated[int32(i)] = true
			}
		}
	}
	return violated
}

// bucketTick is the assumed clock resolution of a token bucket, in microseconds.
const bucketTick = 2000

// sharpLag is the lag that PoPs usually stay below, in microseconds; longLag is the one that they
// should stay below.
const (
	sharpLag = 30_000
	longLag  = 100_000
)

// sharpen looks for mistakes that the bound on the lag hides. If a hypothesis explains all requests
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
		key   int32
		since int64
	}
	crossings := map[crossing]bool{}
	needed := int64(0)
	for _, w := range found {
		if q := v.c.at(w.request); w.leak {
			crossings[crossing{w.key, w.since}] = true
			needed = max(needed, q.Sent-w.since)
		}
	}
	const enough = 10
	if len(crossings) < enough || needed < longLag && needed < v.c.fastestRefusal(sharp, found) {
		return
	}
	known := requestsOf(v.found)
	found = slices.DeleteFunc(found, func(w violation) bool { return !w.leak || known[w.request] })
	look := &investigation{c: v.c, s: v.s, found: found, left: slices.Clone(found), last: sharp}
	look.sample()
	list := slices.DeleteFunc(v.c.hypotheses(found), func(h hypothesis) bool { return h.violated != nil })
	if look.assume(list, 0.98) {
		v.faults = append(v.faults, look.faults...)
	}
}

// fastestRefusal returns the shortest time from a crossing to a refusal.
func (c *court) fastestRefusal(t *trial, found []violation) int64 {
	since := map[int32]int64{}
	shortest := int64(math.MaxInt64)
	for _, w := range found {
		if w.leak {
			since[w.key] = w.since
		}
	}
	for i, o := range c.outcomes {
		if o != refused {
			continue
		}
		for _, k := range t.b.keysOf(int32(i)) {
			if from, ok := since[k]; ok {
				if q := c.at(int32(i)); q.Sent > from {
					shortest = min(shortest, q.Sent-from)
				}
			}
		}
	}
	return shortest
}

// situations reports the violations that no hypothesis explains by when and where they happened.
func (v *investigation) situations() {
	v.deafNode(func(own, others int) bool { return others > own })
	v.mixed()
	keys := map[int32]bool{}
	for _, w := range v.left {
		keys[w.key] = true
	}
	lines := v.c.lines(keys, func(o outcome) bool { return o == passed || o == refused })
	refusals := map[int32][]int32{}
	for k, line := range lines {
		for _, i := range line {
			if v.c.outcomes[i] == refused {
				refusals[k] = append(refusals[k], i)
			}
		}
	}
	by := map[string][]int32{}
	for _, w := range v.left {
		name := v.situation(&w, lines[w.key], refusals[w.key])
		by[name] = append(by[name], w.request)
	}
	v.atRandom(by)
	for _, name := range slices.Sorted(maps.Keys(by)) {
		if list := by[name]; len(list) > 0 {
			text := texts[name]
			if strings.Contains(text, "%v") {
				text = fmt.Sprintf(text, time.Duration(v.c.lag)*time.Microsecond)
			}
			v.add(name, list, "%s", text)
		}
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
	RefusesAtWill:     "single requests are refused although the client's requests before and after them pass",
	ShedsEarly:        "some clients of a network or label are refused although it does not exceed a threshold",
	RefusesWrongly:    "requests are refused before their client exceeds a threshold, or after the mitigation must have ended",
}

// lines returns, by key, the requests whose outcome satisfies some, in the order in which they were sent.
func (c *court) lines(keys map[int32]bool, some func(outcome) bool) map[int32][]int32 {
	lines := map[int32][]int32{}
	for i, o := range c.outcomes {
		if len(keys) == 0 || !some(o) {
			continue
		}
		for _, k := range c.book.keysOf(int32(i)) {
			if keys[k] {
				lines[k] = append(lines[k], int32(i))
			}
		}
	}
	return lines
}

// situation classifies a violation by what happened to its key before and after.
func (v *investigation) situation(w *violation, line, refusals []int32) string {
	at, _ := slices.BinarySearch(line, w.request)
	refusedAt := func(i int) bool { return i >= 0 && i < len(line) && v.c.outcomes[line[i]] == refused }
	if w.leak {
		// Look at the adjacent refusals: requests are sorted by Sent.
		next, _ := slices.BinarySearch(refusals, w.request)
		before := next > 0 && v.c.at(refusals[next-1]).Sent >= w.since
		after := next < len(refusals) && v.c.at(refusals[next]).Sent <= w.until
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
	switch {
	case w.key == noKey:
		return ByNoRule
	case v.c.book.keys[w.key].rule.Action == rule.Shed:
		return ShedsEarly
	case !refusedAt(at-1) && !refusedAt(at+1):
		return RefusesAtWill
	case !v.overExact[w.key] && !v.overEstimate[w.key]:
		return RefusesSome
	case w.until > 0 && refusedAt(at-1):
		return MitigationLong
	}
	return RefusesWrongly
}

// atRandom treats refusals as random if most are single requests of several clients: a few random
// refusals follow one another, or a mitigation.
func (v *investigation) atRandom(by map[string][]int32) {
	clients := map[uint64]bool{}
	for _, i := range by[RefusesAtWill] {
		clients[v.c.at(i).Client] = true
	}
	n := 0
	others := []string{RefusesSome, MitigationLong, RefusesWrongly}
	for _, name := range others {
		n += len(by[name])
	}
	if random := len(by[RefusesAtWill]); len(clients) >= 3 && random > 2*n {
		for _, name := range others {
			by[RefusesAtWill] = append(by[RefusesAtWill], by[name]...)
			delete(by, name)
		}
		return
	}
	for _, i := range by[RefusesAtWill] {
		name := RefusesSome
		for _, k := range v.c.book.keysOf(i) {
			if v.overEstimate[k] || v.overExact[k] {
				name = RefusesWrongly
			}
		}
		by[name] = append(by[name], i)
	}
	delete(by, RefusesAtWill)
}

// plainlyDeaf is the number of refusals by other nodes which shows that a node without any refusals is deaf: a mistake
// that all nodes make would hardly leave one of them without a refusal.
const plainlyDeaf = 20

// deafNode reports the node with nearly all leaks, if deaf returns true for the numbers of refusals of the same keys by
// that node and by the others.
func (v *investigation) deafNode(deaf func(own, others int) bool) {
	leaks, _ := split(v.left)
	byNode, refusals, keys := map[int][]int32{}, map[int]int{}, map[int32]bool{}
	for _, i := range leaks {
		byNode[v.c.at(i).Node] = append(byNode[v.c.at(i).Node], i)
		for _, k := range v.c.book.keysOf(i) {
			keys[k] = true
		}
	}
	total := 0
	for i, o := range v.c.outcomes {
		if o == refused && slices.ContainsFunc(v.c.book.keysOf(int32(i)), func(k int32) bool { return keys[k] }) {
			refusals[v.c.at(int32(i)).Node]++
			total++
		}
	}
	for node, its := range byNode {
		if 10*len(its) < 9*len(leaks) || !deaf(refusals[node], total-refusals[node]) {
			continue
		}
		v.left = slices.DeleteFunc(v.left, func(w violation) bool { return w.leak && v.c.at(w.request).Node == node })
		name := v.c.trace.Nodes()[node]
		v.add(DeafNode, its, "%s lets through what other nodes refuse", name).Node = name
	}
}

// Bounds on the search for confused clients.
const (
	maxVictims    = 20
	maxCandidates = 300
)

// mixed looks for pairs of keys of a rule that the target confuses: if the requests of both are
// counted together, all their refusals are correct.
func (v *investigation) mixed() {
	victims, candidates := map[int32]bool{}, map[int32]bool{}
	for _, w := range v.left {
		if !w.leak && w.key != noKey && v.c.book.keys[w.key].rule.Action != rule.Shed && !v.overExact[w.key] && !v.overEstimate[w.key] {
			victims[w.key] = true
		}
	}
	if len(victims) == 0 || len(victims) > maxVictims {
		return
	}
	for k := range v.c.book.keys {
		if v.overEstimate[int32(k)] || victims[int32(k)] {
			candidates[int32(k)] = true
		}
	}
	if len(candidates) > maxCandidates {
		return
	}
	lines := v.c.lines(candidates, func(o outcome) bool { return o != unsent })
	passes := func(k int32) bool { // else it is unknown whose requests caused its refusals
		return slices.ContainsFunc(lines[k], func(i int32) bool { return v.c.outcomes[i] == passed })
	}
	explained := map[int32]bool{}
	for _, a := range slices.Sorted(maps.Keys(victims)) {
		var partners []int32
		for _, b := range slices.Sorted(maps.Keys(candidates)) {
			if a == b || !passes(a) || v.c.book.keys[a].rule != v.c.book.keys[b].rule {
				continue
			}
			t := v.c.trial(v.c.book, v.last.m)
			t.one = map[int32]bool{a: true, b: true}
			t.sent = slices.Concat(lines[a], lines[b])
			slices.Sort(t.sent)
			t.done = v.c.answered(t.sent)
			if len(t.run()) == 0 {
				partners = append(partners, b)
			}
		}
		if len(partners) == 1 {
			explained[a], explained[partners[0]] = true, true
		}
	}
	v.mixedUp = explained
	var requests []int32
	v.left = slices.DeleteFunc(v.left, func(w violation) bool {
		if explained[w.key] {
			requests = append(requests, w.request)
		}
		return explained[w.key]
	})
	if len(requests) > 0 {
		v.add(ClientsMixed, requests, "clients are refused because of another client's requests")
	}
}

// answers reports faults in the headers of answers.
func (v *investigation) answers() {
	s, c := v.s, v.c
	wrong := map[int32]bool{}
	for _, w := range v.last.found {
		wrong[w.request] = wrong[w.request] || !w.leak
	}
	if !v.rough {
		s.RetryAfter = v.last.retry
	}
	c.headers(v.last.b, &s.Headers, &s.RetryAfter)
	countsMitigated := func(r *rule.Rule) bool { return r.CountWhileMitigated }
	if !v.last.m.refused && !slices.ContainsFunc(c.rules, countsMitigated) { // else the refused request itself may extend the mitigation
		shed := map[int32]bool{}
		for k, b := range v.last.keys {
			shed[int32(k)] = b != nil && v.last.b.keys[k].rule.Action == rule.Shed && slices.ContainsFunc(b.spans, func(s span) bool { return s.over > 0 })
		}
		c.returned(v.last.b, wrong, shed, &s.RetryAfter)
	}
	// A few of these may be due to another fault.
	significant := func(answers []int32) (n uint64) {
		for _, i := range answers {
			if !slices.ContainsFunc(c.book.keysOf(i), func(k int32) bool { return v.mixedUp[k] }) {
				n++
			}
		}
		if v.rough || len(v.faults) > 0 && 100*n < v.last.reported {
			return 0
		}
		return n
	}
	s.Headers.TooLittle, s.Headers.TooMuch = significant(v.last.tooFew), significant(v.last.tooMany)
	r := &s.RetryAfter
	add := func(name string, n uint64, format string, args ...any) {
		if n > 0 {
			v.note(name, n, format, args...)
		}
	}
	if len(v.faults) > 0 && 100*r.TooShort < r.Compared { // a few may be due to another fault
		r.TooShort = 0
	}
	if slices.ContainsFunc(v.faults, func(f Fault) bool { return f.Name == DeafNode }) {
		r.TooShort = 0 // it is unknown whether that node counts requests that it lets through
	}
	if len(v.faults) > 0 && 100*r.TooLong < r.Compared {
		r.TooLong = 0
	}
	if slices.ContainsFunc(v.faults, func(f Fault) bool { return f.Name == ShedsEarly }) {
		r.TooLong = 0 // it is computed for another threshold
	}
	add(RetryTooShort, cmp.Or(r.Untrue, r.TooShort), "Retry-After is too short: of %d clients that returned when told to, %d were refused again; of %d answers, %d say less than the mitigation lasts",
		r.Checked, r.Untrue, r.Compared, r.TooShort)
	add(RetryTooLong, r.TooLong, "Retry-After is too long: of %d answers, %d say more than the mitigation can last", r.Compared, r.TooLong)
	add(RetryZero, r.Zero, "Retry-After is 0 in %d refusals", r.Zero)
	add(ShadowBanShows, s.Headers.ShadowShown, "answers of a shadow ban have a Retry-After or report remaining requests")
	if n := s.Headers.Sum() - s.Headers.ShadowShown + r.Bad; n > 0 {
		add(HeadersDiffer, n, "%s", s.Headers.String(r.Bad))
	}
}
