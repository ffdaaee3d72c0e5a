package judge

import (
	"math"
	"slices"
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

// fit returns the highest scale, from low on, with whose model hardly any request is refused too early, but not more are
// than pass too late.
func (v *investigation) fit(low float64, model func(scale float64) model) float64 {
	high := 1.6
	for range 9 {
		scale := (low + high) / 2
		passed, wrong := split(v.test(variant{}, model(scale)).run())
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
