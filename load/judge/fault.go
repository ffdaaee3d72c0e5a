package judge

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/edgelimit/edge/rule"
)

// A Fault is something that the target does wrong and that its lag does not explain.
type Fault struct {
	Name     string   `json:"name"`
	Text     string   `json:"text"`
	Requests uint64   `json:"requests"`
	Node     string   `json:"node,omitempty"`
	Clients  []string `json:"clients,omitempty"` // the first affected clients
}

// Names of faults.
const (
	ThresholdHigh    = "threshold_high" // refuses some requests too late
	ThresholdLow     = "threshold_low"  // refuses some requests too early
	FixedWindow      = "fixed_window"   // ignores the previous window
	WeightWrong      = "weight_reversed"
	WindowWrong      = "window_wrong" // confuses windows
	PrevWhole        = "previous_window_whole"
	TokenBucket      = "token_bucket"
	CountsSeparately = "nodes_count_separately"
	CountsRefused    = "counts_refused_requests"
	CountsPassed     = "counts_only_what_passes"
	CountsTwice      = "counts_twice"
	AllStatuses      = "ignores_statuses"
	CostIgnored      = "ignores_cost"
	PlansIgnored     = "ignores_overrides"
	SharesMissing    = "shares_missing_value"
	ClientPrefix     = "client_prefix"
	Leftmost         = "forwarded_from_left"
	ClientsMixed     = "clients_mixed_up"
	ClientsAsOne     = "clients_not_told_apart"

	TimeoutIgnored    = "mitigation_timeout_ignored"
	MitigationShort   = "mitigation_too_short"
	MitigationLong    = "mitigation_too_long"
	MitigationReturns = "mitigation_returns"       // it ends early and comes back
	DeafNode          = "node_ignores_mitigations" // one node lets through what others refuse
	NeverRefused      = "client_never_refused"

	RefusesSome    = "refuses_innocent" // some clients are refused without a reason
	RefusesAtWill  = "refuses_at_random"
	Leaks          = "leaks"           // requests pass that should be refused, for an unknown reason
	RefusesWrongly = "refuses_wrongly" // requests are refused that should pass, for an unknown reason
	ByNoRule       = "refused_by_no_rule"
	NoRuleApplies  = "no_rule_applies"
	DenyIgnored    = "denied_pass"
	OriginFails    = "origin_fails"

	ShedsEarly     = "sheds_below_threshold"
	ShedsTooMuch   = "sheds_too_much"
	ShedsTooLittle = "sheds_too_little"
	ShedsByRequest = "sheds_by_request"
	CountsNarrower = "counts_for_wider_networks"

	RetryTooShort  = "retry_after_too_short"
	RetryTooLong   = "retry_after_too_long"
	RetryZero      = "retry_after_zero"
	ShadowBanShows = "shadow_ban_shows"
	HeadersDiffer  = "headers_disagree"
)

// An investigation determines what is wrong with a trace.
type investigation struct {
	c      *court
	s      *Score
	found  []violation // of the rules
	left   []violation // not explained yet
	last   *trial      // the one that explains most
	rough  bool        // last does not know when mitigations end
	faults []Fault

	overExact, overEstimate map[*key]bool // keys that exceed a threshold with all requests counted
	mixedUp                 map[*key]bool // keys that the target confuses with another

	// The requests that hypotheses are tested on.
	sent, done []*request
	sampled    map[*request]bool
}

// over reports whether a key ever exceeds a threshold.
func (v *investigation) over(k *key) bool { return v.overExact[k] || v.overEstimate[k] }

// investigate finds violations and what explains them. A limiter that estimates and one that logs
// the time of every request are both correct: it assumes whichever needs fewer explanations.
func (c *court) investigate(s *Score) *investigation {
	overEstimate, overExact := c.everOver(weighted), c.everOver(slidingLog)
	var both []*investigation
	for _, k := range []kind{weighted, slidingLog} {
		v := &investigation{c: c, s: s, last: c.trial(c.book, model{kind: k}), overEstimate: overEstimate, overExact: overExact}
		v.found = v.last.run()
		v.left = slices.Clone(v.found)
		if len(v.found) == 0 {
			return v
		}
		both = append(both, v)
	}
	best, other := both[0], both[1]
	if len(other.found) < len(best.found) {
		best, other = other, best
	}
	if best.explain(); len(best.faults) == 1 && best.contradictions() == 0 {
		return best // no other explanation is simpler
	}
	if other.explain(); other.better(best) {
		return other
	}
	return best
}

// contradictions returns the number of answers whose Retry-After v cannot explain.
func (v *investigation) contradictions() uint64 { return v.last.retry.TooShort + v.last.retry.TooLong }

// better reports whether v needs fewer explanations than o or, if equal, agrees with more answers.
func (v *investigation) better(o *investigation) bool {
	return cmp.Or(cmp.Compare(len(v.faults), len(o.faults)), cmp.Compare(v.contradictions(), o.contradictions()), cmp.Compare(len(v.found), len(o.found))) < 0
}

// explain reports known mistakes, and classifies the remaining violations by when and where they
// happened.
func (v *investigation) explain() {
	v.deafNode(func(own, others int) bool { return own == 0 && others >= plainlyDeaf })
	v.sample()
	list := v.c.hypotheses(v.found)
	for v.assume(list, 0.9) {
	}
	v.situations()
}

// sampleSize is the number of requests that hypotheses are tested on: the first ones, and as many
// again from clients with violations.
const sampleSize = 30_000

// sample selects the requests that hypotheses are tested on.
func (v *investigation) sample() {
	first := min(sampleSize, len(v.c.sent))
	requests := map[uint64]int{} // by client
	for _, q := range v.c.sent[first:] {
		requests[q.Client]++
	}
	clients, room := map[uint64]bool{}, sampleSize
	for _, w := range v.found {
		if n := requests[w.request.Client]; !clients[w.request.Client] && n <= room {
			clients[w.request.Client] = true
			room -= n
		}
	}
	v.sampled = map[*request]bool{}
	for n, q := range v.c.sent {
		if n < first || clients[q.Client] {
			v.sent, v.sampled[q] = append(v.sent, q), true
		}
	}
	v.done = answered(v.sent)
}

// everOver returns the keys that ever exceed a threshold if all requests are counted.
func (c *court) everOver(k kind) map[*key]bool {
	over := map[*key]bool{}
	if !c.refuses {
		return over
	}
	t := c.trial(c.book, model{refused: true, kind: k})
	t.brief = true
	t.run()
	for n, s := range t.states {
		if s != nil && s.spans[0].may > 0 {
			over[c.book.keys[n]] = true
		}
	}
	return over
}

// report adds the faults to the score.
func (v *investigation) report(s *Score) {
	explained := v.faults
	v.faults = nil
	v.basics()
	v.faults = append(v.faults, explained...)
	if leaks, _ := split(v.found); len(leaks) == 0 {
		v.sharpen()
	}
	for _, r := range v.c.rules {
		if r.Action == rule.Shed {
			s.Shed = append(s.Shed, v.shed(r))
		}
	}
	v.answers()
	s.Faults = append(s.Faults, v.faults...)
}

// maxClients is the maximum number of clients that a fault names.
const maxClients = 10

// add reports a fault and names clients of its requests.
func (v *investigation) add(name string, requests []*request, format string, args ...any) *Fault {
	f := v.note(name, uint64(len(requests)), format, args...)
	seen := map[uint64]bool{}
	for _, q := range requests {
		if seen[q.Client] {
			continue
		}
		if seen[q.Client] = true; len(f.Clients) == maxClients {
			break
		}
		f.Clients = append(f.Clients, v.c.trace.Name(q.i))
	}
	return f
}

// note reports a fault without naming clients.
func (v *investigation) note(name string, requests uint64, format string, args ...any) *Fault {
	v.faults = append(v.faults, Fault{Name: name, Requests: requests, Text: fmt.Sprintf(format, args...)})
	return &v.faults[len(v.faults)-1]
}

// basics reports faults that can be found without bounds on counts.
func (v *investigation) basics() {
	var ignored, failed []*request
	denials := 0
	for _, q := range v.c.sent {
		switch {
		case q.outcome == denied:
			denials++
		case q.outcome == denyIgnored:
			ignored = append(ignored, q)
		case q.outcome == uncertain && q.originFailed():
			failed = append(failed, q)
		}
	}
	if v.s.Requests == 0 && denials+len(ignored) == 0 {
		v.add(NoRuleApplies, nil, "no request matches a rule that refuses: %s", v.c.whyNoRule())
	}
	if len(ignored) > 0 {
		v.add(DenyIgnored, ignored, "clients on the deny list do not get 403")
	}
	if 100*len(failed) > len(v.c.sent) {
		v.add(OriginFails, failed, "nodes cannot reach their origin: they answer 502 or 504, which cannot be judged")
	}
}

// whyNoRule suggests why no rule matches the requests.
func (c *court) whyNoRule() string {
	if !slices.ContainsFunc(c.rules, func(r *rule.Rule) bool { return r.Action != rule.Log }) {
		return "every rule only logs, or is not judged"
	}
	if len(c.requests) == 0 {
		return "no request was sent"
	}
	p := c.trace.Properties(0, AsSent)
	for _, r := range c.rules {
		if len(r.Hosts) > 0 {
			return fmt.Sprintf("the first one is %s %s at host %s, and rule %s is for host %s; check the host, path and method of the traffic", p.Method, p.Target, p.Host, r.ID, r.Hosts[0])
		}
	}
	return fmt.Sprintf("the first one is %s %s at host %s; check the path, method and headers of the traffic", p.Method, p.Target, p.Host)
}

// A hypothesis is a mistake that may explain violations.
type hypothesis struct {
	name, text string
	m          model
	v          variant
	rough      bool // it does not predict when mitigations end
	trial      *trial
	violated   map[*request]bool
}

// hypotheses returns the known mistakes that are possible with these rules, simplest first.
func (c *court) hypotheses(found []violation) []hypothesis {
	list := []hypothesis{
		{name: ClientsAsOne, text: "it counts the requests of all clients together: " + cmp.Or(c.o.Distrust, "it does not learn their addresses"), v: variant{as: AsOne}},
		{name: Leftmost, text: "it uses the leftmost address of X-Forwarded-For, which clients can choose", v: variant{as: AsLeftmost}},
		{name: ThresholdHigh, text: "it refuses as if each threshold were higher by one", m: model{more: 1}},
		{name: ThresholdHigh, text: "it refuses as if each threshold were higher by two", m: model{more: 2}},
		{name: ThresholdHigh, text: "it refuses as if each threshold were higher by three", m: model{more: 3}},
		{name: ThresholdLow, text: "it refuses as if each threshold were lower by one", m: model{more: -1}},
		{name: ThresholdLow, text: "it refuses as if each threshold were lower by two", m: model{more: -2}},
		{name: ThresholdLow, text: "it refuses as if each threshold were lower by three", m: model{more: -3}},
		{name: FixedWindow, text: "it ignores the previous window: twice the threshold passes at an edge", m: model{kind: fixed}},
		{name: WeightWrong, text: "it weights the previous window by the elapsed part of the current one, not by the rest", m: model{kind: reversed}},
		{name: PrevWhole, text: "it counts the whole previous window", m: model{kind: neverFalls}},
		{name: WindowWrong, text: "it uses the window before the previous one instead of the previous one", m: model{kind: outOfDate}},
		{name: WindowWrong, text: "its windows begin a second late", m: model{shift: 1e6}},
		{name: WindowWrong, text: "its windows begin a second early", m: model{shift: -1e6}},
		{name: CountsRefused, text: "it counts requests that it refuses", m: model{refused: true}},
	}
	add := func(possible bool, h hypothesis) {
		if possible {
			list = append(list, h)
		}
	}
	some := func(is func(r *rule.Rule) bool) bool { return slices.ContainsFunc(c.rules, is) }
	several := len(c.trace.Nodes()) > 1
	skips := func(r *rule.Rule) bool {
		return slices.ContainsFunc(r.Characteristics, func(c rule.Characteristic) bool { return c.Skip })
	}
	add(several, hypothesis{name: CountsSeparately, text: "each node counts alone", m: model{apart: true, alone: true}})
	add(several, hypothesis{name: CountsSeparately, text: "each node counts alone, though mitigations are shared", m: model{apart: true}})
	add(some(func(r *rule.Rule) bool { return r.CountWhileMitigated }),
		hypothesis{name: CountsPassed, text: "it does not count requests that it refuses, although the rule does", m: model{passed: true}})
	add(some(func(r *rule.Rule) bool { return r.Cost > 1 }),
		hypothesis{name: CostIgnored, text: "it counts each request once, although the rule gives requests a higher cost", m: model{once: true}})
	add(some(func(r *rule.Rule) bool { return r.Overrides != "" }),
		hypothesis{name: PlansIgnored, text: "it limits all keys alike, although the rule has overrides", v: variant{plain: true}})
	add(some(func(r *rule.Rule) bool { return r.Statuses != nil }),
		hypothesis{name: AllStatuses, text: "it counts requests whatever the origin answers, although the rule counts only some statuses", m: model{statuses: true}})
	add(some(skips), hypothesis{name: SharesMissing, text: "it counts requests without a value together, although the rule skips them", v: variant{share: true}})
	add(c.sheds() && len(c.rules) > 1,
		hypothesis{name: CountsNarrower, text: "it counts requests that it refuses because of a client or a narrower network for wider networks as well", m: model{wider: true}})
	own := rule.ClientPrefix{IPv4: cmp.Or(c.o.Client.IPv4, 32), IPv6: cmp.Or(c.o.Client.IPv6, 64)}
	for _, bits := range []int{128, 64, 56, 48} {
		add(bits != own.IPv6, hypothesis{name: ClientPrefix, text: fmt.Sprintf("it counts IPv6 clients by /%d, not by /%d", bits, own.IPv6), v: variant{client: rule.ClientPrefix{IPv4: own.IPv4, IPv6: bits}}})
	}
	for _, bits := range []int{32, 24} {
		add(bits != own.IPv4, hypothesis{name: ClientPrefix, text: fmt.Sprintf("it counts IPv4 clients by /%d, not by /%d", bits, own.IPv4), v: variant{client: rule.ClientPrefix{IPv4: bits, IPv6: own.IPv6}}})
	}
	add(some(func(r *rule.Rule) bool { return r.MitigationTimeout > 0 }),
		hypothesis{name: TimeoutIgnored, text: "its mitigations ignore their timeout", m: model{replaced: true}})
	short, long := lasted(found)
	add(short > 0, hypothesis{name: MitigationShort, text: fmt.Sprintf("its mitigations end after about %v", rounded(short)), m: model{timeout: short, replaced: true}, rough: true})
	add(long > 0, hypothesis{name: MitigationLong, text: fmt.Sprintf("its mitigations last for about %v", rounded(long)), m: model{timeout: long, replaced: true}, rough: true})
	violated := c.bucket()
	add(violated != nil, hypothesis{name: TokenBucket, text: "it is a token bucket: after a burst, requests pass evenly, one by one, although the rule counts per period", violated: violated, rough: true})
	add(true, hypothesis{name: CountsTwice, text: "it counts some requests twice", m: model{twice: true}})
	return list
}

func rounded(micros int64) time.Duration {
	return (time.Duration(micros) * time.Microsecond).Round(100 * time.Millisecond)
}

// lasted returns how long mitigations seem to last if that is too short or too long, else 0.
func lasted(found []violation) (short, long int64) {
	short = math.MaxInt64
	for _, v := range found {
		switch {
		case v.since <= 0:
		case v.leak:
			short = min(short, v.request.Sent-v.since)
		default:
			long = max(long, v.request.Done-v.since)
		}
	}
	if short == math.MaxInt64 {
		short = 0
	}
	return short, long
}

// try tests a hypothesis on the sample, once.
func (v *investigation) try(h *hypothesis) {
	if h.violated != nil {
		return
	}
	if h.m.kind == weighted {
		h.m.kind = v.last.m.kind // weighted or slidingLog
	}
	t := v.c.trial(v.c.bookOf(h.v), h.m)
	t.sent, t.done, t.brief = v.sent, v.done, true
	h.test(t, v.last.lag)
}

// test runs a trial of h.
func (h *hypothesis) test(t *trial, lag int64) {
	t.lag, h.trial = lag, t
	h.violated = requestsOf(t.run())
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

// assume reports the hypothesis that explains most of the remaining violations, if it explains
// at least this part of the leaks or of the wrong refusals and causes hardly any other violation. It then
// removes the explained violations and returns true.
func (v *investigation) assume(hypotheses []hypothesis, part float64) bool {
	if len(v.left) == 0 {
		return false
	}
	leaks, wrong := split(without(v.left, func(w violation) bool { return !v.sampled[w.request] }))
	// A shedding rule may refuse any client while its key is over the threshold, so any hypothesis that puts
	// it over would explain the refusals.
	_, own := split(without(v.left, func(w violation) bool { return !v.sampled[w.request] || w.key != nil && w.key.sheds() }))
	before := requestsOf(v.found)
	var best *hypothesis
	most := 0
	for i := range hypotheses {
		h := &hypotheses[i]
		v.try(h)
		explains := func(list []*request) int { return len(without(list, func(q *request) bool { return h.violated[q] })) }
		more := 0
		for q := range h.violated {
			if !before[q] && v.sampled[q] {
				more++
			}
		}
		wrong := wrong
		if !h.m.wider {
			wrong = own
		}
		l, w := explains(leaks), explains(wrong)
		enough := l > 0 && float64(l) >= part*float64(len(leaks)) || w > 0 && float64(w) >= part*float64(len(wrong))
		if value := l + w - more; enough && l+w >= minEvidence && float64(more) <= (1-part)*float64(l+w) && value > most {
			best, most = h, value
		}
	}
	if best == nil {
		return false
	}
	if best.trial != nil { // test it on all requests
		best.test(v.c.trial(best.trial.b, best.m), best.trial.lag)
		v.last = best.trial
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
