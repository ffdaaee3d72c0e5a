package decisions

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/figure"
	"github.com/edgelimit/edge/internal/complaint"
	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/rule"
	"github.com/edgelimit/edge/rule/describe"
)

// A Report describes a log.
type Report struct {
	From      time.Time          `json:"from"`
	To        time.Time          `json:"to"`
	Share     float64            `json:"share"` // of the keys
	Nodes     []NodeReport       `json:"nodes"`
	Rules     []RuleReport       `json:"rules"`
	Malformed uint64             `json:"malformed_lines"`
	Samples   []accesslog.Sample `json:"malformed_samples,omitempty"`
	Missing   uint64             `json:"missing_lines"`              // lines that the nodes could not write
	Unpaired  uint64             `json:"counts_without_decision"`    // counted, but not judged
	NotInLog  []string           `json:"rules_not_in_log,omitempty"` // given rules that the log does not have
}

// A NodeReport describes the log of a node.
type NodeReport struct {
	Node    string    `json:"node"`
	From    time.Time `json:"from"`
	Lines   uint64    `json:"lines"`    // about requests
	AheadMS float64   `json:"ahead_ms"` // greatest offset of its clock; times are corrected for offsets
	Rotated bool      `json:"rotated"`  // earlier lines are missing
}

// A RuleReport describes the decisions about a rule's keys.
type RuleReport struct {
	Rule        string   `json:"rule"`
	Limits      []string `json:"limits"`
	Keys        uint64   `json:"keys"`
	Decisions   uint64   `json:"decisions"` // number of judged decisions
	Refused     uint64   `json:"refused"`   // by nodes, even if the action only logs it
	KeysRefused uint64   `json:"keys_refused"`

	// Requests that are not judged, by reason.
	Other       uint64 `json:"decided_otherwise"` // for another key, or by hand
	Unavailable uint64 `json:"unavailable"`
	WarmUp      uint64 `json:"warm_up"` // may depend on requests in missing logs

	// Assumed is the number of refused requests that count as much as the rule says, because the answer is unknown.
	Assumed uint64 `json:"assumed"`

	// NotCompared reports whether the rule sheds, in the log or as given: such decisions depend on the client's
	// share, which is not in the log. If so, Accuracy and Change are nil.
	NotCompared bool `json:"not_compared,omitempty"`

	Accuracy *Accuracy `json:"accuracy,omitempty"`
	Change   *Change   `json:"change,omitempty"`
}

// An Accuracy compares decisions with those of an exact limiter.
type Accuracy struct {
	Exact          uint64  `json:"exact_refused"`    // by the exact limiter
	Estimate       uint64  `json:"estimate_refused"` // by the estimating limiter, without lag
	WronglyAllowed Wrong   `json:"wrongly_allowed"`
	WronglyRefused Wrong   `json:"wrongly_refused"`
	WrongPct       float64 `json:"wrong_pct"` // of the decisions
	KeysWrong      uint64  `json:"keys_wrong"`
}

// Wrong counts wrong decisions, by cause.
type Wrong struct {
	Requests uint64 `json:"requests"`
	Estimate uint64 `json:"estimate"`
	Lag      uint64 `json:"lag"`
}

// A Change describes what other limits would have decided without lag.
type Change struct {
	Limits       []string `json:"limits"` // empty if the rule was removed
	Refused      uint64   `json:"refused"`
	KeysRefused  uint64   `json:"keys_refused"`
	NewlyRefused uint64   `json:"newly_refused"`
	NewlyAllowed uint64   `json:"newly_allowed"`
}

// Accuracy returns a report that compares the decisions with those of an exact limiter.
func (l *Log) Accuracy() (*Report, error) { return l.replay(nil, true) }

// Overview returns a report of the contents of the log.
func (l *Log) Overview() (*Report, error) { return l.replay(nil, false) }

// Enforce returns a report of what rules would have decided.
func (l *Log) Enforce(rules *rule.Set) (*Report, error) { return l.replay(rules, false) }

// A tally gathers a RuleReport.
type tally struct {
	RuleReport
	texts   map[string]bool // of its limits
	with    *rule.Rule      // replaces the rule of the log; nil if removed
	from    int64           // when judging begins; before that, limiters only count what nodes counted
	longest time.Duration
}

// replay makes all decisions again, and returns a report of them.
func (l *Log) replay(with *rule.Set, accuracy bool) (*Report, error) {
	if len(l.events) == 0 {
		return nil, complaint.WithHint(errors.New("the log has no decisions"),
			"no key in the sample had a request: raise decision_log_share, the share of the keys in the sample")
	}
	slices.SortStableFunc(l.events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.t, b.t))
	})
	report := l.read
	report.Share = l.first.Share
	first, last, begin := int64(math.MaxInt64), int64(math.MinInt64), int64(math.MinInt64)
	for i := range l.events {
		first, last = min(first, l.events[i].t), max(last, l.events[i].t)
	}
	report.From, report.To = figure.TimeOf(first), figure.TimeOf(last)
	for _, name := range slices.Sorted(maps.Keys(l.nodes)) {
		n := *l.nodes[name]
		report.Nodes = append(report.Nodes, n)
		if n.Rotated {
			begin = max(begin, n.From.UnixMicro())
		}
	}
	tallies, err := l.tallies(with, accuracy, begin)
	if err != nil {
		return nil, err
	}
	for events := range figure.Runs(l.events, func(a, b *event) bool { return a.key == b.key }) {
		tallies[l.definitions[events[0].definition].ID].key(l, events)
	}
	for _, id := range slices.Sorted(maps.Keys(tallies)) {
		t := tallies[id]
		if t.Keys == 0 {
			continue
		}
		t.Limits = slices.Sorted(maps.Keys(t.texts))
		if t.NotCompared {
			t.Accuracy, t.Change = nil, nil
		}
		if a := t.Accuracy; a != nil {
			a.WrongPct = figure.Percent(a.WronglyAllowed.Requests+a.WronglyRefused.Requests, t.Decisions)
		}
		report.Rules = append(report.Rules, t.RuleReport)
	}
	if with != nil {
		for _, r := range with.Rules() {
			if tallies[r.ID] == nil {
				report.NotInLog = append(report.NotInLog, r.ID)
			}
		}
	}
	return &report, nil
}

// tallies returns a tally for each rule of the log. If earlier logs are missing, judging begins once
// requests before begin no longer matter.
func (l *Log) tallies(with *rule.Set, accuracy bool, begin int64) (map[string]*tally, error) {
	all := map[string]*tally{}
	for _, d := range l.definitions {
		t := all[d.ID]
		if t == nil {
			t = &tally{RuleReport: RuleReport{Rule: d.ID}, texts: map[string]bool{}, from: math.MinInt64}
			all[d.ID] = t
			if accuracy {
				t.Accuracy = new(Accuracy)
			}
			if with != nil {
				t.Change, t.with = new(Change), with.Rule(d.ID)
				if t.with != nil {
					t.Change.Limits = []string{limitsText(t.with)}
				}
			}
		}
		sheds := d.Action == rule.Shed || t.with != nil && t.with.Action == rule.Shed
		t.NotCompared = t.NotCompared || sheds && (accuracy || with != nil)
		for _, limit := range d.Limits {
			t.longest = max(t.longest, 2*limit.Period+d.MitigationTimeout)
		}
		if begin != math.MinInt64 {
			t.from = begin + t.longest.Microseconds()
		}
		switch r := t.with; {
		case r == nil:
		case describe.Counting(r) != d.counts:
			return nil, cannotReplay(r, "cannot replay rule %s, which counts requests other than those in the log: %q, "+
				"but the log has %q", r.ID, describe.Counting(r), d.counts)
		case r.Overrides != "":
			return nil, cannotReplay(r, "rule %s has overrides, and the log does not say which keys they are for", r.ID)
		}
	}
	if with != nil && !slices.ContainsFunc(with.Rules(), func(r *rule.Rule) bool { return all[r.ID] != nil }) {
		return nil, fmt.Errorf("none of the rules is in the log, which has %s",
			strings.Join(slices.Sorted(maps.Keys(all)), ", "))
	}
	return all, nil
}

// cannotReplay returns an error with the position of a rule.
func cannotReplay(r *rule.Rule, format string, args ...any) error {
	return complaint.WithHint(fmt.Errorf("%s:%d: %s", r.File, r.Line, fmt.Sprintf(format, args...)),
		"change only limits, mitigation_timeout, count_while_mitigated or action; for other changes replay access logs")
}

func limitsText(r *rule.Rule) string {
	text := strings.Join(prose.Texts(r.Limits, rule.Limit.String), ", ")
	if r.MitigationTimeout > 0 {
		text += "; for " + rule.FormatDuration(r.MitigationTimeout)
	}
	return text
}

// A limiter makes the decisions for one key.
type limiter struct {
	limit.KeyState
	exactly bool         // counts by the exact sliding log
	why     limit.Excess // started or extended the mitigation
}

// request handles a request under r, and reports whether it is refused. Unless decides is set, it only counts the
// request. t must not decrease from call to call.
func (l *limiter) request(r *rule.Rule, t int64, cost uint64, decides bool) (refused bool) {
	switch l.Rule {
	case r:
	case nil:
		l.KeyState = limit.NewKeyState(r, l.exactly)
	default:
		l.Replace(r, l.why, t)
	}
	_, refused = l.Until(t)
	refused = refused && decides
	if cost == 0 || refused && !r.CountWhileMitigated {
		return refused
	}
	if e, over := l.Add(t, cost); over && l.Mitigate(e, t) {
		l.why = e
	}
	return refused
}

// key makes the decisions about one key again.
func (t *tally) key(l *Log, events []event) {
	var exactly, estimate limiter
	var generation uint32
	var refused, would, wrong bool
	t.Keys++
	for i := range events {
		e := &events[i]
		d := l.definitions[e.definition]
		t.texts[d.limits] = true
		r := d.Rule
		if t.Change != nil {
			r = t.with
		}
		if i == 0 || e.generation > generation {
			exactly, estimate, generation = limiter{exactly: true}, limiter{}, e.generation
		}
		var byExact, byEstimate bool
		if r != nil {
			decides, cost := e.kind != decidedOtherwise && e.t >= t.from, e.cost
			if !decides && !e.counted {
				cost = 0
			}
			byExact = exactly.request(r, e.t, cost, decides)
			byEstimate = estimate.request(r, e.t, cost, decides)
		}
		switch {
		case e.kind == countOnly:
			continue
		case e.kind == decidedOtherwise:
			t.Other++
			continue
		case e.kind == unavailable:
			t.Unavailable++
			continue
		case e.t < t.from:
			t.WarmUp++
			continue
		}
		t.Decisions++
		if e.mitigated {
			t.Refused++
			if d.answers {
				t.Assumed++
			}
		}
		refused = refused || e.mitigated
		if t.Change != nil {
			would = would || byEstimate
			t.Change.add(e.mitigated, byEstimate)
		}
		if t.Accuracy != nil {
			wrong = t.Accuracy.add(e.mitigated, byEstimate, byExact) || wrong
		}
	}
	if refused {
		t.KeysRefused++
	}
	if would {
		t.Change.KeysRefused++
	}
	if wrong {
		t.Accuracy.KeysWrong++
	}
}

func (c *Change) add(byNode, byEstimate bool) {
	switch {
	case byEstimate && !byNode:
		c.NewlyRefused++
	case byNode && !byEstimate:
		c.NewlyAllowed++
	}
	if byEstimate {
		c.Refused++
	}
}

// add adds a decision, and reports whether it is wrong.
func (a *Accuracy) add(byNode, byEstimate, byExact bool) (wrong bool) {
	if byExact {
		a.Exact++
	}
	if byEstimate {
		a.Estimate++
	}
	if byNode == byExact {
		return false
	}
	w := &a.WronglyAllowed
	if byNode {
		w = &a.WronglyRefused
	}
	w.Requests++
	if byEstimate == byNode {
		w.Estimate++
	} else {
		w.Lag++
	}
	return true
}
