package judge

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/edgelimit/edge/rule"
)

// An investigation determines what is wrong with a trace.
type investigation struct {
	j      *judgment
	found  []violation // of the rules
	left   []violation // not explained yet
	last   *bounds     // of the model that explains most
	rough  bool        // the model does not predict when mitigations end
	faults []Fault

	sample  *judgment // of the requests that mistakes are tested on
	sampled map[*request]bool
}

// investigate finds violations and their explanations. A limiter that estimates and one that logs the time of every
// request are both correct: investigate assumes the one that needs fewer explanations.
func (j *judgment) investigate() *investigation {
	if j.refuses {
		j.countAll(weighted, func(k *key) { k.overEstimate = true })
		j.countAll(slidingLog, func(k *key) { k.overExact = true })
	}
	var both []*investigation
	for _, k := range []kind{weighted, slidingLog} {
		v := &investigation{j: j, last: j.bounds(j.keys, model{kind: k})}
		v.found = v.last.run()
		v.left = slices.Clone(v.found)
		if len(v.found) == 0 {
			v.sharpen()
			return v
		}
		both = append(both, v)
	}
	slices.SortStableFunc(both, func(a, b *investigation) int { return cmp.Compare(len(a.found), len(b.found)) })
	best, other := both[0], both[1]
	best.explain()
	if len(best.faults) == 1 && best.contradictions() == 0 {
		return best // no other explanation is simpler
	}
	other.explain()
	// The better one needs fewer explanations or, if equal, agrees with more answers.
	if cmp.Or(cmp.Compare(len(other.faults), len(best.faults)), cmp.Compare(other.contradictions(), best.contradictions())) < 0 {
		return other
	}
	return best
}

// contradictions returns the number of answers whose Retry-After v cannot explain.
func (v *investigation) contradictions() uint64 { return v.last.retry.TooShort + v.last.retry.TooLong }

// explain reports known mistakes, and classifies the remaining violations by when and where they happened.
func (v *investigation) explain() {
	if !v.j.refuses {
		all := v.take(func(violation) bool { return true })
		v.add("refuses_nothing", all, "the target refuses nothing, although clients exceed a threshold: it does not enforce these rules")
		return
	}
	v.draw()
	v.sharpen()
	list := v.mistakes()
	for v.assume(list, 0.9) {
	}
	v.sharpen()
	v.classify()
}

// report adds the faults to the score.
func (v *investigation) report(s *Score) {
	explained := v.faults
	v.faults = nil
	v.basics(s)
	v.faults = append(v.faults, explained...)
	for _, r := range v.j.rules {
		if r.Action == rule.Shed {
			s.Shed = append(s.Shed, v.compareShed(r))
		}
	}
	v.answers(s)
	if other := v.j.otherLimit(); other != "" {
		v.faults = nil // they would all be consequences
		v.note("other_rules", uint64(len(v.j.sent)),
			"the target has other rules than those given: its RateLimit-Policy names %s, which they lack", other)
	}
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
	ignored := without(v.j.sent, func(q *request) bool { return q.outcome != denyIgnored })
	failed := without(v.j.sent, func(q *request) bool { return q.outcome != uncertain || !q.originFailed() })
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
	case !j.some(acts):
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

func requestsOf(found []violation) map[*request]bool {
	requests := map[*request]bool{}
	for _, w := range found {
		requests[w.request] = true
	}
	return requests
}

// answers reports faults in the headers of answers.
func (v *investigation) answers(s *Score) {
	last, h, r := v.last, &s.Headers, &s.RetryAfter
	*h, *r = last.headers, last.retry
	if v.rough {
		r.Compared, r.TooShort, r.TooLong = 0, 0, 0
	}
	if r.TooLong == 0 && len(v.faults) == 0 && last.overstated >= minEvidence { // Retry-After is plainly wrong only if mitigations are right
		r.TooLong = last.overstated
	}
	drop := func(n *uint64, all uint64, unknown bool) {
		if unknown || len(v.faults) > 0 && 100**n < all { // a few may be due to another fault
			*n = 0
		}
	}
	has := func(name string) bool {
		return slices.ContainsFunc(v.faults, func(f Fault) bool { return f.Name == name })
	}
	drop(&h.TooLittle, last.reported, v.rough)
	drop(&h.TooMuch, last.reported, v.rough)
	drop(&r.TooShort, r.Compared, has(ignoresMitigations)) // that node may not count requests that it lets through
	drop(&r.TooLong, r.Compared, has(shedsEarly))          // the node computes it for another threshold
	v.faults = append(v.faults, symptoms(h, r)...)
}
