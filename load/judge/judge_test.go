package judge_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/load/judge"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// The rules allow 10 requests in 10 s. Mitigations last as long as necessary, or at least 6 s.
const (
	throttle = "{id: all, characteristics: [ip], limits: [{threshold: 10, period: 10s}]}"
	ban      = "{id: all, characteristics: [ip], limits: [{threshold: 10, period: 10s}], mitigation_timeout: 6s}"
	guesses  = "{id: all, count: {statuses: [401]}, characteristics: [ip], limits: [{threshold: 10, period: 10s}]}"
	apiKeys  = "{id: all, characteristics: [{header: x-api-key, missing: skip}], limits: [{threshold: 10, period: 10s}]}"
	costly   = "{id: all, count: {cost: 3}, characteristics: [ip], limits: [{threshold: 31, period: 10s}], mitigation_timeout: 6s}"
	extended = "{id: all, characteristics: [ip], limits: [{threshold: 10, period: 10s}], mitigation_timeout: 6s, count_while_mitigated: true}"
	capped   = "{id: all, characteristics: [ip], limits: [{threshold: 10, period: 10s}], mitigation_timeout: 6s, response: {max_retry_after: 3s}}"
	shadow   = "{id: all, characteristics: [ip], limits: [{threshold: 10, period: 10s}], action: shadow_ban, response: {body: ok}}"
)

// names returns the faults of a score.
func names(s *judge.Score) (list []string) {
	for _, f := range s.Faults {
		list = append(list, f.Name)
	}
	return list
}

func apiKey(r *sent) string {
	if len(r.Header) == 0 {
		return "none"
	}
	return r.Header[0][1]
}

// onlyKeyed drops requests that the rule skips.
func onlyKeyed(r *sent) string {
	if len(r.Header) == 0 {
		return ""
	}
	return apiKey(r)
}

// countThrice counts as the rule costly does.
func countThrice(_ *sent, refused bool) int {
	if refused {
		return 0
	}
	return 3
}

func countAll(*sent, bool) int { return 1 }

func countGuesses(r *sent, refused bool) int {
	if refused || r.Answer.Expected != 401 {
		return 0
	}
	return 1
}

// once counts a passed request n times if some returns true, else once.
func once(some func() bool, n int) func(*sent, bool) int {
	return func(_ *sent, refused bool) int {
		switch {
		case refused:
			return 0
		case some():
			return n
		}
		return 1
	}
}

func oneOf(n int) func() bool {
	random := rand.New(rand.NewPCG(3, 4))
	return func() bool { return random.IntN(n) == 0 }
}

// pair makes two clients share a key.
func pair(a, b uint64) func(r *sent) string {
	return func(r *sent) string {
		if r.Client == a || r.Client == b {
			return "both"
		}
		return network(r.Addr)
	}
}

// The judge names the planted mistake, and no other.
func TestPlantedMistakes(t *testing.T) {
	some, others := oneOf(100), oneOf(100)
	for _, test := range []struct {
		name  string
		rules string
		*limiter
		want string
	}{
		{"fixed windows", throttle, &limiter{weigh: func(_, _, _ int64) int64 { return 0 }}, "fixed_window"},
		{"IPv6 by /128, not by /64", throttle, &limiter{key: func(r *sent) string { return r.Addr.String() }}, "client_prefix"},
		{"threshold +1", throttle, &limiter{more: 1}, "threshold_high"},
		{"threshold +2", throttle, &limiter{more: 2}, "threshold_high"},
		{"threshold −1", throttle, &limiter{more: -1}, "threshold_low"},
		{"threshold −2", throttle, &limiter{more: -2}, "threshold_low"},
		{"exact, threshold +1", ban, &limiter{exact: true, more: 1}, "threshold_high"},
		{"exact, threshold −1", throttle, &limiter{exact: true, more: -1}, "threshold_low"},
		{"weight reversed", throttle, &limiter{weigh: func(prev, _, elapsed int64) int64 { return prev * elapsed }}, "weight_reversed"},
		{"previous window whole", throttle, &limiter{weigh: func(prev, _, _ int64) int64 { return prev * 10_000_000 }}, "previous_window_whole"},
		{"nodes count separately", throttle, &limiter{apart: true}, "nodes_count_separately"},
		{"increments are repeated", throttle, &limiter{counts: once(oneOf(10), 2)}, "counts_twice"},
		{"mitigated requests are counted", throttle, &limiter{counts: func(*sent, bool) int { return 1 }}, "counts_refused_requests"},
		{"mitigated requests are not counted", extended, &limiter{}, "counts_only_what_passes"},
		{"the cost is ignored", costly, &limiter{}, "ignores_cost"},
		{"nodes count separately, with a cost", costly, &limiter{apart: true, counts: countThrice}, "nodes_count_separately"},
		{"counts double", throttle, &limiter{before: after(35, doubles)}, "counts_twice"},
		{"a lifted mitigation returns", ban, &limiter{lift: 31_000_000}, "mitigation_returns"},
		{"timeout ignored", ban, &limiter{timeout: -6_000_000}, "mitigation_timeout_ignored"},
		{"mitigations too long", ban, &limiter{timeout: 6_000_000}, "mitigation_too_long"},
		{"mitigations too short", ban, &limiter{timeout: -2_500_000}, "mitigation_too_short"},
		{"mitigations a second too short", ban, &limiter{timeout: -1_000_000}, "mitigation_too_short"},
		{"a node without mitigations", ban, &limiter{passes: func(r *sent) bool { return r.Node == 1 }}, "node_ignores_mitigations"},
		{"Retry-After 30 s too long", ban, &limiter{answer: retry(func(n int) int { return n + 30 })}, "retry_after_too_long"},
		{"Retry-After 2 s too short", ban, &limiter{answer: retry(func(n int) int { return max(1, n-2) })}, "retry_after_too_short"},
		{"Retry-After 0", ban, &limiter{answer: retry(func(int) int { return 0 })}, "retry_after_zero"},
		{"no Retry-After", ban, &limiter{answer: retry(func(int) int { return judge.NoRetry })}, "headers_disagree"},
		{"Retry-After is not a number", ban, &limiter{answer: retry(func(int) int { return judge.BadRetry })}, "headers_disagree"},
		{"reports less remaining", ban, &limiter{answer: func(a *judge.Answer) { a.Remaining /= 3 }}, "headers_disagree"},
		{"reports more remaining", ban, &limiter{answer: func(a *judge.Answer) { a.Remaining = min(10, a.Remaining+3) }}, "headers_disagree"},
		{"reports more than the threshold remaining", ban, &limiter{answer: func(a *judge.Answer) { a.Remaining += 10 }}, "headers_disagree"},
		{"statuses ignored", guesses, &limiter{}, "ignores_statuses"},
		{"a missing header is shared", apiKeys, &limiter{key: apiKey}, "shares_missing_value"},
		{"all clients are one", throttle, &limiter{key: func(r *sent) string { return "one" }}, "clients_not_told_apart"},
		{"1% refused at random", throttle, &limiter{refuses: func(*sent) bool { return some() }}, "refuses_at_random"},
		{"every hundredth innocent", throttle, &limiter{refuses: func(r *sent) bool { return !r.Attack && others() }}, "refuses_at_random"},
		{"an innocent client", throttle, &limiter{refuses: func(r *sent) bool { return r.Client == 2 }}, "refuses_innocent"},
		{"a shadow ban with Retry-After", shadow, &limiter{unseen: true, answer: func(a *judge.Answer) {
			if a.Remaining = -1; a.Prepared {
				a.Retry = 3
			}
		}}, "shadow_ban_shows"},
		{"a shadow ban that reports remaining requests", shadow, &limiter{unseen: true}, "shadow_ban_shows"},
		{"a client that is never refused", throttle, &limiter{passes: func(r *sent) bool { return r.Client == 44 }}, "client_never_refused"},
		{"a token bucket", throttle, &limiter{bucket: 10}, "token_bucket"},
		{"a token bucket with a burst of 5", throttle, &limiter{bucket: 5}, "token_bucket"},
		// The bound on the lag hides these in each individual request.
		{"threshold +1, hidden by the lag", ban, &limiter{more: 1, traffic: hurry}, "threshold_high"},
		{"threshold +2, hidden by the lag", throttle, &limiter{more: 2, traffic: hurry}, "threshold_high"},
		{"threshold −1, hidden by the lag", ban, &limiter{more: -1, traffic: hurry}, "threshold_low"},
		{"threshold +1, 20 ms late", ban, &limiter{more: 1, traffic: hurry, lag: func() int64 { return 20_000 }}, "threshold_high"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			o := judge.Options{Lag: 50 * time.Millisecond}
			if test.traffic == hurry {
				o.Lag = 0 // by default half a second
			}
			s := test.score(t, test.rules, o)
			got := names(s)
			if test.lift > 0 { // some clients were not refused before the lift, and others are not refused after it
				got = slices.DeleteFunc(got, func(name string) bool { return name == "leaks" || name == "mitigation_too_short" })
			}
			if !slices.Equal(got, []string{test.want}) {
				t.Errorf("faults %v, want %s\n%s", got, test.want, describe(s))
			}
		})
	}
}

// A deaf node is named although fixed windows would explain the same leaks: the run ends before a client that
// exceeded the threshold because of the previous window exceeds it again within its own.
func TestDeafNodeNearWindowEdge(t *testing.T) {
	const traffic = "{duration: 14s, start: 2026-01-01T00:00:05Z, components: [{name: all, steady: {clients: 20, rate: 16/10s, poisson: false}, attack: true}]}"
	l := limiter{passes: func(r *sent) bool { return r.Node == 1 }, traffic: traffic}
	s := l.score(t, strings.Replace(ban, "6s", "60s", 1), judge.Options{Lag: 5 * time.Second})
	if !slices.Equal(names(s), []string{"node_ignores_mitigations"}) {
		t.Errorf("faults %v\n%s", names(s), describe(s))
	}
}

// after returns an event that happens once, some seconds after the first request.
func after(seconds int64, happens func(l *limiter)) func(*limiter, *sent) {
	done := false
	return func(l *limiter, r *sent) {
		if !done && r.Sent > l.at+seconds*1e6 {
			done = true
			happens(l)
		}
	}
}

func doubles(l *limiter) {
	for _, counts := range l.windows {
		for w := range counts {
			counts[w] *= 2
		}
	}
}

// Mistakes that the judge does not know are named by their effect.
func TestUnknownMistakes(t *testing.T) {
	refusals := 0
	for _, test := range []struct {
		name  string
		rules string
		*limiter
		want []string // any of these
	}{
		{"a mitigation clears the counts", throttle, &limiter{before: func(l *limiter, r *sent) {
			if key := network(r.Addr); l.spans[key] != nil && l.spans[key][1]-l.spans[key][0] > 2e6 {
				l.spans[key][1] = l.spans[key][0] + 2e6
				clear(l.windows[key])
			}
		}}, []string{"mitigation_too_short"}},
		{"refused requests extend the mitigation", ban, &limiter{before: func(l *limiter, r *sent) {
			if s := l.spans[network(r.Addr)]; s != nil && s[0] <= r.Sent && r.Sent < s[1] {
				s[1] = max(s[1], r.Sent+6e6)
			}
		}}, []string{"mitigation_too_long", "counts_refused_requests"}},
		{"every tenth request passes while the others are refused", ban, &limiter{passes: func(r *sent) bool { refusals++; return refusals%10 == 0 }}, []string{"mitigation_returns"}},
		{"one in ten requests is counted, as ten", throttle, &limiter{counts: once(oneOf(10), 10)}, []string{"leaks", "refuses_wrongly", "refuses_innocent", "counts_twice"}},
		{"the threshold is doubled halfway", throttle, &limiter{before: after(25, func(l *limiter) { l.more = 10 })}, []string{"leaks"}},
		{"the threshold is halved halfway", throttle, &limiter{before: after(25, func(l *limiter) { l.more = -5 })}, []string{"refuses_innocent", "refuses_wrongly", "counts_twice"}},
		{"all counts are lost halfway", throttle, &limiter{before: after(25, func(l *limiter) { clear(l.windows) })}, []string{"leaks"}},
		{"API keys are truncated to one character", apiKeys, &limiter{key: func(r *sent) string { return onlyKeyed(r)[:min(1, len(onlyKeyed(r)))] }}, []string{"refuses_innocent", "refuses_innocent", "clients_not_told_apart"}},
		{"failed requests are not counted", throttle, &limiter{counts: func(r *sent, refused bool) int {
			if refused || r.Answer.Expected != 200 {
				return 0
			}
			return 1
		}}, []string{"leaks"}},
		{"a period of 20 s", throttle, &limiter{before: func(l *limiter, _ *sent) { l.period = 20e6 }}, []string{"refuses_wrongly", "mitigation_too_long", "refuses_innocent"}},
		{"nodes refuse 700 ms late", ban, &limiter{lag: func() int64 { return 700_000 }, traffic: hurry}, []string{"leaks"}},
		{"two rules share counts", throttle + ", {id: more, characteristics: [ip], limits: [{threshold: 16, period: 10s}]}", &limiter{counts: func(_ *sent, refused bool) int {
			if refused {
				return 0
			}
			return 2
		}}, []string{"counts_twice"}},
		{"the window before the previous", throttle, &limiter{weigh: func(_, older, elapsed int64) int64 { return older * (10_000_000 - elapsed) }}, []string{"leaks", "mitigation_too_short"}},
		{"windows off by a second", throttle, &limiter{shift: 1e6}, []string{"leaks", "refuses_wrongly"}},
		{"two clients mixed up", throttle, &limiter{key: pair(2, 44)}, []string{"refuses_innocent"}},
		{"Retry-After is always 1", ban, &limiter{answer: retry(func(int) int { return 1 })}, []string{"retry_after_too_short"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := test.score(t, test.rules, judge.Options{})
			if !slices.ContainsFunc(names(s), func(name string) bool { return slices.Contains(test.want, name) }) {
				t.Errorf("faults %v, want one of %v\n%s", names(s), test.want, describe(s))
			}
		})
	}
}

func retry(f func(int) int) func(a *judge.Answer) {
	return func(a *judge.Answer) {
		if a.Retry > 0 {
			a.Retry = f(a.Retry)
		}
	}
}

func describe(s *judge.Score) string {
	var b strings.Builder
	for _, f := range s.Faults {
		fmt.Fprintf(&b, "%s: %s (%d requests, %v)\n", f.Name, f.Text, f.Requests, f.Clients)
	}
	return b.String()
}

// Keys with overrides are judged by their own limits.
func TestOverridesAreJudged(t *testing.T) {
	dir := t.TempDir()
	plans, thresholds := "ip,10s\n", map[string]int64{}
	for _, r := range attack(t, "") {
		client := network(r.Addr)
		if _, known := thresholds[client]; known || r.Client%8 >= 4 {
			continue
		}
		thresholds[client] = []int64{20, 5, 1e6, 10}[r.Client%4]
		plans += fmt.Sprintf("%s,%s\n", client, []string{"20", "5", "1000000", "10"}[r.Client%4])
	}
	for name, text := range map[string]string{"rules.yaml": "rules: [{id: all, characteristics: [ip], limits: [{threshold: 10, period: 10s}], overrides: plans.csv}]", "plans.csv": plans} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set, err := rulefile.Load(filepath.Join(dir, "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		ignores bool
		want    []string
	}{{"correct", false, nil}, {"overrides are ignored", true, []string{"ignores_overrides"}}} {
		requests := attack(t, "")
		l := &limiter{threshold: 10, period: 10_000_000, answer: func(a *judge.Answer) { a.Remaining = -1 }}
		if !test.ignores {
			l.before = func(l *limiter, r *sent) {
				l.more = 0
				if n, ok := thresholds[network(r.Addr)]; ok {
					l.more = n - 10
				}
			}
		}
		l.run(requests)
		policies := []string{`"all";q=10;w=10, "all";q=20;w=10`} // that of a key with an override is not one of another rule
		s, err := judge.Judge(requests, judge.Options{Rules: set, Lag: 50 * time.Millisecond, Policies: policies})
		if err != nil {
			t.Fatal(err)
		}
		if got := names(s); !slices.Equal(got, test.want) || s.Refused < 50 || len(s.NotJudged) > 0 {
			t.Errorf("%s: faults %v, want %v; %d requests refused, not judged: %v\n%s", test.name, got, test.want, s.Refused, s.NotJudged, describe(s))
		}
	}
}

// The judge finds no fault in a correct limiter, whatever its lag within the bound.
func TestCorrectLimiterHasNoFaults(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	late := func() int64 { return random.Int64N(400_000) }
	for _, test := range []struct {
		rules string
		*limiter
	}{
		{throttle, &limiter{}}, {throttle, &limiter{lag: late}}, {throttle, &limiter{exact: true, lag: late}},
		{ban, &limiter{lag: late}}, {ban, &limiter{exact: true}}, {ban, &limiter{exact: true, lag: late}},
		{guesses, &limiter{counts: countGuesses, lag: late}}, {extended, &limiter{counts: countAll, lag: late}},
		{costly, &limiter{counts: countThrice, lag: late}}, {costly, &limiter{exact: true, counts: countThrice, lag: late}},
		{apiKeys, &limiter{key: onlyKeyed, lag: late}}, {capped, &limiter{answer: retry(func(n int) int { return min(n, 3) }), lag: late}}, {shadow, &limiter{unseen: true, answer: func(a *judge.Answer) { a.Remaining = -1 }, lag: late}},
	} {
		s := test.score(t, test.rules, judge.Options{})
		if len(s.Faults) > 0 || s.InnocentRefused > 0 || s.Refused < 50 || s.Exact < 50 {
			t.Errorf("%s: %d requests of innocent clients refused, %d in all, %d by an exact limiter; faults:\n%s", test.rules, s.InnocentRefused, s.Refused, s.Exact, describe(s))
		}
	}
}

// Answers of a correct limiter without a lag differ from those of an exact one mostly because of the estimate.
func TestEstimateIsTheCause(t *testing.T) {
	s := (&limiter{}).score(t, throttle, judge.Options{})
	for name, d := range map[string]judge.Disagreement{"refused": s.WronglyRefused, "allowed": s.WronglyAllowed} {
		if d.Requests < 100 || d.Estimate < d.Requests*9/10 {
			t.Errorf("wrongly %s: %+v, want 100 or more, of which 90%% are due to the estimate", name, d)
		}
	}
}

// Traffic near a threshold of 50 requests in 10 s, and far above it.
var paces = map[string]string{
	"slow": `
duration: 60s
start: 2026-01-01T00:00:00Z
components:
- name: modest
  steady: {clients: 5, rate: 46/10s, poisson: false}
- name: slow
  steady: {clients: 5, rate: 54/10s, poisson: false}
  attack: true
- name: slower
  steady: {clients: 5, rate: 65/10s, poisson: true}
  attack: true
`,
	"fast": `
duration: 60s
start: 2026-01-01T00:00:00Z
components:
- name: modest
  steady: {clients: 5, rate: 20/10s, poisson: true}
- name: fast
  steady: {clients: 5, rate: 20/1s, poisson: true}
  attack: true
- name: faster
  on_off: {clients: 8, rate: 60/1s, on: 6s, off: 16s}
  attack: true
`,
	"slow alone": `
duration: 60s
start: 2026-01-01T00:00:00Z
components: [{name: slow, steady: {clients: 10, rate: 60/10s, poisson: false}, attack: true}]
`,
	"fast alone": `
duration: 60s
start: 2026-01-01T00:00:00Z
components: [{name: fast, steady: {clients: 12, rate: 30/1s, poisson: false}, attack: true}]
`,
}

// The judge notices a limiter that is 15% too strict or too lenient, with slow and with fast attackers, one that counts
// refusals, and one whose Retry-After is a second too long.
func TestStrictAndLenient(t *testing.T) {
	if !harness.WithoutRaceDetector(t) {
		return
	}
	lag := func() int64 { return 20_000 }
	for pace, traffic := range paces {
		for _, timeout := range []string{"0s", "10s"} {
			for _, exact := range []bool{false, true} {
				for _, test := range []struct {
					name string
					*limiter
					want []string
				}{
					{"15% too strict", &limiter{more: -7}, []string{"threshold_low"}},
					{"15% too lenient", &limiter{more: 7}, []string{"threshold_high"}},
					{"counts refusals", &limiter{counts: countAll}, []string{"counts_refused_requests"}},
					{"Retry-After is a second too long", &limiter{answer: retry(func(n int) int { return n + 1 })}, []string{"retry_after_too_long"}},
					{"right", &limiter{lag: lag}, nil},
				} {
					t.Run(fmt.Sprint(pace, ", ", timeout, ", exact: ", exact, ", ", test.name), func(t *testing.T) {
						t.Parallel()
						test.traffic, test.exact = traffic, exact
						rules := "{id: all, characteristics: [ip], limits: [{threshold: 50, period: 10s}], mitigation_timeout: " + timeout + "}"
						if s := test.score(t, rules, judge.Options{}); !slices.Equal(names(s), test.want) {
							t.Errorf("faults %v, want %v\n%s", names(s), test.want, describe(s))
						}
					})
				}
			}
		}
	}
}

// A PoP that remembers an earlier run is recognized, even if clients share keys that shed, and the report says how long to
// wait.
func TestEarlierRun(t *testing.T) {
	const network = "{id: block, characteristics: ['network:24/48'], limits: [{threshold: 200, period: 10s}], action: shed}"
	for _, also := range []string{"", ", " + network} {
		l := &limiter{period: 10e6, threshold: 10, timeout: 20e6}
		first := attack(t, "")
		l.run(first)
		memory := l.spans
		second := attack(t, "")
		for i := range second {
			second[i].Sent, second[i].Done = second[i].Sent+41e6, second[i].Done+41e6
		}
		l.before = func(l *limiter, _ *sent) {
			if memory != nil {
				l.spans, memory = memory, nil
			}
		}
		l.run(second)
		s := judged(t, second, "rules: ["+strings.Replace(ban, "6s", "20s", 1)+also+"]", judge.Options{})
		if !slices.Equal(names(s), []string{"remembers_earlier_run"}) || !strings.Contains(s.Faults[0].Text, "; wait 40s ") {
			t.Errorf("rules %q, faults:\n%s", also, describe(s))
		}
	}
}
