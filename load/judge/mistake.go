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
	left := without(v.left, func(w violation) bool { return !v.sampled[w.request] })
	passed, wrong := split(left)
	// A shedding rule may refuse any client while its key is over the threshold, so any mistake that puts it over would
	// explain the refusals. An earlier run explains only those before a request of the key passes.
	_, own := split(without(left, func(w violation) bool { return w.key != nil && w.key.sheds() }))
	before := requestsOf(v.found)
	var best *mistake
	most := 0
	for i := range mistakes {
		m := &mistakes[i]
		if len(left) == 0 || m.loose && best != nil {
			continue
		}
		if m.violated == nil { // once
			m.violated = requestsOf(v.test(v.sample, m.v, m.m).run())
		}
		explains := func(list []*request) int { return len(without(list, func(q *request) bool { return m.violated[q] })) }
		refused := own
		if m.m.wider || m.m.earlier {
			refused = wrong
		}
		p, r, more := explains(passed), explains(refused), 0
		for q := range m.violated {
			if !before[q] {
				more++
			}
		}
		enough := p > 0 && float64(p) >= part*float64(len(passed)) || r > 0 && float64(r) >= part*float64(len(refused))
		if value := p + r - more; enough && p+r >= minEvidence && float64(more) <= (1-part)*float64(p+r) && value > most {
			best, most = m, value
		}
	}
	if best == nil {
		return false
	}
	v.last = v.test(v.j, best.v, best.m) // on all requests
	violated := requestsOf(v.last.run())
	v.rough = v.rough || best.rough
	v.add(best.name, v.take(func(w violation) bool { return !violated[w.request] }), "%s", best.text).Node = best.m.deaf
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
	j := *v.j
	j.lag = sharpLag
	sharp := j.bounds(v.last.k, v.last.m)
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
	look := &investigation{j: &j, found: found, left: slices.Clone(found), last: sharp}
	look.draw()
	if look.assume(look.mistakes(), 0.98) {
		v.faults = append(v.faults, look.faults...)
		v.last = v.j.bounds(look.last.k, look.last.m)
		explained := requestsOf(v.last.run())
		v.take(func(w violation) bool { return w.leak && !explained[w.request] })
	}
}

// test returns bounds of j's requests under a variant and a model. The caller runs them.
func (v *investigation) test(j *judgment, by variant, m model) *bounds {
	if m.kind == weighted {
		m.kind = v.last.m.kind // weighted or slidingLog
	}
	return j.bounds(j.keying(by), m)
}

// fit returns the highest scale, at least low, for which the model finds no more requests that are refused too early
// than requests that pass too late.
func (v *investigation) fit(low float64, model func(scale float64) model) float64 {
	high := 1.6
	for range 9 {
		scale := (low + high) / 2
		passed, wrong := split(v.test(v.sample, variant{}, model(scale)).run())
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

// draw selects the requests that mistakes are tested on.
func (v *investigation) draw() {
	first, clients := min(sampleSize, len(v.j.sent)), map[uint64]bool{}
	for _, w := range v.found {
		clients[w.request.Client] = true
	}
	others := without(v.j.sent[first:], func(q *request) bool { return !clients[q.Client] })
	sample := *v.j
	sample.sent = slices.Concat(v.j.sent[:first], others[:min(sampleSize, len(others))])
	v.sampled = map[*request]bool{}
	for _, q := range sample.sent {
		v.sampled[q] = true
	}
	sample.done, v.sample = answered(sample.sent), &sample
}

// countAll calls over for each key that ever exceeds a threshold if all requests are counted.
func (j *judgment) countAll(k kind, over func(*key)) {
	b := j.bounds(j.keys, model{kind: k, misread: countsRefusals.misread})
	b.run()
	for n, s := range b.states {
		if s != nil && s.may > 0 {
			over(j.keys.keys[n])
		}
	}
}
