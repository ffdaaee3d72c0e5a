package judge

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/edgelimit/edge/pop/rule"
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

// classify sets the outcome of each request.
func (c *court) classify() {
	c.outcomes = make([]outcome, c.trace.Len())
	for i := range c.outcomes {
		q := c.trace.At(i)
		c.outcomes[i] = c.outcome(int32(i), &q.Answer)
	}
}

func (c *court) outcome(i int32, a *Answer) outcome {
	var rules []*rule.Rule
	for _, k := range c.book.keysOf(i) {
		rules = append(rules, c.book.keys[k].rule)
	}
	refusing := slices.ContainsFunc(rules, func(r *rule.Rule) bool { return refuses(r, a) })
	list := c.book.list[c.book.of[i]]
	switch {
	case a.Failure == NotSent:
		return unsent
	case a.Failure == Closed && refusing:
		return refused
	case a.Failure != Answered, slices.ContainsFunc(c.others, func(r *rule.Rule) bool { return refuses(r, a) }):
		return uncertain
	case list == rule.Denied && a.Status == http.StatusForbidden:
		return denied
	case list == rule.Denied:
		return denyIgnored
	case a.Status == http.StatusServiceUnavailable && a.Retry != NoRetry && !a.Prepared && slices.ContainsFunc(rules, failsClosed):
		return unavailable
	case refusing:
		return refused
	case a.Status == a.Expected:
		return passed
	case a.Status == http.StatusTooManyRequests, a.Retry != NoRetry && a.Status >= 400:
		return foreign
	case a.Status == http.StatusBadGateway, a.Status == http.StatusGatewayTimeout:
		return uncertain // the node did not reach the origin
	case a.Head && slices.ContainsFunc(rules, func(r *rule.Rule) bool { return r.Action == rule.ShadowBan && r.Response.Status == a.Status }):
		return uncertain
	}
	return passed
}

// failsClosed reports whether a rule refuses requests that it cannot count.
func failsClosed(r *rule.Rule) bool { return r.OnFailure == rule.FailClosed }

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

	// OtherTime counts refusals in which RateLimit or X-RateLimit-Reset disagrees with
	// Retry-After about when all exhausted limits are available again.
	OtherTime uint64 `json:"refused_with_other_time"`

	PassedRetryAfter uint64 `json:"passed_with_retry_after"`

	// TooLittle counts passed answers that report fewer remaining requests than would be left
	// if every request sent had been counted.
	TooLittle uint64 `json:"passed_with_too_little_remaining"`

	// TooMuch counts passed answers that report more remaining requests than their node's
	// counts allow.
	TooMuch uint64 `json:"passed_with_too_much_remaining"`

	// ShadowShown counts answers that reveal a shadow ban to the client.
	ShadowShown uint64 `json:"shadow_ban_shown"`
}

// Sum returns the sum of all counts.
func (h Headers) Sum() uint64 {
	return h.NoRetryAfter + h.Remaining + h.OtherTime + h.PassedRetryAfter + h.TooLittle + h.TooMuch + h.ShadowShown
}

// RetryAfter describes how accurate Retry-After is.
type RetryAfter struct {
	// Checked is the number of clients that came back after Retry-After. Untrue is the number
	// of those that were refused again.
	Checked uint64 `json:"checked"`
	Untrue  uint64 `json:"untrue"`

	// Compared is the number of refusals whose Retry-After was compared with the earliest and
	// latest possible end of the mitigation.
	Compared uint64 `json:"compared"`
	TooShort uint64 `json:"too_short"`
	TooLong  uint64 `json:"too_long"`
	Zero     uint64 `json:"zero"`
	Bad      uint64 `json:"not_a_number"`
}

// alone reports whether q was sent so late that traffic from before the trace no longer matters.
func (c *court) alone(q *Request) bool { return q.Sent-c.trace.At(0).Sent > 2*c.memory+c.lag }

// seen reports whether the client can recognize the refusal of its request.
func seen(b *book, i int32, a *Answer) bool {
	return a.Failure == Answered && slices.ContainsFunc(b.keysOf(i), func(k int32) bool {
		r := b.keys[k].rule
		return r.Action != rule.ShadowBan && refuses(r, a)
	})
}

// headers counts answers whose headers contradict their status.
func (c *court) headers(b *book, h *Headers, r *RetryAfter) {
	for i, o := range c.outcomes {
		q := c.trace.At(i)
		a := &q.Answer
		visible := o == refused && seen(b, int32(i), a)
		hidden := len(b.keysOf(int32(i))) > 0 && !slices.ContainsFunc(b.keysOf(int32(i)), func(k int32) bool { return b.keys[k].rule.Action != rule.ShadowBan })
		if (o == refused && !visible || o == passed && hidden) && a.Failure == Answered && (a.Retry != NoRetry || hidden && a.Remaining >= 0) {
			h.ShadowShown++
			continue
		}
		switch {
		case o == passed && a.Retry >= 0 && a.Status < 400:
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

// returned checks requests that were sent after Retry-After, unless a request with one of their
// keys passed since the refusal, or so shortly before it that it was not counted yet. wrong holds
// requests that were refused without a reason, and shed the keys of shedding rules that exceeded
// a threshold.
//
// If several rules with the same action refuse, Retry-After is that of the longest mitigation. It
// therefore applies to each key of the request, and a request must pass once the Retry-After of
// all its keys has elapsed. If the actions of the rules differ, the most severe one answers, and
// the others are unknown.
func (c *court) returned(b *book, wrong, shed map[int32]bool, r *RetryAfter) {
	promises := make([]promise, len(b.keys))
	for n := range promises {
		promises[n].lastPass = -c.lag
	}
	for i, o := range c.outcomes {
		q, keys := c.trace.At(i), b.keysOf(int32(i))
		if o == unsent {
			continue
		}
		// A shedding rule counts the refused request itself, so Retry-After promises nothing.
		if slices.ContainsFunc(keys, func(n int32) bool { return shed[n] }) {
			continue
		}
		if b.sheds {
			keys = slices.DeleteFunc(slices.Clone(keys), func(n int32) bool { return b.keys[n].rule.Action == rule.Shed })
		}
		due := len(keys) > 0 && !slices.ContainsFunc(keys, func(n int32) bool {
			p := &promises[n]
			return p.until == 0 || q.Sent < p.until+returnMargin || p.sent < p.lastPass+c.lag
		})
		visible := o == refused && seen(b, int32(i), &q.Answer)
		switch {
		case due && o == passed:
			r.Checked++
		case due && visible && !wrong[int32(i)]:
			r.Checked++
			r.Untrue++
		}
		alike := !slices.ContainsFunc(keys, func(n int32) bool { return b.keys[n].rule.Action != b.keys[keys[0]].rule.Action })
		for _, n := range keys {
			switch p := &promises[n]; {
			case o != refused:
				p.lastPass = max(p.lastPass, q.Done)
			case visible && q.Answer.Retry > 0 && alike:
				p.sent, p.until = q.Sent, q.Done+int64(q.Answer.Retry)*1e6
			}
		}
	}
}

// String describes the contradictions. bad is the number of refusals with an invalid Retry-After.
func (h Headers) String(bad uint64) string {
	var parts []string
	for _, c := range []struct {
		answers uint64
		what    string
	}{
		{h.NoRetryAfter, "refusals have no Retry-After"},
		{bad, "refusals have a Retry-After that is not a number of seconds"},
		{h.Remaining, "refusals report that more requests are allowed"},
		{h.OtherTime, "refusals have a time in RateLimit or X-RateLimit-Reset that differs from Retry-After"},
		{h.PassedRetryAfter, "passed answers have a Retry-After"},
		{h.TooLittle, "passed answers report fewer remaining requests than those sent leave"},
		{h.TooMuch, "passed answers report more remaining requests than their node's counts leave"},
	} {
		if c.answers > 0 {
			parts = append(parts, fmt.Sprint(c.answers)+" "+c.what)
		}
	}
	return strings.Join(parts, "; ")
}
