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

// An investigation determines what is wrong with a trace.
type investigation struct {
	j      *judgment
	found  []violation // of the rules
	left   []violation // not explained yet
	last   *bounds     // the ones that explain most
	rough  bool        // last does not know when mitigations end
	faults []Fault

	overExact, overEstimate map[*key]bool // keys that exceed a threshold with all requests counted

	// The requests that mistakes are tested on.
	sent, done []*request
	sampled    func(*request) bool
}

// over reports whether a key ever exceeds a threshold.
func (v *investigation) over(k *key) bool { return v.overExact[k] || v.overEstimate[k] }

// investigate finds violations and what explains them. A limiter that estimates and one that logs the time of every
// request are both correct: it assumes whichever needs fewer explanations.
func (j *judgment) investigate() *investigation {
	overEstimate, overExact := j.everOver(weighted), j.everOver(slidingLog)
	var both []*investigation
	for _, k := range []kind{weighted, slidingLog} {
		v := &investigation{j: j, last: j.bounds(j.keys, model{kind: k}), overEstimate: overEstimate, overExact: overExact}
		v.found = v.last.run()
		v.left = slices.Clone(v.found)
		if len(v.found) == 0 {
			v.sharpen()
			return v
		}
		both = append(both, v)
	}
	best, other := both[0], both[1]
	if len(other.found) < len(best.found) {
		best, other = other, best
	}
	best.explain()
	if len(best.faults) == 1 && best.contradictions() == 0 {
		return best // no other explanation is simpler
	}
	other.explain()
	// The better one needs fewer explanations or, if equal, agrees with more answers.
	if cmp.Or(cmp.Compare(len(other.faults), len(best.faults)), cmp.Compare(other.contradictions(), best.contradictions()), cmp.Compare(len(other.found), len(best.found))) < 0 {
		return other
	}
	return best
}

// contradictions returns the number of answers whose Retry-After v cannot explain.
func (v *investigation) contradictions() uint64 { return v.last.retry.TooShort + v.last.retry.TooLong }

// explain reports known mistakes, and classifies the remaining violations by when and where they happened.
func (v *investigation) explain() {
	if !v.j.refuses {
		list := v.take(func(w violation) bool { return w.leak })
		if len(list) > 0 {
			v.add("refuses_nothing", list, "the target refuses nothing, although clients exceed a threshold: it is no PoP of these rules")
		}
	}
	v.earlierRun()
	v.deafNode(func(own, others int) bool { return own == 0 && others >= plainlyDeaf })
	v.sample()
	v.sharpen()
	list := v.mistakes()
	for v.assume(list, 0.9) {
	}
	v.sharpen()
	v.situations()
}

// earlierRun recognizes a target that remembers an earlier run: it refuses clients from their first request on, for no
// longer than it says, and so early that the requests before do not exceed a threshold.
func (v *investigation) earlierRun() {
	first, ended, wait := map[*key]*request{}, map[*key]bool{}, time.Duration(0)
	plain := map[*key]bool{} // those refused too early for another reason
	for rank, q := range v.j.sent {
		for _, k := range v.j.keys.of(q) {
			begin := first[k]
			switch {
			case ended[k] || k.sheds():
			case q.outcome != refused:
				ended[k] = true
			case begin == nil:
				first[k] = q
				plain[k] = !slices.ContainsFunc(k.rule.Limits, func(l rule.Limit) bool { return uint64(rank) >= l.Threshold })
				for _, l := range k.rule.Limits {
					wait = max(wait, 2*l.Period+k.rule.MitigationTimeout, time.Duration(q.Answer.Retry)*time.Second)
				}
			case q.Sent > begin.Done+int64(begin.Answer.Retry)*1e6+v.j.lag && !k.rule.CountWhileMitigated:
				ended[k], plain[k] = true, false
				delete(first, k)
			}
		}
	}
	maps.DeleteFunc(plain, func(_ *key, is bool) bool { return !is })
	if len(plain) == 0 {
		return
	}
	until := v.j.sent[0].Sent + v.j.memory
	list := v.take(func(w violation) bool { return !w.leak && (first[w.key] != nil || w.request.Sent < until) })
	if len(list) > 0 {
		v.add("remembers_earlier_run", list, "the target remembers an earlier run: it refuses clients at their first request; wait %v before you repeat a run, or let clients have other addresses",
			wait)
	}
}

// test computes bounds of the sample, which the caller runs.
func (v *investigation) test(by variant, m model) *bounds {
	if m.kind == weighted {
		m.kind = v.last.m.kind // weighted or slidingLog
	}
	b := v.j.bounds(v.j.keying(by), m)
	b.sent, b.done, b.brief, b.lag = v.sent, v.done, true, v.last.lag
	return b
}

// fit returns the highest scale of thresholds with which hardly any request is refused too early, but not more are than
// pass too late.
func (v *investigation) fit() float64 {
	low, high := 0.6, 1.6
	for range 9 {
		scale := (low + high) / 2
		passed, wrong := split(v.test(variant{}, model{scale: scale}).run())
		if len(wrong) > len(passed) {
			high = scale
		} else {
			low = scale
		}
	}
	return low
}

// sampleSize is the number of requests that mistakes are tested on: the first ones, and as many again from clients with
// violations.
const sampleSize = 30_000

// sample selects the requests that mistakes are tested on.
func (v *investigation) sample() {
	first := min(sampleSize, len(v.j.sent))
	requests := map[uint64]int{} // by client
	for _, q := range v.j.sent[first:] {
		requests[q.Client]++
	}
	clients, room := map[uint64]bool{}, sampleSize
	for _, w := range v.found {
		if n := requests[w.request.Client]; !clients[w.request.Client] && n <= room {
			clients[w.request.Client] = true
			room -= n
		}
	}
	v.sampled = func(q *request) bool { return first == 0 || q.i <= v.j.sent[first-1].i || clients[q.Client] }
	v.sent = without(v.j.sent, func(q *request) bool { return !v.sampled(q) })
	v.done = answered(v.sent)
}

// everOver returns the keys that ever exceed a threshold if all requests are counted.
func (j *judgment) everOver(k kind) map[*key]bool {
	over := map[*key]bool{}
	if !j.refuses {
		return over
	}
	b := j.bounds(j.keys, model{refused: true, kind: k})
	b.brief = true
	b.run()
	for n, s := range b.states {
		if s != nil && s.span.may > 0 {
			over[j.keys.keys[n]] = true
		}
	}
	return over
}

// report adds the faults to the score.
func (v *investigation) report(s *Score) {
	explained := v.faults
	v.faults = nil
	v.basics(s)
	v.faults = append(v.faults, explained...)
	for _, r := range v.j.rules {
		if r.Action == rule.Shed {
			s.Shed = append(s.Shed, v.shed(r))
		}
	}
	v.answers(s)
	s.Faults = append(s.Faults, v.faults...)
}

// maxClients is the maximum number of clients that a fault names.
const maxClients = 10

// add reports a fault and names clients of its requests.
func (v *investigation) add(name string, requests []*request, format string, args ...any) *Fault {
	f := v.note(name, uint64(len(requests)), format, args...)
	for _, q := range requests {
		client := v.j.trace.Name(q.i)
		if len(f.Clients) == maxClients {
			break
		}
		if !slices.Contains(f.Clients, client) {
			f.Clients = append(f.Clients, client)
		}
	}
	return f
}

// note reports a fault without naming clients.
func (v *investigation) note(name string, requests uint64, format string, args ...any) *Fault {
	v.faults = append(v.faults, Fault{Name: name, Requests: requests, Text: fmt.Sprintf(format, args...)})
	return &v.faults[len(v.faults)-1]
}

// basics reports faults that can be found without bounds on counts.
func (v *investigation) basics(s *Score) {
	those := func(is func(*request) bool) []*request {
		return without(v.j.sent, func(q *request) bool { return !is(q) })
	}
	ignored := those(func(q *request) bool { return q.outcome == denyIgnored })
	failed := those(func(q *request) bool { return q.outcome == uncertain && q.originFailed() })
	if s.Requests == 0 && len(ignored) == 0 && !slices.ContainsFunc(v.j.sent, func(q *request) bool { return q.outcome == denied }) {
		v.add("no_rule_applies", nil, "no request matches a rule that refuses: %s", v.j.whyNoRule())
	}
	if len(ignored) > 0 {
		v.add("denied_pass", ignored, "clients on the deny list do not get 403")
	}
	if 100*len(failed) > len(v.j.sent) {
		v.add("origin_fails", failed, "nodes cannot reach their origin: they answer 502 or 504, which cannot be judged")
	}
}

// whyNoRule suggests why no rule matches the requests.
func (j *judgment) whyNoRule() string {
	switch {
	case !j.some(func(r *rule.Rule) bool { return r.Action != rule.Log }):
		return "every rule only logs, or is not judged"
	case len(j.requests) == 0:
		return "no request was sent"
	}
	p := j.trace.Properties(0, false)
	return fmt.Sprintf("the first one is %s %s at host %s; compare the host, path, method and headers of the traffic with the rules", p.Method, p.Target, p.Host)
}

// split returns the requests that passed and those that were refused.
func split(found []violation) (passed, refused []*request) {
	for _, w := range found {
		if w.leak {
			passed = append(passed, w.request)
		} else {
			refused = append(refused, w.request)
		}
	}
	return passed, refused
}

// lasted returns how long mitigations seem to last if that is too short or too long, else 0.
func lasted(found []violation) (short, long int64) {
	for _, w := range found {
		switch {
		case w.since <= 0:
		case !w.leak:
			long = max(long, w.request.Done-w.since)
		case short == 0 || w.request.Sent-w.since < short:
			short = w.request.Sent - w.since
		}
	}
	return short, long
}

// requestsOf returns the requests of violations.
func requestsOf(found []violation) map[*request]bool {
	requests := map[*request]bool{}
	for _, w := range found {
		requests[w.request] = true
	}
	return requests
}

// minEvidence is the minimum number of violations that a mistake must explain.
const minEvidence = 3

// assume reports the mistake that explains most of the remaining violations, if it explains at least this part of the
// requests that pass or are refused and causes hardly any other violation. It then removes the explained violations and
// returns true.
func (v *investigation) assume(mistakes []mistake, part float64) bool {
	if len(v.left) == 0 {
		return false
	}
	passed, wrong := split(without(v.left, func(w violation) bool { return !v.sampled(w.request) }))
	// A shedding rule may refuse any client while its key is over the threshold, so any mistake that puts it over would
	// explain the refusals.
	_, own := split(without(v.left, func(w violation) bool { return !v.sampled(w.request) || w.key != nil && w.key.sheds() }))
	before := requestsOf(v.found)
	var best *mistake
	most := 0
	for i := range mistakes {
		m := &mistakes[i]
		if m.loose && best != nil {
			continue
		}
		if m.violated == nil { // once, on the sample
			m.bounds = v.test(m.v, m.m)
			m.violated = requestsOf(m.bounds.run())
		}
		explains := func(list []*request) int { return len(without(list, func(q *request) bool { return m.violated[q] })) }
		more := 0
		for q := range m.violated {
			if !before[q] && v.sampled(q) {
				more++
			}
		}
		refused := own
		if m.m.wider {
			refused = wrong
		}
		p, r := explains(passed), explains(refused)
		enough := p > 0 && float64(p) >= part*float64(len(passed)) || r > 0 && float64(r) >= part*float64(len(refused))
		if value := p + r - more; enough && p+r >= minEvidence && float64(more) <= (1-part)*float64(p+r) && value > most {
			best, most = m, value
		}
	}
	if best == nil {
		return false
	}
	if best.bounds != nil { // test it on all requests
		v.last = v.j.bounds(best.bounds.k, best.bounds.m)
		v.last.lag = best.bounds.lag
		best.violated = requestsOf(v.last.run())
	}
	v.rough = v.rough || best.rough
	v.add(best.name, v.take(func(w violation) bool { return !best.violated[w.request] }), "%s", best.text)
	return true
}

// take removes the violations that are explained, and returns their requests.
func (v *investigation) take(explained func(violation) bool) (requests []*request) {
	v.left = slices.DeleteFunc(v.left, func(w violation) bool {
		is := explained(w)
		if is {
			requests = append(requests, w.request)
		}
		return is
	})
	return requests
}

// bucket returns the requests that contradict a token bucket with the rate of a rule and the largest burst seen. It
// returns nil if nothing suggests a bucket, because no request passed after others of its key were refused.
func (j *judgment) bucket() map[*request]bool {
	const tick = 2000 // the assumed resolution of its clock, in microseconds
	type bucket struct {
		at    int64
		full  float64
		waits bool
	}
	buckets, burst, resumed := map[*key]*bucket{}, map[*rule.Rule]float64{}, map[*rule.Rule]bool{}
	waited, violated := map[*request]float64{}, map[*request]bool{} // by refusal: how full its bucket was
	leak := func(r *rule.Rule, micros int64) float64 {
		return float64(micros) * float64(r.Limits[0].Threshold) / float64(r.Limits[0].Period.Microseconds())
	}
	for _, q := range j.sent {
		keys := j.keys.of(q)
		if q.outcome == refused || q.outcome == foreign {
			violated[q] = true
		}
		if q.outcome != passed && q.outcome != refused || len(keys) != 1 || keys[0].sheds() || len(keys[0].rule.Limits) != 1 {
			continue
		}
		now, r := q.Sent+(q.Done-q.Sent)/2, keys[0].rule
		b := buckets[keys[0]]
		if b == nil {
			b = &bucket{at: now}
			buckets[keys[0]] = b
		}
		b.full = max(0, b.full-leak(r, now-b.at))
		b.at = now
		if q.outcome == refused {
			waited[q], b.waits = b.full, true
			continue
		}
		resumed[r] = resumed[r] || b.waits
		b.full += float64(costOf(r))
		burst[r] = max(burst[r], b.full)
	}
	for q, full := range waited {
		r := j.keys.of(q)[0].rule
		cost := float64(costOf(r))
		leaked := min(cost, full, leak(r, q.Done-q.Sent+tick)) // perhaps, between sending and answer
		if full+cost > burst[r]-leaked && resumed[r] {
			delete(violated, q)
		}
	}
	if !slices.Contains(slices.Collect(maps.Values(resumed)), true) {
		return nil
	}
	return violated
}

// sharpLag is the lag that PoPs usually stay below, in microseconds; longLag is the one that they should stay below.
const (
	sharpLag = 30_000
	longLag  = 100_000
)

// sharpen looks for mistakes that the bound on the lag hides. If a mistake explains nearly all requests that pass after
// a much shorter lag, they pass because of it, not because of lag: during a lag, clients with different rates get
// different numbers of requests through.
func (v *investigation) sharpen() {
	passed, _ := split(v.found)
	if _, wrong := split(v.left); len(wrong) > 0 || v.j.lag <= 2*sharpLag {
		return
	}
	sharp := v.j.bounds(v.last.k, v.last.m)
	sharp.lag = sharpLag
	found := sharp.run()
	since, crossings := map[*key]int64{}, map[violation]bool{}
	needed, fastest := int64(0), int64(math.MaxInt64) // from a crossing to the last request that passes, and to the first refusal
	for _, w := range found {
		if w.leak {
			since[w.key] = w.since
			crossings[violation{key: w.key, since: w.since}] = true
			needed = max(needed, w.request.Sent-w.since)
		}
	}
	for _, q := range v.j.sent {
		for _, k := range sharp.k.of(q) {
			if from, ok := since[k]; ok && q.outcome == refused && q.Sent > from {
				fastest = min(fastest, q.Sent-from)
			}
		}
	}
	const enough = 10
	if len(crossings) < enough || 10*len(passed) > len(found) || needed < longLag && needed < fastest {
		return
	}
	found = without(found, func(w violation) bool { return !w.leak })
	look := &investigation{j: v.j, found: found, left: slices.Clone(found), last: sharp}
	look.sample()
	list := without(look.mistakes(), func(m mistake) bool { return m.violated != nil })
	if look.assume(list, 0.98) {
		v.faults = append(v.faults, look.faults...)
		v.last = v.j.bounds(look.last.k, look.last.m)
		explained := requestsOf(v.last.run())
		v.take(func(w violation) bool { return w.leak && !explained[w.request] })
	}
}

// situations reports the violations that no mistake explains by when and where they happened.
func (v *investigation) situations() {
	v.deafNode(func(own, others int) bool { return others > own })
	keys := map[*key]bool{}
	for _, w := range v.left {
		keys[w.key] = true
	}
	lines, refusals := map[*key][]*request{}, map[*key][]*request{} // in the order in which they were sent
	for _, q := range v.j.sent {
		for _, k := range v.j.keys.of(q) {
			switch {
			case keys[k] && q.outcome == refused:
				refusals[k] = append(refusals[k], q)
				fallthrough
			case keys[k] && q.outcome == passed:
				lines[k] = append(lines[k], q)
			}
		}
	}
	by := map[string][]*request{}
	for i := range v.left {
		w := &v.left[i]
		s := v.surroundings(w, lines[w.key], refusals[w.key])
		for _, row := range situations {
			if row.leak == s.leak && row.fits(s) {
				by[row.name] = append(by[row.name], s.request)
				break
			}
		}
	}
	v.atRandom(by)
	for _, row := range situations {
		if len(by[row.name]) > 0 {
			v.add(row.name, by[row.name], "%s", row.text)
			delete(by, row.name)
		}
	}
}

// surroundings returns what happened before and after a violation, given the requests of its key.
func (v *investigation) surroundings(w *violation, line, refusals []*request) surroundings {
	s := surroundings{violation: w, over: v.over(w.key), never: len(refusals) == 0 && v.j.refuses}
	adjacent := refusals
	if !w.leak {
		adjacent = line
	}
	at, found := slices.BinarySearchFunc(adjacent, w.request, func(a, b *request) int { return cmp.Compare(a.i, b.i) })
	s.before = at > 0 && adjacent[at-1].outcome == refused && (!w.leak || adjacent[at-1].Sent >= w.since)
	if found {
		at++
	}
	s.after = at < len(adjacent) && adjacent[at].outcome == refused && (!w.leak || adjacent[at].Sent <= w.until)
	return s
}

// atRandom treats refusals as random if most are individual requests of several clients: a few random refusals follow
// one another, or a mitigation.
func (v *investigation) atRandom(by map[string][]*request) {
	random, clients := by[refusesAtWill], map[uint64]bool{}
	for _, q := range random {
		clients[q.Client] = true
	}
	delete(by, refusesAtWill)
	if others := slices.Concat(by[refusesSome], by[mitigationLong], by[refusesWrongly]); len(clients) >= 3 && len(random) > 2*len(others) {
		by[refusesAtWill], by[refusesSome], by[mitigationLong], by[refusesWrongly] = append(random, others...), nil, nil, nil
		return
	}
	for _, q := range random {
		name := refusesSome
		if slices.ContainsFunc(v.j.keys.of(q), v.over) {
			name = refusesWrongly
		}
		by[name] = append(by[name], q)
	}
}

// plainlyDeaf is how many refusals by other nodes show that a node without any refusals is deaf: a mistake that all
// nodes make would hardly leave one of them without a refusal.
const plainlyDeaf = 20

// deafNode reports the node that lets through nearly all requests that should be refused, if deaf returns true for the
// numbers of refusals of the same keys by that node and by the others.
func (v *investigation) deafNode(deaf func(own, others int) bool) {
	leaks, _ := split(v.left)
	byNode, refusals, keys, total := map[int]int{}, map[int]int{}, map[*key]bool{}, 0
	for _, q := range leaks {
		byNode[q.Node]++
		for _, k := range v.j.keys.of(q) {
			keys[k] = true
		}
	}
	for _, q := range v.j.sent {
		if q.outcome == refused && slices.ContainsFunc(v.j.keys.of(q), func(k *key) bool { return keys[k] }) {
			refusals[q.Node]++
			total++
		}
	}
	for node, n := range byNode {
		if 10*n < 9*len(leaks) || !deaf(refusals[node], total-refusals[node]) {
			continue
		}
		its := v.take(func(w violation) bool { return w.leak && w.request.Node == node })
		name := v.j.trace.Nodes()[node]
		v.add(deafNode, its, "%s lets through what other nodes refuse", name).Node = name
	}
}

// answers reports faults in the headers of answers.
func (v *investigation) answers(s *Score) {
	j, last, r := v.j, v.last, &s.RetryAfter
	wrong := map[*request]bool{}
	for _, w := range last.found {
		wrong[w.request] = wrong[w.request] || !w.leak
	}
	if !v.rough {
		*r = last.retry
	}
	j.headers(last.k, &s.Headers, r)
	if r.TooLong == 0 && len(v.faults) == 0 { // it is plainly wrong only if mitigations are right
		if n := j.overstated(last.k); n >= minEvidence {
			r.TooLong = n
		}
	}
	if !last.m.refused && !j.some(func(r *rule.Rule) bool { return r.CountWhileMitigated }) { // else the refused request itself may extend the mitigation
		shed := map[*key]bool{}
		for n, s := range last.states {
			k := last.k.keys[n]
			shed[k] = s != nil && k.sheds() && s.span.over > 0
		}
		j.returned(last.k, wrong, shed, r)
	}
	// A few of these may be due to another fault.
	few := func(n, all uint64) bool { return len(v.faults) > 0 && 100*n < all }
	significant := func(n uint64) uint64 {
		if v.rough || few(n, last.reported) {
			return 0
		}
		return n
	}
	s.Headers.TooLittle, s.Headers.TooMuch = significant(last.tooFew), significant(last.tooMany)
	has := func(name string) bool {
		return slices.ContainsFunc(v.faults, func(f Fault) bool { return f.Name == name })
	}
	if few(r.TooShort, r.Compared) || has(deafNode) { // it is unknown whether that node counts requests that it lets through
		r.TooShort = 0
	}
	if few(r.TooLong, r.Compared) || has(shedsEarly) { // it is computed for another threshold
		r.TooLong = 0
	}
	for _, f := range symptoms(&s.Headers, r) {
		if f.responses > 0 {
			v.note(f.name, f.responses, "%s", f.text)
		}
	}
}
