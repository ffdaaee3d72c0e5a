package judge

// The faults: mistakes, which a model explains; situations, which the requests before and after a violation explain;
// and symptoms, which the responses themselves show.

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/rule"
)

// A Fault is wrong behavior of the target that its lag does not explain.
type Fault struct {
	Name     string   `json:"name"`
	Text     string   `json:"text"`
	Requests uint64   `json:"requests"`
	Node     string   `json:"node,omitempty"`
	Clients  []string `json:"clients,omitempty"` // the first affected clients
}

// A mistake is a fault that a model explains: a target that counts and mitigates like the model gives the same wrong
// responses. Most mistakes are rules that the target misreads.
type mistake struct {
	unless bool // impossible with these rules and nodes
	name   string
	text   string
	m      model
	v      variant
	rough  bool // does not predict when mitigations end
	loose  bool // explains nearly anything, so it is tried last

	violated map[*request]bool // requests of the sample that contradict it
}

// eachLimit returns a function that changes each limit of a rule.
func eachLimit(change func(*rule.Limit)) func(*rule.Rule) {
	return func(r *rule.Rule) {
		for i := range r.Limits {
			change(&r.Limits[i])
		}
	}
}

// scaled multiplies thresholds.
func scaled(scale float64) model {
	return model{misread: eachLimit(func(l *rule.Limit) { l.Threshold = uint64(math.Round(float64(l.Threshold) * scale)) })}
}

// tokenBucket turns limits into buckets with the limit's rate, for bursts of a multiple of the threshold.
func tokenBucket(scale float64) model {
	return model{kind: leaky, misread: func(r *rule.Rule) {
		r.MitigationTimeout = 0
		eachLimit(func(l *rule.Limit) {
			burst := max(1, math.Round(float64(l.Threshold)*scale))
			l.Threshold, l.Period = uint64(burst), time.Duration(float64(l.Period)*burst/float64(max(1, l.Threshold)))
		})(r)
	}}
}

// lasting makes mitigations last this long, in microseconds, unless it is 0.
func lasting(micros int64) model {
	return model{misread: func(r *rule.Rule) {
		r.MitigationTimeout = cmp.Or(time.Duration(micros)*time.Microsecond, r.MitigationTimeout)
	}}
}

// mistakes returns the known mistakes that are possible with these rules, simplest first.
func (v *investigation) mistakes() []mistake {
	j := v.j
	own := rule.ClientPrefix{IPv4: cmp.Or(j.o.Client.IPv4, 32), IPv6: cmp.Or(j.o.Client.IPv6, 64)}
	short, long := int64(0), int64(0) // how long mitigations seem to last if that is too short or too long
	nodes, leaks, deaf := j.trace.Nodes(), map[string]int{}, ""
	for _, w := range v.found {
		if node := nodes[w.request.Node]; w.leak {
			leaks[node]++
			if leaks[node] > leaks[deaf] {
				deaf = node
			}
		}
		switch {
		case w.since <= 0:
		case !w.leak:
			long = max(long, w.request.Done-w.since)
		case short == 0 || w.request.Sent-w.since < short:
			short = w.request.Sent - w.since
		}
	}
	scale, burst := v.fit(0.6, scaled), v.fit(0.4, tokenBucket)
	strict, percent := "threshold_high", fmt.Sprintf("%.0f%% higher", 100*(scale-1))
	if scale < 1 {
		strict, percent = "threshold_low", fmt.Sprintf("%.0f%% lower", 100*(1-scale))
	}
	rows := []mistake{
		{name: ignoresMitigations, text: deaf + " lets through what other nodes refuse", m: model{deaf: deaf},
			unless: deaf == "" || len(nodes) < 2},
		{name: "threshold_high", text: "it refuses as if each threshold were higher by one", m: model{misread: eachLimit(func(l *rule.Limit) { l.Threshold++ })}},
		{name: "threshold_low", text: "it refuses as if each threshold were lower by one",
			m: model{misread: eachLimit(func(l *rule.Limit) { l.Threshold = max(1, l.Threshold) - 1 })}},
		{name: strict, text: "it refuses as if each threshold were about " + percent, m: scaled(scale), rough: true, unless: math.Abs(scale-1) < 0.005},
		{name: "clients_not_told_apart", text: "it counts the requests of all clients together: " + cmp.Or(j.o.Distrust, "it does not learn their addresses"), v: variant{alike: true}},
		{name: "remembers_earlier_run", m: model{earlier: true},
			text: fmt.Sprintf("the target remembers an earlier run: it refuses clients at their first request; wait %v before you repeat a run, or give clients new addresses", j.memory)},
		{name: "fixed_window", text: "it ignores the previous window: twice the threshold passes at a window boundary", m: model{kind: fixed}},
		{name: "weight_reversed", text: "it weights the previous window by the elapsed part of the current one, not by the rest", m: model{kind: reversed}},
		{name: "previous_window_whole", text: "it counts the whole previous window", m: model{kind: neverFalls}},
		{name: "counts_refused_requests", text: "it counts requests that it refuses", m: countsRefusals},
		{name: "nodes_count_separately", text: "each node counts alone", v: variant{apart: true}, unless: len(nodes) < 2},
		{name: "counts_only_what_passes", text: "it does not count requests that it refuses, although the rule does",
			m: model{misread: func(r *rule.Rule) { r.CountWhileMitigated, r.CountRefused = false, false }}},
		{name: "ignores_cost", text: "it counts each request once, although the rule gives requests a higher cost", m: model{misread: func(r *rule.Rule) { r.Cost = min(1, r.Cost) }}},
		{name: "ignores_overrides", text: "it limits all keys alike, although the rule has overrides", m: model{misread: func(r *rule.Rule) {
			r.Overrides, r.Limits = "", j.rules[slices.IndexFunc(j.rules, func(plain *rule.Rule) bool { return plain.ID == r.ID })].Limits
		}}},
		{name: "ignores_statuses", text: "it counts requests whatever the origin answers, although the rule counts only some statuses", m: model{misread: func(r *rule.Rule) { r.Statuses = nil }}},
		{name: "shares_missing_value", text: "it counts requests without a value together, although the rule skips them", v: variant{share: true},
			unless: !j.some(func(r *rule.Rule) bool {
				return slices.ContainsFunc(r.Characteristics, func(c rule.Characteristic) bool { return c.Skip })
			})},
		{name: "counts_for_wider_networks", text: "it counts requests that it refuses because of a client or a narrower network for wider networks as well", m: model{wider: true},
			unless: len(j.rules) < 2 || !j.some(func(r *rule.Rule) bool { return r.Action == rule.Shed })},
	}
	for _, bits := range []int{128, 64, 56, 48, 32, 24} {
		family, right, client := "IPv6", own.IPv6, rule.ClientPrefix{IPv4: own.IPv4, IPv6: bits}
		if bits <= 32 {
			family, right, client = "IPv4", own.IPv4, rule.ClientPrefix{IPv4: bits, IPv6: own.IPv6}
		}
		text := fmt.Sprintf("it counts %s clients by /%d, not by /%d", family, bits, right)
		rows = append(rows, mistake{name: "client_prefix", text: text, v: variant{client: client}, unless: bits == right})
	}
	rows = append(rows, []mistake{
		{name: "mitigation_timeout_ignored", text: "its mitigations ignore their timeout", m: model{misread: func(r *rule.Rule) { r.MitigationTimeout = 0 }}},
		{name: "mitigation_too_short", text: fmt.Sprintf("its mitigations end after about %v", tenths(short)), m: lasting(short), rough: true},
		{name: "mitigation_too_long", text: fmt.Sprintf("its mitigations last for about %v", tenths(long)), m: lasting(long), rough: true},
		{name: "token_bucket", text: "it is a token bucket: after a burst, requests pass evenly, one by one, although the rule counts per period", m: tokenBucket(burst), rough: true},
		{name: "counts_twice", text: "it counts some requests twice", m: model{twice: true}, loose: true},
	}...)
	return slices.DeleteFunc(rows, func(m mistake) bool {
		return m.unless || m.m.misread != nil && m.m.kind == weighted && !j.some(func(r *rule.Rule) bool { return !reflect.DeepEqual(r, m.m.read(r)) })
	})
}

// countsRefusals is the model of a target that counts the requests that it refuses.
var countsRefusals = model{misread: func(r *rule.Rule) { r.CountWhileMitigated = true }}

func tenths(micros int64) time.Duration {
	return (time.Duration(micros) * time.Microsecond).Round(100 * time.Millisecond)
}

// Names of faults that others depend on.
const (
	ignoresMitigations = "node_ignores_mitigations"
	shedsEarly         = "sheds_below_threshold"
)

// Surroundings describe the requests around a violation. before and after report whether the adjacent request of the
// key was refused; next to a request that passed wrongly, only refusals by the same mitigation count.
type surroundings struct {
	*violation
	before, after bool
	never         bool // the key is never refused, although others are
	over          bool // one of the request's keys ever exceeds a threshold
	random        bool // most refusals are individual requests of several clients
}

// A situation is a fault that no model explains.
type situation struct {
	leak bool // applies to requests that pass; otherwise, to refused ones
	name string
	text string
	fits func(s surroundings) bool
}

// situations are all situations. The first row that fits applies, and the last row of each kind fits always.
var situations = []situation{
	{true, "mitigation_returns", "clients are refused, then pass, then are refused again by the same mitigation", func(s surroundings) bool { return s.before && s.after }},
	{true, "mitigation_too_short", "mitigations end too early", func(s surroundings) bool { return s.before }},
	{true, "client_never_refused", "some clients that exceed a threshold are never refused, although others are", func(s surroundings) bool { return s.never }},
	{true, "leaks", "requests pass although the lag since their client crossed the threshold is over", func(surroundings) bool { return true }},
	{false, "refused_by_no_rule", "requests are refused although no rule can refuse them: check that the PoP has the same rules", func(s surroundings) bool { return s.key == nil }},
	{false, shedsEarly, "some clients of a network or label are refused although it does not exceed a threshold", func(s surroundings) bool { return s.key.sheds() }},
	{false, "refuses_at_random", "individual requests are refused although the client's requests before and after them pass", func(s surroundings) bool { return s.random }},
	{false, "refuses_innocent", "clients that never exceed a threshold are refused", func(s surroundings) bool { return !s.over }},
	{false, "mitigation_too_long", "mitigations end too late", func(s surroundings) bool { return s.until > 0 && s.before }},
	{false, "refuses_wrongly", "requests are refused before their client exceeds a threshold, or after the mitigation must have ended", func(surroundings) bool { return true }},
}

// classify groups the violations that no mistake explains by when and where they happened, and reports the groups.
func (v *investigation) classify() {
	// The requests to compare a violation with, by its key and leak, in the order in which they were sent: the refusals
	// of the key and, unless it is a leak, its requests that passed.
	lines := map[violation][]*request{}
	for _, w := range v.left {
		lines[violation{key: w.key, leak: true}], lines[violation{key: w.key}] = nil, nil
	}
	for _, q := range v.j.sent {
		for _, k := range v.j.keys.of(q) {
			for _, shape := range []violation{{key: k, leak: true}, {key: k}} {
				if line, ok := lines[shape]; ok && (q.outcome == refused || q.outcome == passed && !shape.leak) {
					lines[shape] = append(line, q)
				}
			}
		}
	}
	var all []surroundings
	clients, individual, others := map[uint64]bool{}, 0, 0 // individual: refusals with no other refusal next to them
	for i := range v.left {
		s := v.surroundings(&v.left[i], lines)
		all = append(all, s)
		switch {
		case s.leak || s.key == nil || s.key.sheds():
		case s.before || s.after:
			others++
		default:
			individual++
			clients[s.request.Client] = true
		}
	}
	// A few random refusals, too, come next to one another, or next to a mitigation.
	random := len(clients) >= 3 && individual > 2*others
	fits := make([][]*request, len(situations))
	for _, s := range all {
		s.random = random
		n := slices.IndexFunc(situations, func(row situation) bool { return row.leak == s.leak && row.fits(s) })
		fits[n] = append(fits[n], s.request)
	}
	for n, row := range situations {
		if len(fits[n]) > 0 {
			v.add(row.name, fits[n], "%s", row.text)
		}
	}
}

// surroundings examines the requests before and after a violation.
func (v *investigation) surroundings(w *violation, lines map[violation][]*request) surroundings {
	line := lines[violation{key: w.key, leak: w.leak}]
	s := surroundings{violation: w, never: len(lines[violation{key: w.key, leak: true}]) == 0}
	s.over = slices.ContainsFunc(v.j.keys.of(w.request), (*key).over)
	at, found := slices.BinarySearchFunc(line, w.request, func(a, b *request) int { return cmp.Compare(a.i, b.i) })
	s.before = at > 0 && line[at-1].outcome == refused && (!w.leak || line[at-1].Sent >= w.since)
	if found {
		at++
	}
	s.after = at < len(line) && line[at].outcome == refused && (!w.leak || line[at].Sent <= w.until)
	return s
}

// symptoms returns what is wrong with the headers of responses.
func symptoms(h *Headers, r *RetryAfter) []Fault {
	var differ []string
	n := uint64(0)
	for _, s := range []struct {
		responses uint64
		text      string
	}{
		{h.NoRetryAfter, "refusals have no Retry-After"},
		{r.Bad, "refusals have a Retry-After that is not a number of seconds"},
		{h.Remaining, "refusals report that more requests are allowed"},
		{h.OtherTime, "refusals have a time in RateLimit or X-RateLimit-Reset that differs from Retry-After"},
		{h.PassedRetryAfter, "passed responses have a Retry-After"},
		{h.TooLittle, "passed responses report fewer remaining requests than the requests sent leave"},
		{h.TooMuch, "passed responses report more remaining requests than their node's counts leave"},
	} {
		if s.responses > 0 {
			n += s.responses
			differ = append(differ, fmt.Sprint(s.responses)+" "+s.text)
		}
	}
	return slices.DeleteFunc([]Fault{
		{Requests: cmp.Or(r.Untrue, r.TooShort), Name: "retry_after_too_short", Text: fmt.Sprintf("Retry-After is too short: of %d clients that returned when told to, %d were refused again; of %d responses, %d say less than the mitigation lasts",
			r.Checked, r.Untrue, r.Compared, r.TooShort)},
		{Requests: r.TooLong, Name: "retry_after_too_long", Text: fmt.Sprintf("Retry-After is too long: of %d responses, %d say more than the mitigation can last", r.Compared, r.TooLong)},
		{Requests: r.Zero, Name: "retry_after_zero", Text: fmt.Sprintf("Retry-After is 0 in %d refusals", r.Zero)},
		{Requests: h.ShadowShown, Name: "shadow_ban_shows", Text: "responses of a shadow ban have a Retry-After or report remaining requests"},
		{Requests: n, Name: "headers_disagree", Text: strings.Join(differ, "; ")},
	}, func(f Fault) bool { return f.Requests == 0 })
}
