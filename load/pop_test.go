package load_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/analysis/decisions"
	"github.com/edgelimit/edge/load"
	"github.com/edgelimit/edge/load/judge"
	"github.com/edgelimit/edge/load/mix"
	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/proxy"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

func parse(t *testing.T, text string) *rule.Set {
	t.Helper()
	rules, err := rulefile.Parse("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// Rules by ID, each for the host that the ID begins with. The mitigations of lasting outlast the run, so that every
// passed request is found even if nodes are slow to learn.
var hosts = map[string]string{
	"lasting":    "limits: [{threshold: 15, period: 30s}], mitigation_timeout: 20s",
	"throttling": "limits: [{threshold: 15, period: 2s}]",
	"subwindows": "limits: [{threshold: 15, period: 6s, sub_windows: auto}, {threshold: 30, period: 20s}], mitigation_timeout: 1s",
	"prolonged":  "limits: [{threshold: 15, period: 3s}], mitigation_timeout: 1s, count_while_mitigated: true",
	"costs":      "limits: [{threshold: 46, period: 3s}], count: {cost: 3}, mitigation_timeout: 1s",
	"answers":    "limits: [{threshold: 15, period: 3s}], count: {statuses: [401]}, mitigation_timeout: 1s",
	"two":        "limits: [{threshold: 15, period: 3s}], mitigation_timeout: 1s",
	"two-longer": "limits: [{threshold: 25, period: 20s}]",
}

const mixed = `
duration: 1h
components:
- name: people
  zipf: {clients: 300, rate: 200/s, exponent: 1, offset: 100}
  request: {hosts: [lasting, throttling, subwindows, prolonged, costs, two]}
- name: keepers # IPv6, never more than one request a second
  steady: {clients: 30, rate: 1/1s, poisson: false}
  addresses: [2001:db8::/48]
  request: {hosts: [lasting, throttling, subwindows, prolonged, costs, two]}
- name: attackers
  steady: {clients: 6, rate: 60/1s}
  request: {hosts: [lasting, throttling, subwindows, prolonged, costs, two]}
  attack: true
- name: guessers
  guessing: {clients: 6, rate: 12/1s}
  request: {hosts: [answers]}
`

// A loggedDecision is a decision in the log of a node, parsed by the test's own reader.
type loggedDecision struct {
	Event     string     `json:"event"`
	T         int64      `json:"t"`
	Rule      string     `json:"rule"`
	Key       string     `json:"key"`
	Client    netip.Addr `json:"client"`
	Mitigated bool       `json:"mitigated"`
	Other     bool       `json:"other"`
	Verdict   string     `json:"verdict"`
	Decided   int64      `json:"decided"`
	node      int
	answered  bool
}

// readLogs returns the decisions of all nodes about a rule, by time.
func readLogs(t *testing.T, files []string, id string) (all []loggedDecision) {
	t.Helper()
	for node, name := range files {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		type request struct {
			key string
			at  int64
		}
		waiting := map[request][]int{}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			line := loggedDecision{node: node}
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			switch {
			case line.Rule != id || line.Other:
			case line.Event == "decision":
				r := request{line.Key, line.T}
				waiting[r] = append(waiting[r], len(all))
				all = append(all, line)
			case line.Event == "count":
				r := request{line.Key, line.Decided}
				all[waiting[r][0]].answered, waiting[r] = true, waiting[r][1:]
			}
		}
	}
	slices.SortStableFunc(all, func(a, b loggedDecision) int { return cmp.Compare(a.T, b.T) })
	return all
}

// A loggedTrace presents logged decisions as a judge.Trace. Requests have the times of the nodes' logs.
type loggedTrace struct {
	decisions []loggedDecision
	status    int // status of the origin
	answers   bool
}

func (t *loggedTrace) Len() int          { return len(t.decisions) }
func (t *loggedTrace) Nodes() []string   { return []string{"node-1", "node-2", "node-3"} }
func (t *loggedTrace) Name(i int) string { return t.decisions[i].Client.String() }

func (t *loggedTrace) At(i int) judge.Request {
	d := &t.decisions[i]
	b := d.Client.As16()
	r := judge.Request{Sent: d.T, Done: d.T, Node: d.node, Answer: judge.Answer{Expected: t.status, Status: t.status, Retry: judge.NoRetry, Remaining: -1}}
	for _, c := range b {
		r.Client = r.Client*257 + uint64(c)
	}
	if d.Mitigated {
		r.Answer.Status, r.Answer.Retry = http.StatusTooManyRequests, 1
	} else if t.answers && !d.answered {
		r.Answer.Failure = judge.NoAnswer
	}
	return r
}

func (t *loggedTrace) Properties(i int, _ bool) judge.Properties {
	return judge.Properties{Addr: t.decisions[i].Client, Method: "GET", Host: "127.0.0.1", Target: "/"}
}

// A real PoP refuses no innocent client, its headers are correct, and the merged decision logs of its nodes contain every
// request. Their figures equal those of the judge, which shares no code with the code that it judges.
func TestRealPoP(t *testing.T) {
	t.Parallel()
	var texts []string
	for id, text := range hosts {
		host, _, _ := strings.Cut(id, "-")
		texts = append(texts, fmt.Sprintf("{id: %s, match: {hosts: [%s]}, characteristics: [ip], %s}", id, host, text))
	}
	rules := parse(t, "rules: ["+strings.Join(texts, ", ")+"]")
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "answers" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = io.WriteString(w, "hello")
	}))
	defer origin.Close()
	file := filepath.Join(t.TempDir(), "decisions")
	local, err := pop.StartLocal(pop.LocalOptions{Nodes: 3, Node: pop.Options{
		Rules: rules, Origin: origin.URL, NodeHeader: "X-Edge-Node", TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Headers: proxy.BothHeaders, Logger: slog.New(slog.DiscardHandler), LogClients: true, DecisionLog: file, DecisionLogShare: 1,
	}})
	if err != nil {
		t.Fatal(err)
	}
	var targets []load.Target
	var files []string
	for _, n := range local.Nodes() {
		targets = append(targets, target(t, "http://"+n.Addr("http").String()))
		files = append(files, file+"."+n.Name())
	}
	m, err := mix.Parse("mixed.yaml", []byte(mixed))
	if err != nil {
		t.Fatal(err)
	}
	run, err := load.Run(t.Context(), load.Options{
		Targets: targets, Source: load.NewMixed(m, 1), Identity: load.Identity{Forwarded: true}, Return: true, Connections: 12,
		Requests: 2400, Duration: 10 * time.Minute, Timeout: time.Minute, // takes 4 s on an idle machine
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := local.Stop(context.Background()); err != nil {
		t.Error(err)
	}

	sent := run.Report()
	// Other tests may be running. The slower answers are, the slower counting is.
	s, err := run.Score(load.JudgeOptions{Rules: rules, Skew: 5 * time.Millisecond, Lag: max(2*time.Second, time.Duration(5*sent.Service.MaxMS)*time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	if len(sent.Nodes) != 3 || sent.Statuses["200"]+sent.Statuses["401"]+sent.Statuses["429"] != sent.Sending.Requests {
		t.Errorf("nodes %v, statuses %v", sent.Nodes, sent.Statuses)
	}
	// On a busy machine requests may come too late to exceed the threshold of a short period.
	if s.InnocentRefused != 0 || s.Exact >= 100 && s.Refused < 50 {
		t.Errorf("%+v", s)
	}
	for _, f := range s.Faults {
		t.Errorf("fault %s: %s %v", f.Name, f.Text, f.Clients)
	}

	log := decisions.New()
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := log.Read(name, f); err != nil {
			t.Fatal(err)
		}
	}
	report, err := log.Accuracy()
	if err != nil {
		t.Fatal(err)
	}
	if report.Malformed+report.Missing+report.Unpaired > 0 || len(report.Nodes) != 3 || len(report.Rules) != len(hosts) {
		t.Errorf("the logs are incomplete: %+v", report)
	}
	decided, refused, passed := uint64(0), uint64(0), uint64(0)
	for _, got := range report.Rules {
		refused += got.Refused
		if got.Rule != "two-longer" { // its requests are also counted by the rule two
			decided += got.Decisions + got.Other
		}
		status := http.StatusOK
		if got.Rule == "answers" {
			status, passed = http.StatusUnauthorized, got.Decisions-got.Refused
		}
		trace := &loggedTrace{readLogs(t, files, got.Rule), status, got.Rule == "answers"}
		only := parse(t, fmt.Sprintf("rules: [{id: %s, characteristics: [ip], %s}]", got.Rule, hosts[got.Rule]))
		want, err := judge.Judge(trace, judge.Options{Rules: only, Skew: 5 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		a := got.Accuracy
		type figures struct{ Requests, Refused, Exact, Allowed, AllowedByEstimate, AllowedByLag, Denied, DeniedByEstimate, DeniedByLag uint64 }
		mine := figures{got.Decisions, got.Refused, a.Exact, a.WronglyAllowed.Requests, a.WronglyAllowed.Estimate, a.WronglyAllowed.Lag, a.WronglyRefused.Requests, a.WronglyRefused.Estimate, a.WronglyRefused.Lag}
		// The judge gives no cause for decisions that none of its models explains.
		allowed, denied := &want.WronglyAllowed, &want.WronglyRefused
		either := func(mine, theirs, unexplained uint64) uint64 { return max(theirs, min(mine, theirs+unexplained)) }
		allowedByEstimate := either(mine.AllowedByEstimate, allowed.Estimate, allowed.Unexplained)
		deniedByEstimate := either(mine.DeniedByEstimate, denied.Estimate, denied.Unexplained)
		theirs := figures{want.Requests, want.Refused, want.Exact, allowed.Requests, allowedByEstimate, allowed.Requests - allowedByEstimate,
			denied.Requests, deniedByEstimate, denied.Requests - deniedByEstimate}
		t.Logf("%s: %+v, without a cause %d and %d", got.Rule, mine, allowed.Unexplained, denied.Unexplained)
		if mine != theirs {
			t.Errorf("rule %s: the logs say  %+v\nthe judge says %+v", got.Rule, mine, theirs)
		}
		if got.Rule == "lasting" && (a.Exact == 0 || got.Refused == 0) {
			t.Error("no request is refused: the test shows little")
		}
	}
	// The answers of requests that passed are withheld if their keys are mitigated meanwhile.
	if limited := sent.Statuses["429"]; decided != sent.Sending.Requests || limited < refused || limited > refused+passed {
		t.Errorf("the logs have %d decisions and %d refusals; %d requests were sent, and %d got 429", decided, refused, sent.Sending.Requests, sent.Statuses["429"])
	}
}
