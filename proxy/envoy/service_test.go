package envoy_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/proxy/envoy"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

const (
	ok   = rls.RateLimitResponse_OK
	over = rls.RateLimitResponse_OVER_LIMIT
)

// A served is a service and its node.
type served struct {
	*envoy.Service
	t    *testing.T
	node *pop.Node
	log  *strings.Builder
}

// startNode starts a node with the rules of a file, which runs until the test ends.
func startNode(t *testing.T, rules, name string, shards ...string) *pop.Node {
	t.Helper()
	set, err := rulefile.Parse("rules.yaml", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	n, err := pop.New(pop.Options{Embedded: true, Name: name, Rules: set, Shards: shards, Secret: "sixteen bytes at least", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(context.Background()); err != nil && len(shards) == 0 { // shards may be dead
			t.Error(err)
		}
	})
	return n
}

// serve returns a service with the rules of a file, which runs until the test ends.
func serve(t *testing.T, rules string) served {
	t.Helper()
	n := startNode(t, rules, "a")
	log := new(strings.Builder)
	return served{envoy.New(n, slog.New(slog.NewTextHandler(log, nil))), t, n, log}
}

// ask asks about descriptors, and waits until their counts are known.
func (s served) ask(hits uint32, descriptors ...*ratelimit.RateLimitDescriptor) *rls.RateLimitResponse {
	s.t.Helper()
	response, err := s.ShouldRateLimit(context.Background(), &rls.RateLimitRequest{Domain: "edge", Descriptors: descriptors, HitsAddend: hits})
	if err != nil {
		s.t.Fatal(err)
	}
	time.Sleep(10 * time.Millisecond)
	synctest.Wait()
	return response
}

// descriptor returns a descriptor with entries of keys and values.
func descriptor(keyValues ...string) *ratelimit.RateLimitDescriptor {
	d := &ratelimit.RateLimitDescriptor{}
	for i := 0; i < len(keyValues); i += 2 {
		d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: keyValues[i], Value: keyValues[i+1]})
	}
	return d
}

// withHits sets the hits_addend of a descriptor.
func withHits(hits uint64, d *ratelimit.RateLimitDescriptor) *ratelimit.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(hits)
	return d
}

func expect(t *testing.T, what string, r *rls.RateLimitResponse, overall rls.RateLimitResponse_Code, statuses ...rls.RateLimitResponse_Code) {
	t.Helper()
	var got []rls.RateLimitResponse_Code
	for _, s := range r.Statuses {
		got = append(got, s.Code)
	}
	if got, want := append(got, r.OverallCode), append(statuses, overall); !slices.Equal(got, want) {
		t.Errorf("%s: codes %v, want %v", what, got, want)
	}
}

const twoRules = `
rules:
  - {id: tight, characteristics: [ip], limits: [{threshold: 3, period: 1m}], action: block, mitigation_timeout: 0s}
  - {id: wide, characteristics: [ip], limits: [{threshold: 100, period: 1h}, {threshold: 1000, period: 10s}], action: block, mitigation_timeout: 0s}
`

// Statuses are in the order of the descriptors, and one that is over its limit makes the request over its
// limit: see envoyproxy/ratelimit's README, and its test of the service.
func TestSeveralDescriptors(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := serve(t, twoRules)
		wide, tight, other := descriptor("rule", "wide", "ip", "192.0.2.1"), descriptor("rule", "tight", "ip", "192.0.2.1"), descriptor("rule", "tight", "ip", "192.0.2.2")
		for range 4 { // the one that exceeds the limit passes
			expect(t, "below the limit", s.ask(0, wide, tight), ok, ok, ok)
		}
		for range 5 {
			expect(t, "over", s.ask(0, wide, tight, other), over, ok, over, ok)
		}
		expect(t, "the other client", s.ask(0, other), ok, ok)
		r := s.ask(0, withHits(0, wide), withHits(0, other))
		if got := r.Statuses[0].LimitRemaining; got != 96 {
			t.Errorf("wide has %d of 100 left, want 96: a refused request is not counted", got)
		}
		if got := r.Statuses[1].LimitRemaining; got != 2 {
			t.Errorf("the other client has %d of 3 left, want 2", got)
		}
		expect(t, "one descriptor twice", s.ask(0, other, other), ok, ok, ok)
	})
}

func TestHitsAddend(t *testing.T) {
	for _, c := range []struct {
		name       string
		hits       uint32
		descriptor *ratelimit.RateLimitDescriptor
		want       uint32 // remaining of 100
	}{
		{"0 is 1", 0, descriptor("rule", "wide", "ip", "192.0.2.1"), 99},
		{"1", 1, descriptor("rule", "wide", "ip", "192.0.2.1"), 99},
		{"of the request", 7, descriptor("rule", "wide", "ip", "192.0.2.1"), 93},
		{"of the descriptor", 7, withHits(5, descriptor("rule", "wide", "ip", "192.0.2.1")), 95},
		{"0 of the descriptor only asks", 7, withHits(0, descriptor("rule", "wide", "ip", "192.0.2.1")), 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := serve(t, twoRules)
				if got := s.ask(c.hits, c.descriptor).Statuses[0].LimitRemaining; got != c.want {
					t.Errorf("the answer says that %d remain, want %d", got, c.want)
				}
				check := withHits(0, descriptor("rule", "wide", "ip", "192.0.2.1"))
				if got := s.ask(0, check).Statuses[0].LimitRemaining; got != c.want {
					t.Errorf("%d remain, want %d", got, c.want)
				}
			})
		})
	}
	t.Run("times the cost of the rule", func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			s := serve(t, strings.Replace(twoRules, "{id: wide,", "{id: wide, count: {cost: 9},", 1))
			for _, want := range []uint32{73, 46} {
				if got := s.ask(3, descriptor("rule", "wide", "ip", "192.0.2.1")).Statuses[0].LimitRemaining; got != want {
					t.Errorf("the answer says that %d remain, want %d", got, want)
				}
			}
		})
	})
	t.Run("all at once", func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			s := serve(t, twoRules)
			d := withHits(1<<63, descriptor("rule", "wide", "ip", "192.0.2.1"))
			expect(t, "decided by what came before", s.ask(0, d), ok, ok)
			expect(t, "the next", s.ask(0, d), over, over)
		})
	})
}

// The answer has the limit with the fewest remaining requests, and the time until it changes.
func TestStatus(t *testing.T) {
	bubble.Test(t, func(t *testing.T) { // its clock begins at midnight
		s := serve(t, twoRules)
		tight := descriptor("rule", "tight", "ip", "192.0.2.1")
		time.Sleep(15 * time.Second)
		for i := range 4 {
			r := s.ask(0, tight)
			got := r.Statuses[0]
			if l := got.CurrentLimit; l.GetName() != "tight" || l.GetRequestsPerUnit() != 3 || l.GetUnit() != rls.RateLimitResponse_RateLimit_MINUTE {
				t.Errorf("request %d: limit %v", i, l)
			}
			if want := uint32(max(0, 2-i)); got.LimitRemaining != want {
				t.Errorf("request %d: %d remain, want %d", i, got.LimitRemaining, want)
			}
			if want := int64(45); i > 0 && got.DurationUntilReset.GetSeconds() != want {
				t.Errorf("request %d: reset in %v, want %d s", i, got.DurationUntilReset, want)
			}
		}
		// In the next minute the four weigh three after a quarter of it: 45 + 15 s.
		r := s.ask(0, descriptor("rule", "wide", "ip", "192.0.2.1"), tight)
		if got := r.Statuses[1]; got.LimitRemaining != 0 || got.DurationUntilReset.GetSeconds() != 60 || got.DurationUntilReset.GetNanos() != 0 || got.CurrentLimit.GetName() != "tight" {
			t.Errorf("refused: %v", got)
		}
		var fields []string
		for _, h := range r.ResponseHeadersToAdd {
			fields = append(fields, h.Key+": "+h.Value)
		}
		if got := strings.Join(fields, ", "); !strings.HasPrefix(got, "refusal-id: ") || !strings.HasSuffix(got, ", retry-after: 60") {
			t.Errorf("fields %q, want refusal-id and retry-after: 60", got)
		}
		r = s.ask(0, withHits(990, descriptor("rule", "wide", "ip", "192.0.2.7")))
		if l := r.Statuses[0].CurrentLimit; l.GetUnit() != rls.RateLimitResponse_RateLimit_HOUR || l.GetRequestsPerUnit() != 100 {
			t.Errorf("of two limits: %v", l)
		}
		time.Sleep(time.Minute)
		expect(t, "a minute later", s.ask(0, tight), ok, ok)
	})
}

// A rule that only logs is envoyproxy/ratelimit's shadow mode.
func TestActions(t *testing.T) {
	for action, want := range map[string]rls.RateLimitResponse_Code{"log": ok, "block": over, "close": over, "shadow_ban": over} {
		t.Run(action, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := serve(t, strings.ReplaceAll(twoRules, "block", action))
				tight := descriptor("rule", "tight", "ip", "192.0.2.1")
				for range 4 {
					expect(t, "below the limit", s.ask(0, tight), ok, ok)
				}
				r := s.ask(0, tight)
				expect(t, "over", r, want, want)
				if secret := action == "log" || action == "shadow_ban"; secret && (r.Statuses[0].CurrentLimit != nil || r.ResponseHeadersToAdd != nil) {
					t.Errorf("clients must not notice the rule: %v", r)
				}
			})
		})
	}
}

func TestInvalidRequests(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := serve(t, twoRules)
		for want, req := range map[string]*rls.RateLimitRequest{
			"the domain is empty":            {Descriptors: []*ratelimit.RateLimitDescriptor{descriptor("rule", "tight", "ip", "192.0.2.1")}},
			"the request has no descriptors": {Domain: "edge"},
		} {
			r, err := s.ShouldRateLimit(context.Background(), req)
			if r != nil || status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, %v; want %q", r, err, want)
			}
		}
		if got := metric(t, s.node, "edge_envoy_requests_total", "invalid"); got != 2 {
			t.Errorf("%v invalid requests were counted, want 2", got)
		}
	})
}

// metric returns the value of a counter with a label.
func metric(t *testing.T, n *pop.Node, name, label string) float64 {
	t.Helper()
	families, err := n.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("there is no metric %s with %s", name, label)
	return 0
}

const oddRules = twoRules + `
  - {id: key, characteristics: ["header:x-key"], limits: [{threshold: 1, period: 1m}], action: block, mitigation_timeout: 1m}
  - {id: plan, characteristics: [{header: x-plan, missing: skip}], limits: [{threshold: 1, period: 1m}], action: block, mitigation_timeout: 1m}
`

// Descriptors that no rule can decide are always OK, counted by cause, and logged once.
func TestUndecided(t *testing.T) {
	for _, c := range []struct {
		name       string
		descriptor *ratelimit.RateLimitDescriptor
		cause, log string // empty if it is decided
	}{
		{"no entries", descriptor(), "rule", "no rule or generic_key entry"},
		{"no rule is named", descriptor("ip", "192.0.2.1"), "rule", "no rule or generic_key entry"},
		{"an unknown rule", descriptor("rule", "tigth", "ip", "192.0.2.1"), "rule", `no rule \"tigth\"`},
		{"no address", descriptor("rule", "tight"), "characteristic", "missing value of ip, by which rule tight counts"},
		{"an invalid address", descriptor("rule", "tight", "ip", "alice"), "characteristic", "is not an address"},
		{"no header", descriptor("rule", "key", "ip", "192.0.2.1"), "characteristic", "missing value of header:x-key, by which rule key counts"},
		{"negative hits", &ratelimit.RateLimitDescriptor{Entries: descriptor("rule", "tight", "ip", "192.0.2.1").Entries, HitsAddend: wrapperspb.UInt64(9), IsNegativeHits: true},
			"hits", "the hits_addend is negative"},
		{"no header, and the rule skips that", descriptor("rule", "plan"), "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := serve(t, oddRules)
				for range 6 {
					r := s.ask(0, c.descriptor)
					expect(t, "undecided", r, ok, ok)
					if r.Statuses[0].CurrentLimit != nil {
						t.Errorf("a limit: %v", r)
					}
				}
				for _, cause := range []string{"rule", "characteristic", "hits"} {
					want := 0.0
					if cause == c.cause {
						want = 6
					}
					if got := metric(t, s.node, "edge_envoy_undecided_descriptors_total", cause); got != want {
						t.Errorf("%v counted for %s, want %v", got, cause, want)
					}
				}
				lines := strings.Count(s.log.String(), "\n")
				if !strings.Contains(s.log.String(), c.log) || lines != min(1, len(c.cause)) {
					t.Errorf("log %q, want one line with %q", s.log, c.log)
				}
			})
		})
	}
}

// A descriptor shares the count of HTTP requests with the same values.
func TestCharacteristics(t *testing.T) {
	var tested []string
	for _, c := range []struct{ characteristics, entries string }{
		{"ip", "rule=r remote_address=192.0.2.1"},
		{"network:24/48", "rule=r remote_address=192.0.2.9"},
		{"{first: [cookie:sid, ip]}", "rule=r cookie:sid=s1 remote_address=192.0.2.1"},
		{"ip", "generic_key=r ip=192.0.2.1"},
		{"ip", "generic_key=r masked_remote_address=192.0.2.1/32 generic_key=other"},
		{"ip", "generic_key=other rule=r remote_address=192.0.2.1"},
		{"host", "rule=r host=example.com"},
		{"host", "rule=r :authority=EXAMPLE.com:8080"},
		{"path, method", "rule=r method=POST path=/shop%2Fa"},
		{"path, method", "rule=r :method=POST :path=/shop/a?q=1"},
		{`"header:x-api-key"`, "rule=r X-Api-Key=abc"},
		{`"header:x-api-key", ip`, "rule=r header:x-api-key=abc remote_address=192.0.2.1"},
		{`"cookie:sid", "query:q"`, "rule=r query:q=1 cookie:sid=s1"},
	} {
		tested = append(tested, strings.FieldsFunc(c.characteristics, func(r rune) bool { return !unicode.IsLetter(r) })...)
		t.Run(c.entries, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := serve(t, "rules: [{id: r, characteristics: ["+c.characteristics+"], limits: [{threshold: 10, period: 1m}], action: block, mitigation_timeout: 0s}]")
				r := httptest.NewRequest("POST", "http://example.com/shop/a?q=1", nil)
				r.RemoteAddr = "192.0.2.1:1234"
				r.Header.Set("X-Api-Key", "abc")
				r.Header.Set("Cookie", "sid=s1")
				for range 4 {
					s.node.Admit(r)
				}
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
				var keyValues []string
				for each := range strings.FieldsSeq(c.entries) {
					key, value, _ := strings.Cut(each, "=")
					keyValues = append(keyValues, key, value)
				}
				if got := s.ask(0, withHits(0, descriptor(keyValues...))).Statuses[0]; got.LimitRemaining != 6 {
					t.Errorf("status %v, want 6 of 10 left", got)
				}
			})
		})
	}
	for _, kind := range rule.KindNames()[rule.IP:] {
		if !slices.Contains(tested, kind) && kind != rule.Label.String() { // labels follow from the address
			t.Errorf("%s has no row in this test", kind)
		}
	}
}

// The access lists decide first, even for rules that do not count by address.
func TestAccessLists(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := serve(t, "allow: [192.0.2.1]\ndeny: [192.0.2.2]\n"+twoRules+`
  - {id: key, characteristics: ["header:x-key"], limits: [{threshold: 1, period: 1m}], action: block, mitigation_timeout: 1m}
`)
		for range 6 {
			expect(t, "allowed", s.ask(9, descriptor("rule", "tight", "remote_address", "192.0.2.1")), ok, ok)
			expect(t, "denied", s.ask(0, descriptor("rule", "tight", "remote_address", "192.0.2.2")), over, over)
			expect(t, "denied by another rule", s.ask(0, descriptor("rule", "key", "x-key", "a", "remote_address", "192.0.2.2")), over, over)
		}
		expect(t, "what was denied is not counted", s.ask(0, descriptor("rule", "key", "x-key", "a")), ok, ok)
	})
}

func TestMetrics(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := serve(t, twoRules)
		s.ask(0, descriptor("rule", "tight", "ip", "192.0.2.1"))
		if got := metric(t, s.node, "edge_envoy_requests_total", "ok"); got != 1 {
			t.Errorf("%v requests were counted, want 1", got)
		}
		problems, err := testutil.GatherAndLint(s.node.Gatherer())
		if err != nil || len(problems) > 0 {
			t.Errorf("%v %v", problems, err)
		}
		page, err := os.ReadFile("../../docs/metrics.md")
		if err != nil {
			t.Fatal(err)
		}
		families, err := s.node.Gatherer().Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if name := f.GetName(); strings.HasPrefix(name, "edge_") && !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("docs/metrics.md lacks %s", name)
			}
		}
	})
}
