package judge_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edge/load/judge"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// began is the boundary of a window.
var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// one returns requests of a client, one per answer, each a tenth of a second after the previous one.
func one(answers ...judge.Answer) (l ledger) {
	for i, a := range answers {
		at := began + int64(i)*100_000
		a.Expected = 200
		l = append(l, sent{
			Request:    judge.Request{Sent: at, Done: at + 1000, Answer: a},
			Properties: judge.Properties{Addr: netip.MustParseAddr("10.0.0.1"), Method: "GET", Host: "example.com", Target: "/"},
		})
	}
	return l
}

// times repeats an answer n times.
func times(n int, a judge.Answer) []judge.Answer { return slices.Repeat([]judge.Answer{a}, n) }

// ok is the answer of the origin.
var ok = status(200)

// status returns an answer of the origin with a status.
func status(n int) judge.Answer { return judge.Answer{Status: n, Retry: judge.NoRetry, Remaining: -1} }

// refusal returns the answer of a rule.
func refusal(n, seconds int) judge.Answer {
	return judge.Answer{Status: n, Retry: seconds, Remaining: -1}
}

func judged(t *testing.T, l ledger, rules string, o judge.Options) *judge.Score {
	t.Helper()
	set, err := rulefile.Parse("rules.yaml", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	o.Rules = set
	s, err := judge.Judge(l, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The judge reports faults of a whole run.
func TestRuns(t *testing.T) {
	const five = "rules: [{id: five, characteristics: [ip], limits: [{threshold: 5, period: 10s}], mitigation_timeout: 20s"
	late := ok
	late.Failure, late.Status = judge.NoAnswer, 0
	prepared := refusal(503, 20)
	prepared.Prepared = true
	for _, test := range []struct {
		name, rules string
		answers     []judge.Answer
		want        []string
	}{
		{"correct", five + "}]", append(times(6, ok), times(10, refusal(429, 20))...), nil},
		{"nothing is refused", five + "}]", times(40, ok), []string{"refuses_nothing"}},
		{"rules for another host", "rules: [{id: a, match: {hosts: [other.example]}, characteristics: [ip], limits: [{threshold: 5, period: 10s}]}]", times(20, ok), []string{"no_rule_applies"}},
		{"refused by an unknown rule", "rules: [{id: a, match: {hosts: [other.example]}, characteristics: [ip], limits: [{threshold: 5, period: 10s}]}]",
			append(times(6, ok), times(30, refusal(429, 20))...), []string{"no_rule_applies", "refused_by_no_rule"}},
		{"refused with another status", five + "}]", append(times(2, ok), times(3, refusal(420, 20))...), []string{"refused_by_no_rule"}},
		{"an origin that answers 429 itself", five + "}]", times(5, status(429)), nil},
		{"rules that only log", five + ", action: log}]", times(20, ok), []string{"no_rule_applies"}},
		{"a rule answers 503", five + ", response: {status: 503}}]", append(times(6, ok), times(10, refusal(503, 20))...), nil},
		{"a rule answers 503 to innocents", five + ", response: {status: 503}}]", append(times(1, ok), times(4, refusal(503, 20))...), []string{"refuses_innocent"}},
		{"unavailable shard", five + ", on_failure: closed}]", times(10, refusal(503, 1)), nil},
		{"unavailable shard, of a rule that answers 503", five + ", response: {status: 503, body: no}, on_failure: closed}]", times(10, refusal(503, 1)), nil},
		{"a rule that answers 503, and fails closed, refuses innocents", five + ", response: {status: 503, body: no}, on_failure: closed}]", append(times(1, ok), times(4, prepared)...), []string{"refuses_innocent"}},
		{"503 of a rule that does not fail closed", five + "}]", times(10, refusal(503, 1)), []string{"refused_by_no_rule"}},
		{"origin down", five + "}]", times(4, status(502)), []string{"origin_fails"}},
		{"origin down, requests may have been counted", five + "}]", append(append(times(3, ok), times(3, status(504))...), ok, refusal(429, 20)), []string{"origin_fails"}},
		{"no answers: they may have been counted", five + "}]", append(append(times(3, ok), times(3, late)...), refusal(429, 20), refusal(429, 20)), nil},
		{"no answers: they may not have been counted", five + "}]", append(append(times(3, ok), times(9, late)...), ok, ok, ok, refusal(429, 20)), nil},
		{"Retry-After is too long", five + "}]", append(times(6, ok), times(10, refusal(429, 3600))...), []string{"retry_after_too_long"}},
		{"Retry-After is 0", five + "}]", append(times(6, ok), times(10, refusal(429, 0))...), []string{"retry_after_zero"}},
		{"on the deny list", five + "}]\ndeny: [10.0.0.0/24]\nallow: [10.0.0.0/8]", times(10, status(403)), nil},
		{"passes despite the deny list", five + "}]\ndeny: [10.0.0.0/24]", times(10, ok), []string{"denied_pass"}},
		{"refused despite the allow list", five + "}]\nallow: [10.0.0.1]", append(times(6, ok), times(9, refusal(429, 20))...), []string{"no_rule_applies", "clients_not_told_apart"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := one(test.answers...)
			if test.name == "an origin that answers 429 itself" {
				for i := range l {
					l[i].Answer.Expected = 429
				}
			}
			if s := judged(t, l, test.rules, judge.Options{Lag: 20 * time.Millisecond}); !slices.Equal(names(s), test.want) {
				t.Errorf("faults %v, want %v\n%s%+v", names(s), test.want, describe(s), s)
			}
		})
	}
}

// A limiter whose lag is within the bound is not reported, even if clients send several requests within that
// time.
func TestLagIsNoFault(t *testing.T) {
	for name, lag := range map[string]int64{"immediately": 0, "20 ms": 20_000, "80 ms": 80_000, "120 ms": 120_000, "300 ms": 300_000} {
		t.Run(name, func(t *testing.T) {
			l := &limiter{traffic: hurry, lag: func() int64 { return lag }}
			if s := l.score(t, ban, judge.Options{}); len(s.Faults) > 0 {
				t.Errorf("faults:\n%s", describe(s))
			}
		})
	}
}

// A refusal a little after the end of a mitigation is a fault, unless the clocks may differ by as much.
func TestSkew(t *testing.T) {
	const five = "rules: [{id: five, characteristics: [ip], limits: [{threshold: 5, period: 10s}], mitigation_timeout: 20s}]"
	l := one(append(times(6, ok), refusal(429, 1))...)
	end := l[5].Done + (20*time.Second + 20*time.Millisecond).Microseconds()
	l[6].Sent, l[6].Done = end+3000, end+4000
	for skew, want := range map[time.Duration]int{0: 1, 5 * time.Millisecond: 0} {
		s := judged(t, l, five, judge.Options{Lag: 20 * time.Millisecond, Skew: skew})
		if len(s.Faults) != want {
			t.Errorf("skew %v: %d faults, want %d\n%s", skew, len(s.Faults), want, describe(s))
		}
	}
}

// A client that shares its address with one that has exceeded a threshold has exceeded it with its own first
// request.
func TestReactionToSharedAddress(t *testing.T) {
	const five = "rules: [{id: five, characteristics: [ip], limits: [{threshold: 5, period: 10s}], mitigation_timeout: 20s}]"
	l := one(append(times(6, ok), times(4, refusal(429, 20))...)...)
	for i := range l[6:] {
		l[6+i].Client, l[6+i].Attack = 1, true
	}
	s := judged(t, l, five, judge.Options{})
	if len(s.Faults) > 0 || s.ClientsOver != 1 || s.AttackNotRefused > 0 {
		t.Errorf("%d clients exceeded a threshold, want 1, of which %d were not refused, want 0\n%s", s.ClientsOver, s.AttackNotRefused, describe(s))
	}
}

// The time to the first refusal is that of the first one after a client has exceeded a threshold, even if it was refused
// before.
func TestReactionAfterAnEarlierRefusal(t *testing.T) {
	const five = "rules: [{id: five, characteristics: [ip], limits: [{threshold: 5, period: 10s}], mitigation_timeout: 20s}]"
	l := one(append(append(times(2, refusal(429, 1)), times(9, ok)...), times(4, refusal(429, 20))...)...)
	s := judged(t, l, five, judge.Options{})
	if s.FirstRefusal.Keys != 1 || s.FirstRefusal.P50 <= 0 {
		t.Errorf("the first refusal came %+v ms after the request that exceeded the threshold, want one positive time", s.FirstRefusal)
	}
}

// Of the clients that should have been refused and never were, only attackers count as such.
func TestNeverRefused(t *testing.T) {
	const five = "rules: [{id: five, characteristics: [ip], limits: [{threshold: 5, period: 10s}], mitigation_timeout: 20s}]"
	for attack, want := range map[bool]uint64{true: 1, false: 0} {
		l := one(times(9, ok)...)
		for i := range l {
			l[i].Attack = attack
		}
		if s := judged(t, l, five, judge.Options{}); s.ClientsOver != 1 || s.AttackNotRefused != want {
			t.Errorf("attack %t: %d clients exceeded a threshold, want 1; %d attackers were not refused, want %d", attack, s.ClientsOver, s.AttackNotRefused, want)
		}
	}
}
