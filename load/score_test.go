package load_test

import (
	"bytes"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/load"
	"github.com/edgelimit/edge/load/mix"
	"github.com/edgelimit/edge/rule"
)

func trafficSource(t *testing.T) load.Source {
	t.Helper()
	m, err := mix.Load("judge/testdata/traffic.yaml", 0)
	if err != nil {
		t.Fatal(err)
	}
	return load.NewMixed(m, 1)
}

// The judge names the fault of a limiter that it reaches over HTTP, and no other. The tests of package judge cover more
// faults, without HTTP.
func TestJudgeNamesFaults(t *testing.T) {
	refusals := func(alter func(h http.Header, seconds int)) func(http.Header, int) {
		return func(h http.Header, seconds int) {
			if seconds > 0 {
				alter(h, seconds)
			}
		}
	}
	for _, test := range []struct {
		name string
		*limiter
		want []string
	}{
		{"no mistake", &limiter{quotas: []*quota{ten(0)}}, nil},
		{"a node that ignores mitigations", &limiter{quotas: []*quota{ten(5 * time.Second)}, deaf: 2}, []string{"node_ignores_mitigations"}},
		{"Retry-After is too short", &limiter{quotas: []*quota{ten(5 * time.Second)}, alter: refusals(func(h http.Header, seconds int) {
			for _, name := range []string{"Retry-After", "X-RateLimit-Reset"} {
				h.Set(name, strconv.Itoa(max(1, seconds-3)))
			}
			h.Set("RateLimit", fmt.Sprintf(`"all";r=0;t=%d`, max(1, seconds-3)))
		})}, []string{"retry_after_too_short"}},
		{"no Retry-After", &limiter{quotas: []*quota{ten(0)}, alter: refusals(func(h http.Header, _ int) { h.Del("Retry-After") })}, []string{"headers_disagree"}},
		{"RateLimit contradicts Retry-After", &limiter{quotas: []*quota{ten(0)}, alter: refusals(func(h http.Header, seconds int) {
			h.Set("RateLimit", fmt.Sprintf(`"never,;r=0";r=7;t=100, "all";r=0;t=%d`, seconds+1))
		})}, []string{"headers_disagree"}},
		{"reports nothing remaining", &limiter{quotas: []*quota{ten(0)}, alter: func(h http.Header, seconds int) {
			if seconds == 0 {
				h.Set("RateLimit", `"never,;r=0"; r=7; t=1, "all";r=0;t=10`)
			}
		}}, []string{"headers_disagree"}},
		{"reports too much remaining", &limiter{quotas: []*quota{ten(0)}, alter: func(h http.Header, seconds int) {
			if seconds == 0 {
				h.Set("RateLimit", `"all";r=11;t=10`)
			}
		}}, []string{"headers_disagree"}},
		{"two rules that mitigate", &limiter{quotas: []*quota{ten(4 * time.Second), {threshold: 14, period: 20 * time.Second, timeout: 9 * time.Second}}}, nil},
		{"Retry-After is that of the first rule", &limiter{first: true, quotas: []*quota{ten(4 * time.Second), ten(9 * time.Second)}}, []string{"retry_after_too_short"}},
		{"all clients are one", &limiter{quotas: []*quota{ten(0)}, blind: true}, []string{"clients_not_told_apart"}},
		{"other rules", &limiter{quotas: []*quota{ten(0)}, blind: true, alter: func(h http.Header, _ int) {
			h.Set("RateLimit-Policy", `"rule-0";q=10;w=10, "rule-0";q=11;w=60`)
		}}, []string{"other_rules"}},
		{"one innocent client is refused", &limiter{quotas: []*quota{ten(0)}, refuses: "10.0.0.3"}, []string{"refuses_innocent"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			lasts := 16 * time.Second
			if test.name == "reports nothing remaining" { // which is wrong only if the client's next request passes
				lasts = 25 * time.Second
			}
			log := test.attack(t, load.Options{Source: trafficSource(t), Duration: lasts, Return: true})
			s, err := log.Score(load.JudgeOptions{Rules: test.rules(t), Lag: 20 * time.Millisecond, Skew: time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range s.Faults {
				got = append(got, f.Name)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("faults %v, want %v\n%+v", got, test.want, s)
			}
			for _, f := range s.Faults {
				switch f.Name {
				case "node_ignores_mitigations":
					if f.Node != "node-2" {
						t.Errorf("node = %s, want node-2", f.Node)
					}
				case "clients_not_told_apart":
					if !strings.HasSuffix(f.Text, ": does the PoP trust this machine's X-Forwarded-For? (--trusted-proxy 127.0.0.1/32)") {
						t.Errorf("text = %q, want advice about X-Forwarded-For", f.Text)
					}
				case "refuses_innocent":
					if !slices.Equal(f.Clients, []string{"10.0.0.3"}) {
						t.Errorf("clients = %v, want 10.0.0.3", f.Clients)
					}
				}
			}
			if s.RetryAfter.Checked == 0 && test.name != "no Retry-After" && !test.blind {
				t.Error("no Retry-After was checked")
			}
			if s.Exact == 0 || !test.blind && s.WronglyAllowed.Requests+s.WronglyRefused.Requests > s.Requests/2 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// A rule may count by the X-Forwarded-For that the generator sends.
func TestForwardedForAsAHeader(t *testing.T) {
	l := &limiter{quotas: []*quota{ten(0)}}
	log := l.attack(t, load.Options{Source: trafficSource(t), Duration: 16 * time.Second})
	rules := parse(t, `rules: [{id: rule-0, characteristics: ["header:x-forwarded-for"], limits: [{threshold: 10, period: 10s}]}]`)
	s, err := log.Score(load.JudgeOptions{Rules: rules, Lag: 20 * time.Millisecond, Skew: time.Millisecond})
	if err != nil || s.Exact == 0 || len(s.Faults) > 0 {
		t.Errorf("%v, %+v", err, s)
	}
}

// Refusals because of an unavailable shard are not faults.
func TestUnavailable(t *testing.T) {
	source := &load.Steady{Clients: 1}
	var requests []load.DecidedRequest
	for i := range 10 {
		requests = append(requests, load.DecidedRequest{At: time.Duration(i) * 2 * time.Second, Refused: true, Down: true})
	}
	rules := parse(t, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 10, period: 10s}], on_failure: closed}]")
	s, err := load.DecidedLog(time.Now(), source, requests).Score(load.JudgeOptions{Rules: rules})
	if err != nil || s.Unavailable != 10 || len(s.Faults) > 0 {
		t.Errorf("%v, %+v", err, s)
	}
}

// The exact decisions equal those of a replay of the run's log.
func TestExactDecisionsMatchReplay(t *testing.T) {
	l := &limiter{quotas: []*quota{ten(5 * time.Second)}}
	log := l.attack(t, load.Options{Source: trafficSource(t), Duration: 20 * time.Second, Return: true})
	rules := l.rules(t)
	s, err := log.Score(load.JudgeOptions{Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	e := replay(t, log, rules)
	if e.Requests != uint64(log.Requests()) || e.Rules[0].ExactRefused != s.Exact || s.Exact < 300 {
		t.Errorf("the replay has %d requests, of which an exact limiter refuses %d; the judge says %d and %d", e.Requests, e.Rules[0].ExactRefused, log.Requests(), s.Exact)
	}
	if s.Rules[0].ExactRefused != s.Exact {
		t.Errorf("the only rule refuses %d, want %d", s.Rules[0].ExactRefused, s.Exact)
	}
}

// The same holds with several rules, one of which counts wrong passwords, and with clients that differ in
// properties other than the address.
func TestExactDecisionsWithSeveralRules(t *testing.T) {
	m, err := mix.Parse("mix.yaml", []byte(`
duration: 30s
components:
- name: pages
  pages: {clients: 20, think: 3s, load: 1s, assets: 4}
  addresses: [2001:db8:6::/48]
- name: api
  zipf: {clients: 30, rate: 40/s, exponent: 1}
  request: {hosts: [api.example.com, www.example.com], methods: [GET, PUT], paths: ["/v1/items?a=1", /v1/x%2Fy, "//"], user_agents: [a/1, b/2]}
- name: guessers
  guessing: {clients: 5, rate: 1/1s}
  addresses: [2001:db8:7::/48]
`))
	if err != nil {
		t.Fatal(err)
	}
	rules := parse(t, `
rules:
- {id: login, match: {methods: [POST], paths: [/login]}, count: {statuses: [401]}, characteristics: [ip], limits: [{threshold: 2, period: 10s}, {threshold: 4, period: 20s}]}
- {id: key, match: {paths: ["/v1/*"]}, characteristics: [{header: x-api-key, missing: skip}, path], limits: [{threshold: 5, period: 10s}]}
- {id: sid, characteristics: ["cookie:sid", host], limits: [{threshold: 12, period: 10s}], mitigation_timeout: 3s}
- {id: agent, characteristics: ["header:user-agent"], limits: [{threshold: 150, period: 10s}]}
- {id: all, characteristics: [ip], limits: [{threshold: 20, period: 10s}]}
- {id: ban, characteristics: [ip, "header:x-api-key"], limits: [{threshold: 60, period: 10s}], mitigation_timeout: 5s, count_refused: true}
- {id: cost, count: {cost: 7}, match: {methods: [PUT]}, characteristics: [ip], limits: [{threshold: 58, period: 10s, sub_windows: auto}]}
`)
	l := &limiter{quotas: []*quota{{threshold: 15, period: 10 * time.Second}}}
	log := l.attack(t, load.Options{
		Source: load.NewMixed(m, 1), Duration: 30 * time.Second, Identity: load.Identity{Header: "X-Api-Key", Cookie: "sid"},
		Header: [][2]string{{"Cookie", "theme=dark"}, {"Accept", "*/*"}},
	})
	s, err := log.Score(load.JudgeOptions{Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range replay(t, log, rules).Rules {
		if r.ExactRefused != s.Rules[i].ExactRefused || r.ExactRefused == 0 {
			t.Errorf("rule %s: exact refusals: %d in the replay, %d by the judge", r.Rule, r.ExactRefused, s.Rules[i].ExactRefused)
		}
	}
}

// replay plays the log of a run through a PoP.
func replay(t *testing.T, run *load.Log, rules *rule.Set) *analysis.Enforcement {
	t.Helper()
	var b bytes.Buffer
	if err := run.Write(&b); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "run.log")
	write(t, file, b.String())
	f, err := analysis.NewEnforcer(analysis.EnforcementOptions{Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	log, err := accesslog.Open([]string{file}, nil, accesslog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if err := log.Entries(t.Context(), func(e *accesslog.Entry) error { f.Add(e); return nil }); err != nil {
		t.Fatal(err)
	}
	if s := log.Stats(); s.Malformed > 0 {
		t.Fatalf("malformed lines: %+v", s)
	}
	return f.Report()
}
