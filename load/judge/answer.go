package judge

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edge/rule"
)

// An outcome is the effect of the rules on a request.
type outcome uint8

const (
	passed      outcome = iota
	refused             // by a rule that matches it
	uncertain           // it may or may not have been counted
	unsent              // it did not reach the target
	unavailable         // refused because its shard is unavailable
	foreign             // refused, but no rule can refuse it
	denied              // by the deny list
	denyIgnored         // it passed despite being on the deny list
)

func (j *judgment) outcomeOf(q *request) outcome {
	a, s := &q.Answer, j.keys.senders[q.i]
	some := func(is func(r *rule.Rule) bool) bool {
		return slices.ContainsFunc(s.keys, func(k *key) bool { return is(k.rule) })
	}
	refusing := some(func(r *rule.Rule) bool { return refuses(r, a) })
	switch {
	case a.Failure == NotSent:
		return unsent
	case a.Failure == Closed && refusing:
		return refused
	case a.Failure != Answered, slices.ContainsFunc(j.others, func(r *rule.Rule) bool { return refuses(r, a) }):
		return uncertain
	case s.list == rule.Denied && a.Status == http.StatusForbidden:
		return denied
	case s.list == rule.Denied:
		return denyIgnored
	case a.Status == http.StatusServiceUnavailable && a.Retry != NoRetry && !a.Prepared && some(func(r *rule.Rule) bool { return r.OnFailure == rule.FailClosed }):
		return unavailable
	case refusing:
		return refused
	case a.Status == a.Expected:
		return passed
	case a.Status == http.StatusTooManyRequests, a.Retry != NoRetry && a.Status >= 400:
		return foreign
	case q.originFailed():
		return uncertain
	case a.Head && some(func(r *rule.Rule) bool { return hides(r) && r.Response.Status == a.Status }):
		return uncertain
	}
	return passed
}

// originFailed reports whether the node failed to reach the origin.
func (q *request) originFailed() bool {
	return q.Answer.Status == http.StatusBadGateway || q.Answer.Status == http.StatusGatewayTimeout
}

// actions say how clients see the answers to mitigated requests, by the action of the rule.
var actions = [256]struct{ judged, refuses, hides, closes bool }{
	rule.Log:       {judged: true},
	rule.Shed:      {judged: true, refuses: true},
	rule.ShadowBan: {judged: true, refuses: true, hides: true}, // like the origin's, but for the body
	rule.Block:     {judged: true, refuses: true},
	rule.Close:     {judged: true, refuses: true, closes: true},
}

func acts(r *rule.Rule) bool  { return actions[r.Action].refuses }
func hides(r *rule.Rule) bool { return actions[r.Action].hides }

// refuses reports whether an answer may be a rule's refusal.
func refuses(r *rule.Rule, a *Answer) bool {
	switch {
	case actions[r.Action].closes && a.Failure == Closed:
		return true
	case !acts(r) || a.Failure != Answered || a.Status != r.Response.Status:
		return false
	case hides(r):
		return a.Prepared
	}
	// An origin may also answer 429, but without Retry-After.
	return a.Prepared || a.Retry != NoRetry || a.Status == http.StatusTooManyRequests && a.Status != a.Expected
}

// Headers counts answers whose headers contradict their status.
type Headers struct {
	NoRetryAfter uint64 `json:"refused_without_retry_after"`
	Remaining    uint64 `json:"refused_with_remaining"` // they claim that more requests are allowed

	// OtherTime counts refusals in which RateLimit or X-RateLimit-Reset disagrees with Retry-After about when all
	// exhausted limits are available again.
	OtherTime uint64 `json:"refused_with_other_time"`

	PassedRetryAfter uint64 `json:"passed_with_retry_after"`

	// TooLittle counts passed responses that report fewer remaining requests than would be left if every request sent
	// had been counted.
	TooLittle uint64 `json:"passed_with_too_little_remaining"`

	// TooMuch counts passed responses that report more remaining requests than their node's counts allow.
	TooMuch uint64 `json:"passed_with_too_much_remaining"`

	// ShadowShown counts answers that reveal a shadow ban to the client.
	ShadowShown uint64 `json:"shadow_ban_shown"`
}

// RetryAfter describes how accurate Retry-After is.
type RetryAfter struct {
	// Checked is the number of clients that came back after Retry-After. Untrue is the number of those that were
	// refused again.
	Checked uint64 `json:"checked"`
	Untrue  uint64 `json:"untrue"`

	// Compared is the number of refusals whose Retry-After was compared with the earliest and latest possible end of
	// the mitigation.
	Compared uint64 `json:"compared"`
	TooShort uint64 `json:"too_short"`
	TooLong  uint64 `json:"too_long"`
	Zero     uint64 `json:"zero"`
	Bad      uint64 `json:"not_a_number"`
}

// policyItem matches a limit in RateLimit-Policy: the rule's ID, which a period may follow, the threshold and the period.
var policyItem = regexp.MustCompile(`"([^"/]*)(?:/\w+)?";q=(\d+);w=(\d+)`)

// otherLimit returns the first limit that the target says it has and the rules lack, or "".
func (j *judgment) otherLimit() string {
	const most = 999_999_999_999_999 // the greatest integer of a structured field
	for _, item := range policyItem.FindAllStringSubmatch(strings.Join(j.o.Policies, " "), -1) {
		limit := func(l rule.Limit) bool {
			return fmt.Sprintf("%d %.0f", min(l.Threshold, most), l.Period.Seconds()) == item[2]+" "+item[3]
		}
		if !slices.ContainsFunc(j.o.Rules.Rules(), func(r *rule.Rule) bool {
			return r.ID == item[1] && (r.Overrides != "" || slices.ContainsFunc(r.Limits, limit))
		}) {
			return item[0]
		}
	}
	return ""
}

// seen reports whether the client can recognize the refusal of its request by one of these keys.
func seen(keys []*key, q *request) bool {
	return q.Answer.Failure == Answered && slices.ContainsFunc(keys, func(k *key) bool {
		return !hides(k.rule) && refuses(k.rule, &q.Answer)
	})
}

// checkHeaders counts a response whose headers contradict its status.
func (b *bounds) checkHeaders(keys []*key, q *request) {
	a, h, r := &q.Answer, &b.headers, &b.retry
	visible := q.outcome == refused && seen(keys, q)
	hidden := len(keys) > 0 && !slices.ContainsFunc(keys, func(k *key) bool { return !hides(k.rule) })
	unseen := q.outcome == refused && !visible || q.outcome == passed && hidden
	if unseen && a.Failure == Answered && (a.Retry != NoRetry || hidden && a.Remaining >= 0) {
		h.ShadowShown++
		return
	}
	addIf(&h.PassedRetryAfter, q.outcome == passed && a.Retry >= 0 && a.Status < 400)
	addIf(&h.NoRetryAfter, visible && a.Retry == NoRetry)
	addIf(&r.Bad, visible && a.Retry == BadRetry)
	addIf(&r.Zero, visible && a.Retry == 0)
	addIf(&h.Remaining, visible && a.Remaining > 0)
	addIf(&h.OtherTime, visible && a.OtherTime)
}

// returnMargin is how long after Retry-After requests are first checked, in microseconds.
const returnMargin = 50_000

// checkPromises compares a response with the last Retry-After for each of its keys, which is that of the longest
// mitigation if several rules with the same action refuse. A client that returns after all of them must pass, unless a
// request with one of the keys passed since the refusal, or so shortly before it that it was not counted yet. If the
// client passes more than a second earlier, at a node that still had to refuse it, Retry-After was overstated.
// justified is whether a rule may have refused the request.
func (b *bounds) checkPromises(keys []*key, q *request, justified bool) {
	var states []*state
	due, visible := true, q.outcome == refused && seen(keys, q)
	for _, k := range keys {
		switch s := b.states[k.n]; {
		case s == nil:
		case !k.sheds():
			p := s.promise
			due = due && !countsRefused(s.rule) && // else the refused request itself may start or extend a mitigation
				p != nil && q.Sent >= p.Done+p.retry()+returnMargin && p.Sent >= s.passed+b.j.lag
			states = append(states, s)
		case s.may > 0: // the rule counts the refused request itself
			due, visible = false, false
		}
	}
	if due && len(states) > 0 && (q.outcome == passed || visible && justified) {
		b.retry.Checked++
		addIf(&b.retry.Untrue, visible)
	}
	overstated := false
	for _, s := range states {
		p := s.promise
		switch {
		case visible && q.Answer.Retry > 0 && b.alike(q) && !capped(keys, q):
			s.promise = q
		case q.outcome == passed && p != nil && b.k.senders[p.i] == b.k.senders[q.i] && q.Sent > p.Done:
			named := len(b.j.trace.Nodes()) > 1 // else there may be several nodes behind one name
			if q.Done+2*b.j.skew < p.Sent+p.retry()-1e6 && (named && q.Node == p.Node || q.Sent > p.Done+b.j.lag) {
				overstated, s.promise = true, nil
			}
		}
	}
	addIf(&b.overstated, overstated)
}

// capped reports whether Retry-After may be shorter than the mitigation, because a rule bounds it.
func capped(keys []*key, q *request) bool {
	return slices.ContainsFunc(keys, func(k *key) bool {
		return k.rule.Response.MaxRetryAfter > 0 && time.Duration(q.Answer.Retry)*time.Second >= k.rule.Response.MaxRetryAfter
	})
}

// retry returns Retry-After in microseconds.
func (q *request) retry() int64 { return int64(q.Answer.Retry) * 1e6 }
