package judge

import (
	"maps"
	"math"
	"slices"

	"github.com/edgelimit/edge/rule"
)

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
