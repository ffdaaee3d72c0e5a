package judge

import (
	"net/http"
	"slices"
	"time"

	"github.com/edgelimit/edge/rule"
)

// An outcome is what the rules did with a request.
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

// outcomeOf returns the outcome of a request.
func (j *judgment) outcomeOf(q *request) outcome {
	a, s := &q.Answer, j.keys.senderOf(q)
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
	case a.Head && some(func(r *rule.Rule) bool { return r.Action == rule.ShadowBan && r.Response.Status == a.Status }):
		return uncertain
	}
	return passed
}

// originFailed reports whether the node failed to reach the origin.
func (q *request) originFailed() bool {
	return q.Answer.Status == http.StatusBadGateway || q.Answer.Status == http.StatusGatewayTimeout
}

// refuses reports whether an answer may be a rule's refusal.
func refuses(r *rule.Rule, a *Answer) bool {
	switch {
	case r.Action == rule.Close && a.Failure == Closed:
		return true
	case r.Action == rule.Log || a.Failure != Answered || a.Status != r.Response.Status:
		return false
	case r.Action == rule.ShadowBan:
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

// alone reports whether q was sent so late that traffic from before the trace no longer matters.
func (j *judgment) alone(q *request) bool { return q.Sent-j.requests[0].Sent > 2*j.memory+j.lag }

// seen reports whether the client can recognize the refusal of its request by one of these keys.
func seen(keys []*key, q *request) bool {
	return q.Answer.Failure == Answered && slices.ContainsFunc(keys, func(k *key) bool {
		return k.rule.Action != rule.ShadowBan && refuses(k.rule, &q.Answer)
	})
}

// headers counts answers whose headers contradict their status.
func (j *judgment) headers(k *keying, h *Headers, r *RetryAfter) {
	for i := range j.requests {
		q := &j.requests[i]
		a, keys := &q.Answer, k.of(q)
		visible := q.outcome == refused && seen(keys, q)
		hidden := len(keys) > 0 && !slices.ContainsFunc(keys, func(k *key) bool { return k.rule.Action != rule.ShadowBan })
		if (q.outcome == refused && !visible || q.outcome == passed && hidden) && a.Failure == Answered && (a.Retry != NoRetry || hidden && a.Remaining >= 0) {
			h.ShadowShown++
			continue
		}
		switch {
		case q.outcome == passed && a.Retry >= 0 && a.Status < 400:
			h.PassedRetryAfter++
		case !visible:
		case a.Retry == NoRetry:
			h.NoRetryAfter++
		case a.Retry == BadRetry:
			r.Bad++
		case a.Retry == 0:
			r.Zero++
		}
		if visible && a.Remaining > 0 {
			h.Remaining++
		}
		if visible && a.OtherTime {
			h.OtherTime++
		}
	}
}

// A promise is the last Retry-After for a key.
type promise struct {
	sent     int64 // when the refused request was sent
	until    int64 // when the client may retry; 0 before any refusal
	lastPass int64 // when the key's last request that was not refused was answered
}

// returnMargin is how long after Retry-After requests are first checked, in microseconds.
const returnMargin = 50_000

// returned checks requests that were sent after Retry-After, unless a request with one of their keys passed since the
// refusal, or so shortly before it that it was not counted yet. wrong holds requests that were refused without a
// reason, and shed the keys of shedding rules that exceeded a threshold.
//
// If several rules with the same action refuse, Retry-After is that of the longest mitigation. It therefore applies to
// each key of the request, and a request must pass once the Retry-After of all its keys has elapsed. If the actions of
// the rules differ, the most severe one answers, and the others are unknown.
func (j *judgment) returned(k *keying, wrong map[*request]bool, shed map[*key]bool, r *RetryAfter) {
	promises := make([]promise, len(k.keys))
	for n := range promises {
		promises[n].lastPass = -j.lag
	}
	for _, q := range j.sent {
		keys := k.of(q)
		// A shedding rule counts the refused request itself, so Retry-After promises nothing.
		if slices.ContainsFunc(keys, func(k *key) bool { return shed[k] }) {
			continue
		}
		keys = without(keys, (*key).sheds)
		due := len(keys) > 0 && !slices.ContainsFunc(keys, func(k *key) bool {
			p := &promises[k.n]
			return p.until == 0 || q.Sent < p.until+returnMargin || p.sent < p.lastPass+j.lag
		})
		visible := q.outcome == refused && seen(k.of(q), q)
		switch {
		case due && q.outcome == passed:
			r.Checked++
		case due && visible && !wrong[q]:
			r.Checked++
			r.Untrue++
		}
		alike := !slices.ContainsFunc(keys, func(k *key) bool { return k.rule.Action != keys[0].rule.Action })
		for _, k := range keys {
			switch p := &promises[k.n]; {
			case q.outcome != refused:
				p.lastPass = max(p.lastPass, q.Done)
			case visible && q.Answer.Retry > 0 && alike && !capped(keys, q):
				p.sent, p.until = q.Sent, q.Done+int64(q.Answer.Retry)*1e6
			}
		}
	}
}

// capped reports whether Retry-After may be shorter than the mitigation, because a rule bounds it.
func capped(keys []*key, q *request) bool {
	return slices.ContainsFunc(keys, func(k *key) bool {
		return k.rule.Response.MaxRetryAfter > 0 && time.Duration(q.Answer.Retry)*time.Second >= k.rule.Response.MaxRetryAfter
	})
}

// overstated returns the number of refusals that are followed by a request with the same keys that passes, although by
// Retry-After, which is rounded up to a second, its node still had to refuse it.
func (j *judgment) overstated(k *keying) (n uint64) {
	least := func(q *request) int64 { return q.Sent + int64(q.Answer.Retry-1)*1e6 }
	refusals := map[*sender]*request{} // the one that promises the latest end
	named := len(j.trace.Nodes()) > 1  // else there may be several nodes behind one name
	for _, q := range j.sent {
		s := k.senderOf(q)
		before := refusals[s]
		switch {
		case q.outcome == refused && q.Answer.Retry > 0 && seen(s.keys, q) && !slices.ContainsFunc(s.keys, (*key).sheds):
			if before == nil || least(q) > least(before) {
				refusals[s] = q
			}
		case q.outcome == passed && before != nil && q.Done+2*j.skew < least(before) && q.Sent > before.Done &&
			(named && q.Node == before.Node || q.Sent > before.Done+j.lag):
			n++
			delete(refusals, s)
		}
	}
	return n
}
