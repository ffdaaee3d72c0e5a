package operate_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/operate"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

const severalRules = `allow: [198.51.100.0/24]
rules:
  - {id: net, characteristics: ["network:24/48"], limits: [{threshold: 5, period: 1m}]}
  - {id: key, characteristics: ["header:x-api-key"], limits: [{threshold: 5, period: 1m}]}
  - {id: both, characteristics: [ip, "header:x-api-key"], limits: [{threshold: 5, period: 1m}]}
  - {id: dry, characteristics: [ip], limits: [{threshold: 5, period: 1m}], action: log}
`

// add starts a mitigation by hand of a target.
func add(t *testing.T, o *operate.Operator, target string) operate.Mitigation {
	t.Helper()
	m, err := o.Add(operate.Order{Values: targetOf(t, target), Duration: time.Hour})
	if err != nil {
		t.Fatalf("%s: %v", target, err)
	}
	return m
}

// list returns what the mitigations of a query are about.
func list(t *testing.T, o *operate.Operator, q operate.Query) string {
	t.Helper()
	page, err := o.Mitigations(q)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range page.Mitigations {
		all = append(all, m.About)
	}
	return strings.Join(all, "; ")
}

// targetOf parses a target.
func targetOf(t testing.TB, text string) map[string]string {
	t.Helper()
	values, err := operate.ParseTarget(text)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// A target with a value by which no rule counts lifts nothing, rather than all mitigations that the other values name.
func TestLiftByUnknownName(t *testing.T) {
	o := newOperatorOf(t, severalRules)
	add(t, o, "rule=dry,ip=192.0.2.1")
	for _, target := range []string{"rul=net,ip=192.0.2.1", "192.0.2.1"} {
		l, err := o.Lift(operate.LiftOne{Values: targetOf(t, target)})
		if want := target == "192.0.2.1"; (err == nil && len(l.Mitigations) == 1) != want {
			t.Errorf("lift %s: %d mitigations, %v; want lifted %t", target, len(l.Mitigations), err, want)
		}
	}
}

// A target with a value that has no name is refused: a mitigation would be found, or lifted, by the other values alone.
func TestParseTargetWithoutName(t *testing.T) {
	for text, want := range map[string]string{
		"login,ip=192.0.2.1": `"login" is not NAME=VALUE, such as ip=203.0.113.7`,
		"=a,ip=192.0.2.1":    `"=a" is not NAME=VALUE, such as ip=203.0.113.7`,
		",ip=192.0.2.1":      `"" is not NAME=VALUE, such as ip=203.0.113.7`,
	} {
		if values, err := operate.ParseTarget(text); err == nil || err.Error() != want {
			t.Errorf("ParseTarget(%q) = %v, %v; want the error %s", text, values, err, want)
		}
	}
}

// A mitigated network is found, explained and lifted by any of its addresses.
func TestNetwork(t *testing.T) {
	o := newOperatorOf(t, severalRules)
	m := add(t, o, "rule=net,network:24/48=192.0.2.0/24")
	const about = "network 192.0.2.0/24"
	for _, client := range []string{"192.0.2.77/32", "192.0.2.0/32"} {
		if got := list(t, o, operate.Query{Client: netip.MustParsePrefix(client)}); m.About != about || got != about {
			t.Errorf("--client %s finds %q, want %q", client, got, about)
		}
	}
	if got := list(t, o, operate.Query{Client: netip.MustParsePrefix("192.0.3.1/32")}); got != "" {
		t.Errorf("the address of another network finds %q", got)
	}
	for _, target := range []string{"192.0.2.77", "192.0.2.0/24", m.ID, m.Key, "rule=net,network:24/48=192.0.2.0/24"} {
		e, err := o.Explain(targetOf(t, target))
		if err != nil || len(e.Keys) == 0 || e.Keys[0].About != about || !e.Keys[0].Refused() {
			t.Errorf("explain %s: %+v, %v", target, e, err)
		}
	}
	for _, target := range []string{"192.0.2.77", "192.0.2.0/24", m.ID, m.Key} {
		l, err := o.Lift(operate.LiftOne{Values: targetOf(t, target)})
		if err != nil || len(l.Mitigations) != 1 || l.Mitigations[0].About != about || l.Key != m.Key {
			t.Errorf("lift %s: %+v, %v", target, l, err)
		}
		add(t, o, "rule=net,network:24/48=192.0.2.0/24")
	}
}

// A key that is known by its record alone may have the limits of an override. With its values, it has those limits.
func TestOverriddenKey(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"rules.yaml": "rules: [{id: a, characteristics: [host], limits: [{threshold: 5, period: 1m}], overrides: plans.csv}]",
		"plans.csv":  "host,1m\na.example,7\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rules, err := rulefile.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	o := newOperator(t)
	o.Limiter.SetRules(rules)
	const named = "rule=a,host=a.example"
	m := add(t, o, named)
	for target, want := range map[string]uint64{named: 7, m.Key: 5} {
		e, err := o.Explain(targetOf(t, target))
		if err != nil || len(e.Keys) != 1 || e.Keys[0].Limits[0].Threshold != want || strings.Contains(e.Keys[0].Problem, "overrides") != (want == 5) {
			t.Errorf("explain %s: %+v, %v; want a threshold of %d", target, e, err, want)
		}
	}
}

// The value of a header is never shown, but its fingerprint leads from the list to the value and back.
func TestFingerprint(t *testing.T) {
	o := newOperatorOf(t, severalRules)
	m := add(t, o, "rule=key,header:x-api-key=topsecret")
	want := "header x-api-key (fingerprint " + m.Key[:8] + ")"
	e, err := o.Explain(targetOf(t, "header:x-api-key=topsecret"))
	if err != nil || len(e.Keys) != 1 || e.Keys[0].About != want || m.About != want || list(t, o, operate.Query{}) != want {
		t.Errorf("explained: %+v, %v; added: %+v; want about %q", e, err, m, want)
	}
	if limits := e.Keys[0].Limits; len(limits) != 1 || limits[0].Period != 60 || limits[0].Remaining != 5 {
		t.Errorf("limits %+v, want 5 in 60 s", limits)
	}
	if len(e.Needs) != 1 || e.Needs[0].Target(map[string]string{"header:x-api-key": "topsecret"}) != "rule=both,ip=…,header:x-api-key=topsecret" {
		t.Errorf("needs %+v", e.Needs)
	}
	if text, _ := json.Marshal(e); strings.Contains(string(text), "topsecret") {
		t.Errorf("the answer has the secret: %s", text)
	}
	if l, err := o.Lift(operate.LiftOne{Values: targetOf(t, "header:x-api-key=topsecret")}); err != nil || l.Key != m.Key {
		t.Errorf("lift: %+v, %v", l, err)
	}
	if _, err := o.Explain(targetOf(t, "header:x-other=a")); err == nil {
		t.Error("a header by which no rule counts: no error")
	}
}

// An operator refuses a client regardless of rules. Errors say what works instead.
func TestRefuseClient(t *testing.T) {
	o := newOperatorOf(t, severalRules)
	look := func(addr string) limit.Verdict {
		d := o.Limiter.Look(&rule.Request{Addr: netip.MustParseAddr(addr), Host: "a", Path: "/", Method: "GET"}, time.Now())
		return d.Verdict
	}
	m := add(t, o, "2001:db8::1")
	if got := look("2001:db8::2"); got != limit.Denied || m.Action != "deny" || m.About != "2001:db8::/64" || m.State != "active" {
		t.Errorf("another address of the client: %v; %+v", got, m)
	}
	if got := look("2001:db8:0:1::2"); got != limit.Passed {
		t.Errorf("another client: %v", got)
	}
	if s := o.Status(); s.Mitigations["*"] != 1 || len(s.Mitigations) != 1 {
		t.Errorf("status %+v", s.Mitigations)
	}
	if o.Limiter.SetRules(new(rule.Set)); look("2001:db8::2") != limit.Denied {
		t.Error("without rules the client passes")
	}
	if l, err := o.Lift(operate.LiftOne{Values: targetOf(t, "2001:db8::3")}); err != nil || l.Key != m.Key || look("2001:db8::2") != limit.Passed {
		t.Errorf("lift: %+v, %v", l, err)
	}
	if _, err := o.Add(operate.Order{Values: targetOf(t, "rule=any,ip=192.0.2.9,path=/a"), Duration: time.Hour}); err == nil {
		t.Error("a client can be refused for a path regardless of rules")
	}
	o = newOperatorOf(t, severalRules)
	for _, name := range []string{"any", "*"} {
		add(t, o, "192.0.2.9")
		add(t, o, "rule="+name+",ip=192.0.2.3")
		add(t, o, "rule=net,network:24/48=192.0.2.0/24")
		if got := list(t, o, operate.Query{Rule: name, State: "active"}); got != "192.0.2.3; 192.0.2.9" {
			t.Errorf("--rule %s lists %q", name, got)
		}
		if got := explained(t, o, "rule="+name+",ip=192.0.2.3"); !strings.HasPrefix(got, "rule any: mitigated, action deny\n") {
			t.Errorf("explain rule=%s:\n%s", name, got)
		}
		if _, err := o.Lift(operate.LiftOne{Values: targetOf(t, "rule="+name+",ip=192.0.2.3")}); err != nil {
			t.Errorf("lift rule=%s: %v", name, err)
		}
		if got := explained(t, o, "rule="+name+",ip=192.0.2.4"); !strings.HasPrefix(got, "rule any: not mitigated\n") {
			t.Errorf("explain rule=%s:\n%s", name, got)
		}
		if l, err := o.LiftAll(operate.Selection{Rule: name}); err != nil || l.Mitigations != 1 || look("192.0.2.9") != limit.Blocked {
			t.Errorf("lift --all --rule %s: %+v, %v", name, l, err)
		}
		if got := list(t, o, operate.Query{State: "active"}); got != "network 192.0.2.0/24" {
			t.Errorf("after that there are %q", got)
		}
	}
	for target, want := range map[string]string{
		"rule=any,header:x=a":     "rule any counts by ip alone",
		"192.0.2.0/24":            "a network cannot be refused by hand: add it to deny in the rules files",
		"198.51.100.7":            "the allow list has 198.51.100.0/24, and decides before any mitigation",
		"header:x-api-key=a":      "",
		"rule=none,ip=192.0.2.1":  "there is no rule none",
		"rule=net,ip=192.0.2.1":   `rule net does not count by "ip"`,
		"0000-0000":               "no active mitigation has the ID",
		strings.Repeat("0", 32):   "is not mitigated",
		"header:x-other=a":        "no rule counts by these values",
		"header:x-api-key=a,ip=b": `"b" is not an address`,
		"rules=dry,ip=192.0.2.1":  `no rule counts by "rules"`,
	} {
		_, err := o.Add(operate.Order{Values: targetOf(t, target), Duration: time.Minute})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("add %s: %v, want %q", target, err, want)
		}
	}
}

// The answer that starts a mitigation by hand names the clients that it does not refuse, and so does its explanation.
// Refused keys are explained first.
func TestPasses(t *testing.T) {
	const rest = ", limits: [{threshold: 5, period: 1m}]"
	o := newOperatorOf(t, `allow: [198.51.100.0/24]
networks: {office: [192.0.2.0/28]}
rules:
  - {id: most, except: [{networks: [office], paths: [/a]}, {networks: [office]}], characteristics: [ip]`+rest+`}
  - {id: dry, characteristics: [ip], action: log, on_failure: closed`+rest+`}
  - {id: few, match: {networks: [office]}, characteristics: [ip]`+rest+`}
  - {id: shed, characteristics: ["network:24/48"], action: shed`+rest+`}
  - {id: pay, characteristics: [ip], on_failure: closed`+rest+`}
`)
	for _, tt := range []struct{ target, note, explained string }{
		{"rule=most,ip=192.0.2.1", "the rule does not refuse this client: its except has 192.0.2.1", "rule most: does not apply: its except has 192.0.2.1\n"},
		{"rule=most,ip=203.0.113.1", "", "rule most: mitigated, action block\n"},
		{"rule=few,ip=203.0.113.1", "the rule does not refuse this client: its networks do not have 203.0.113.1",
			"rule few: does not apply: its networks do not have 203.0.113.1\n"},
		{"rule=dry,ip=192.0.2.1", "the rule's action is log, so nothing is refused", "rule dry: mitigated, action log: a dry run, so it passes\n"},
		{"rule=shed,network:24/48=192.0.2.0/24", "the rule's action is shed, so it refuses only clients beyond its threshold",
			"rule shed: mitigated, action shed\n"},
		{"rule=pay,ip=192.0.2.9", "", "rule pay: mitigated, action block\n"},
	} {
		m := add(t, o, tt.target)
		if m.Note != tt.note {
			t.Errorf("add %s: note %q, want %q", tt.target, m.Note, tt.note)
		}
		if got := explained(t, o, tt.target); !strings.HasPrefix(got, tt.explained) {
			t.Errorf("explain %s:\n%s, want %s", tt.target, got, tt.explained)
		}
	}
	const closed = "rule pay: refused with 503 while the key's shard is unavailable, because of on_failure: closed\n"
	if got := explained(t, o, "rule=pay,ip=192.0.2.1"); !strings.HasPrefix(got, closed) || strings.Contains(got, "more allowed") {
		t.Errorf("a rule that fails closed:\n%s", got)
	}
	for target, want := range map[string][]string{
		"192.0.2.1":    {"pay", "most", "dry", "few", "shed"},
		"192.0.2.9":    {"pay", "most", "dry", "few", "shed"},
		"203.0.113.1":  {"most", "pay", "dry", "shed", "few"},
		"198.51.100.1": {"most", "dry", "shed", "pay"},
	} {
		var rules []string
		for line := range strings.Lines(explained(t, o, target)) {
			if rule, found := strings.CutPrefix(line, "rule "); found {
				rules = append(rules, strings.Split(rule, ":")[0])
			}
		}
		if !slices.Equal(rules, want) {
			t.Errorf("explain %s has rules %v, want %v", target, rules, want)
		}
	}
	if _, err := o.Add(operate.Order{Values: targetOf(t, "rule=most,ip=198.51.100.1"), Duration: time.Hour}); err == nil {
		t.Error("a client on the allow list can be mitigated")
	}
	for network, whole := range map[string]bool{"198.51.100.0/23": false, "198.51.100.0/24": true, "198.51.100.128/25": true} {
		if e, err := o.Explain(targetOf(t, network)); err != nil || (e.Listed != nil) != whole {
			t.Errorf("explain %s: listed %+v, %v; the list has it: %t", network, e.Listed, err, whole)
		}
	}
	const allowed = "rule most: does not apply: the allow list has 198.51.100.0/24\n  counts 198.51.100.1\n  key "
	if got := explained(t, o, "rule=most,ip=198.51.100.1"); !strings.HasPrefix(got, allowed) || strings.Contains(got, "more allowed") {
		t.Errorf("a client on the allow list:\n%s", got)
	}
}

// explained returns the explanation of a target as text.
func explained(t *testing.T, o *operate.Operator, target string) string {
	t.Helper()
	e, err := o.Explain(targetOf(t, target))
	if err != nil {
		t.Fatalf("%s: %v", target, err)
	}
	var b strings.Builder
	for i := range e.Keys {
		e.Keys[i].WriteText(&b, targetOf(t, target)["ip"], "")
	}
	return b.String()
}

// Clients that a rule with action log would refuse are counted and listed separately.
func TestDryRun(t *testing.T) {
	o := newOperatorOf(t, severalRules)
	m := add(t, o, "rule=dry,ip=192.0.2.1")
	add(t, o, "192.0.2.2")
	s := o.Status()
	if s.Logged["dry"] != 1 || len(s.Mitigations) != 1 || m.State != "logged" {
		t.Errorf("status %+v, mitigation %+v", s, m)
	}
	for state, want := range map[string]string{"active": "192.0.2.2", "logged": "192.0.2.1", "lifted": ""} {
		if got := list(t, o, operate.Query{State: state}); got != want {
			t.Errorf("state %s: %q, want %q", state, got, want)
		}
	}
	e, err := o.Explain(targetOf(t, "192.0.2.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range e.Keys {
		if k.Refused() || k.DryRun() != (k.Rule == "dry") {
			t.Errorf("explained: %+v", k)
		}
	}
	if _, err := o.Lift(operate.LiftOne{Values: map[string]string{"ip": "192.0.2.2"}}); err != nil || list(t, o, operate.Query{State: "current"}) != "192.0.2.1" {
		t.Errorf("after a lift: %v", err)
	}
}

// A node remembers the last changes, with who made them and why.
func TestChanges(t *testing.T) {
	f := newFixture(t, nil)
	f.operator.ReloadFiles = func() error { return errors.Join(errors.New("pop: nonsense"), errors.New("more of it")) }
	f.ask(t, "POST /-/reload?reason=r", bearer)
	f.ask(t, "POST /api/v1/mitigations/lift?ip=192.0.2.1&reason=called", bearer)
	all := f.operator.Changes().Changes
	if len(all) != 2 || all[0].By != "anna" || all[0].From != "192.0.2.1:5" || all[0].Do != "mitigations-lift" || all[0].What != "key="+f.key ||
		all[0].Reason != "called" || all[1].Error != "nonsense (and 1 more)" {
		t.Errorf("changes %+v", all)
	}
	var text strings.Builder
	changes := f.operator.Changes()
	if changes.WriteText(&text); !strings.HasSuffix(text.String(), "\tanna\t192.0.2.1:5\treload\tr\tnonsense (and 1 more)\n") {
		t.Errorf("changes as text:\n%s", &text)
	}
	for range 600 {
		f.operator.Note(operate.Change{Do: "reload"}, nil)
	}
	if n := len(f.operator.Changes().Changes); n != 500 {
		t.Errorf("%d changes, want the last 500", n)
	}
}
