package analysis

import (
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"sort"
	"testing"

	"pgregory.net/rapid"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// naive counts by keeping all requests and scanning them.
type naive struct {
	rule    *rule.Rule
	counted map[string][]int64
	until   map[string]int64
}

func (n *naive) refuses(client string, t int64) bool {
	if t < n.until[client] {
		return true
	}
	n.counted[client] = append(n.counted[client], t)
	over := func(l rule.Limit, at int64) bool {
		in := 0
		for _, s := range n.counted[client] {
			if s > at-l.Period.Microseconds() && s <= at {
				in++
			}
		}
		return in > int(l.Threshold)
	}
	for _, l := range n.rule.Limits {
		if !over(l, t) {
			continue
		}
		until := t + n.rule.MitigationTimeout.Microseconds()
		for _, s := range n.counted[client] {
			if left := s + l.Period.Microseconds(); left > until && over(l, left-1) {
				until = left
			}
		}
		n.until[client] = max(n.until[client], until)
	}
	return false
}

// Exact counts decide like a counter that keeps all requests.
func TestExactCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := rapid.SampledFrom([]string{
			"[{threshold: 3, period: 2s}]", "[{threshold: 2, period: 1s}, {threshold: 4, period: 5s}]", "[{threshold: 1, period: 3s}]",
		}).Draw(t, "limits")
		timeout := rapid.SampledFrom([]string{"0s", "1s", "4s"}).Draw(t, "timeout")
		set, err := rulefile.Parse("rules.yaml", fmt.Appendf(nil, "rules: [{id: all, characteristics: [ip], limits: %s, mitigation_timeout: %s}]", limits, timeout))
		if err != nil {
			t.Fatal(err)
		}
		decide := instantly(set)
		want := &naive{set.Rules()[0], map[string][]int64{}, map[string]int64{}}
		steps := rapid.SliceOfN(rapid.Int64Range(0, 12), 1, 120).Draw(t, "quarters of a second between requests")
		clients := rapid.SliceOfN(rapid.SampledFrom([]string{"1", "1", "1", "2"}), len(steps), len(steps)).Draw(t, "clients")
		now := int64(1e15)
		for i, step := range steps {
			now += max(0, step-6) * 250e3 // half of them at the same time
			e := accesslog.Entry{Time: now, Client: clients[i], Method: "GET", Path: "/"}
			d := decide(&e)[byExactCounts]
			if want := want.refuses(e.Client, now); d.verdict.Refused() != want {
				t.Fatalf("request %d is %v, want refused = %t", i+1, d.verdict, want)
			}
		}
	})
}

// instantly returns a function that returns the decisions of an instantPoP about each request in turn.
func instantly(rules *rule.Set) func(*accesslog.Entry) [byAllSent]ruling {
	_, decide := newInstantDecider(rules)
	return decide
}

func newInstantDecider(rules *rule.Set) (*instantPoP, func(*accesslog.Entry) [byAllSent]ruling) {
	p := newRulesPlayer(rule.ClientPrefix{}, rules)
	p.owners = 1
	x := newInstantPoP(p.client, rules, 0, true)
	return x, func(e *accesslog.Entry) [byAllSent]ruling {
		p.next = &batch{requests: make([]replayedRequest, 0, 2)}
		p.add(e)
		r := &p.next.requests[0]
		x.decideAll([]*replayedRequest{r})
		return [byAllSent]ruling(r.decided[:byAllSent])
	}
}

// likeNode returns a function that returns the decision of an instantPoP about each request in turn. It fails t unless
// the code of nodes, which a Simulation runs, makes the same decision. Once a node may have extended a mitigation without a
// request, the function stops comparing.
func likeNode(t rapid.TB, file string) func(*accesslog.Entry) ruling {
	set, err := rulefile.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	node, err := NewSimulation(PoPOptions{}, set)
	if err != nil {
		t.Fatal(err)
	}
	x, decide := newInstantDecider(set)
	requests, unsure := 0, int64(math.MaxInt64)
	return func(e *accesslog.Entry) ruling {
		requests++
		d, got := node.Decide(e), decide(e)[byNodesEstimate]
		want := ruling{verdict: d.Verdict, rule: d.Rule, until: d.Deadline().UnixMicro()}
		if e.Time < unsure && (got.level() != want.level() || got.rule != want.rule || got.rule != nil && got.until != want.until) {
			text, _ := os.ReadFile(file)
			t.Fatalf("request %d at %d: %+v, a node decides %+v\n%s", requests, e.Time, got, want, text)
		}
		unsure = min(unsure, x.extension(e.Time))
		return got
	}
}

// Of two rules with the same action whose mitigations end together, the first one refuses.
func TestInstantPoPWithEqualEnds(t *testing.T) {
	const limits = "characteristics: [ip], limits: [{threshold: 3, period: 10s}]"
	file := filepath.Join(t.TempDir(), "rules.yaml")
	text := "rules: [{id: all, " + limits + "}, {id: host, match: {hosts: [example.com]}, " + limits + "}]"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	decide := likeNode(t, file)
	for i := range int64(6) {
		e := accesslog.Entry{Time: 1e15 + i, Addr: netip.AddrFrom4([4]byte{192, 0, 2, 1}), Client: "192.0.2.1", Method: "GET", Host: "example.com", Path: "/", Status: 200}
		if got := decide(&e); (got.rule != nil) != (i > 3) || got.rule != nil && got.rule.ID != "all" {
			t.Errorf("request %d: %+v", i, got)
		}
	}
}

// extension returns when a node may extend a mitigation of the last request's keys without another request: counts
// of networks wait for up to 100 ms, and are evaluated again when they are sent.
func (p *instantPoP) extension(now int64) int64 {
	for i := range p.keys {
		k := &p.keys[i]
		if k.states.all == nil || !k.Parent() {
			continue
		}
		state := k.states.all[byNodesEstimate]
		end, mitigated := state.Until(now)
		if !mitigated {
			continue
		}
		most := int(min(100_000, end-now))
		extends := func(later int) bool {
			s := state
			e, over := s.Add(now, 0)
			return over && s.Mitigate(limit.Excess{Back: e.Back}, now+int64(later))
		}
		if later := sort.Search(most, extends); later > 0 && later < most {
			return now + int64(later)
		}
	}
	return math.MaxInt64
}

// drawRules writes a file of rules to dir, and returns its name.
func drawRules(t *rapid.T, dir string) (file string) {
	characteristics := rapid.SampledFrom([]string{"[ip]", "[ip]", "[ip, path]", "[host]", "[{header: x-key, missing: skip}, ip]", "[method]", "[network:24/64]", "['query:q']"})
	limits := rapid.SampledFrom([]string{
		"[{threshold: 3, period: 2s}]", "[{threshold: 2, period: 1s}, {threshold: 4, period: 5s}]", "[{threshold: 5, period: 6s, sub_windows: auto}]",
		"[{threshold: 4, period: 3s, sub_windows: 3, estimate: whole_oldest}]", "[{threshold: 3, period: 4s, estimate: fixed}]",
		"[{threshold: 3, period: 4s, sub_windows: 3}]", "[{threshold: 6, period: 10s, sub_windows: 3, estimate: whole_oldest}]",
		"[{threshold: 13, period: 8s}]", "[{threshold: 5, period: 2h}]",
	})
	text := []byte("allow: [192.0.2.9]\ndeny: [192.0.2.8]\nrules:\n")
	for i := range rapid.SampledFrom([]int{1, 2, 3, 4, 10}).Draw(t, "rules") {
		text = fmt.Appendf(text, "- {id: r%d, characteristics: %s, limits: %s, mitigation_timeout: %s, action: %s%s}\n", i,
			characteristics.Draw(t, "characteristics"), limits.Draw(t, "limits"),
			rapid.SampledFrom([]string{"0s", "1s", "4s"}).Draw(t, "timeout"),
			rapid.SampledFrom([]string{"block", "log", "shadow_ban", "close"}).Draw(t, "action"),
			rapid.SampledFrom([]string{"", "", ", count: {statuses: [401]}", ", match: {paths: [/login]}", ", count_while_mitigated: true", ", count_refused: true", ", count_refused: true, count_while_mitigated: true",
				", count: {cost: 2}", ", count: {cost: 3, statuses: [401]}", ", count: {cost: 4, cost_header: X-Cost}",
				", count: {cost: 3, cost_json: usage.total}", ", count: {cost: 3, cost_json: usage.total, reserve: 2}", ", count: {cost: 1000000}, count_while_mitigated: true"}).Draw(t, "match"))
	}
	text = fmt.Appendf(text, "- {id: plans, characteristics: [{header: x-key, missing: skip}], limits: [{threshold: 4, period: 3s}, {threshold: 9, period: 30s}], overrides: keys.csv, mitigation_timeout: 2s%s}\n",
		rapid.SampledFrom([]string{"", ", count: {cost: 3}", ", count: {statuses: [401]}"}).Draw(t, "plans"))
	text = append(text, "- {id: addresses, characteristics: [ip], limits: [{threshold: 5, period: 6s, sub_windows: 3}], overrides: addresses.csv}\n"...)
	text = append(text, rapid.SampledFrom([]string{"", "- {id: crowd, characteristics: [host], limits: [{threshold: 5, period: 4s}], min_clients: 2}\n"}).Draw(t, "crowd")...)
	for name, text := range map[string]string{
		"rules.yaml": string(text), "keys.csv": "header:x-key,3s,30s\na," + rapid.SampledFrom([]string{"1,", "12,", ",20"}).Draw(t, "limits of a") + "\n",
		"addresses.csv": "ip,6s\n192.0.2.1," + rapid.SampledFrom([]string{"2", "15"}).Draw(t, "limits of 192.0.2.1") + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "rules.yaml")
}

// drawEntries returns a log of up to n requests for rules of drawRules. The clients are the last bytes of addresses.
func drawEntries(t *rapid.T, n int, clients []byte) (log []accesslog.Entry) {
	now := int64(1e15)
	steps := rapid.SampledFrom([]*rapid.Generator[int64]{
		rapid.Int64Range(-600e3, 700e3),
		rapid.SampledFrom([]int64{0, 1e6, 30 * 60e6, 50 * 60e6, 80 * 60e6}),
		rapid.SampledFrom([]int64{0, 2e3, 333_334, 1_333_334}), // sub-windows may begin at thirds of a second, within a tick
	}).Draw(t, "steps")
	for _, step := range rapid.SliceOfN(steps, n/3, n).Draw(t, "microseconds between requests") {
		now += max(0, step)
		e := accesslog.Entry{
			Time: now, Addr: netip.AddrFrom4([4]byte{192, 0, 2, rapid.SampledFrom(clients).Draw(t, "client")}), Method: "GET",
			Host: "example.com", Path: rapid.SampledFrom([]string{"/", "/login", "//a/../login"}).Draw(t, "path"), Query: "q=1",
			Status: rapid.SampledFrom([]int{200, 401}).Draw(t, "status"),
			Header: []accesslog.Field{{Name: "X-Key", Value: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key")}},
		}
		e.Client = e.Addr.String()
		log = append(log, e)
	}
	return log
}

// An instantPoP decides like the code of nodes, which a Simulation runs.
func TestInstantPoPEqualsNode(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		decide := likeNode(t, drawRules(t, dir))
		for _, e := range drawEntries(t, 120, []byte{1, 1, 1, 2, 8, 9}) {
			decide(&e)
		}
	})
}
