package limit_test

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/limit/decision"
	"github.com/edgelimit/edge/rule"
)

// The decision log has, for each key, the decision, the rule that made it, and whether the request counts.
func TestDecisionLog(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := startPop(t, 1, 1, `rules:
- {id: few, match: {paths: [/few]}, characteristics: [ip], limits: [{threshold: 2, period: 1h}], mitigation_timeout: 1h}
- {id: on, match: {paths: [/few]}, characteristics: [ip], limits: [{threshold: 1, period: 1h}], action: log, count_while_mitigated: true, count: {cost: 3}}
- {id: login, match: {paths: [/login]}, characteristics: [ip], limits: [{threshold: 100, period: 1h}], count: {statuses: [401], cost: 2}}`)
		defer p.stop()
		l := p.limiters[0]
		log := decision.New(decision.Options{File: filepath.Join(t.TempDir(), "log"), Size: 256 << 20, Node: "n1", Secret: p.secret, Share: 1, Clients: true, Now: time.Now})
		if err := log.Open(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { log.Run(ctx); close(ended) }()
		defer func() { cancel(); <-ended }()
		l.LogTo(log)

		decide := func(path string) limit.Decision {
			time.Sleep(time.Second)
			return l.Decide(&rule.Request{Addr: netip.MustParseAddr("192.0.2.1"), Path: path}, time.Now())
		}
		decide("/few")
		decide("/few")
		decide("/few")
		decide("/few")
		d := decide("/login")
		decided := time.Now().UnixMicro()
		time.Sleep(time.Second)
		l.Look(&rule.Request{Addr: netip.MustParseAddr("192.0.2.1"), Path: "/login"}, time.Now())
		l.Answered(&d, 401, nil, time.Now())
		d = decide("/login")
		l.Answered(&d, 200, nil, time.Now())
		l.Report(&rule.Request{Addr: netip.MustParseAddr("192.0.2.1"), Path: "/login"}, 401, nil, time.Now())
		l.DecideBy([]limit.Ask{
			{Rule: l.Rules().Rule("few"), Request: &rule.Request{Addr: netip.MustParseAddr("192.0.2.1")}, Times: 5},
			{Rule: l.Rules().Rule("on"), Request: &rule.Request{Addr: netip.MustParseAddr("192.0.2.9")}, Times: 5},
		}, time.Now())
		l.DecideBy([]limit.Ask{{Rule: l.Rules().Rule("few"), Request: &rule.Request{Addr: netip.MustParseAddr("192.0.2.9")}}}, time.Now())
		time.Sleep(time.Second)

		var got []string
		for _, line := range slices.Backward(log.Recent()) {
			if line.Event == decision.EventCount {
				got = append(got, fmt.Sprintf("%s count %d, decided %t", line.Rule, line.Cost, line.Decided == decided))
				continue
			}
			got = append(got, fmt.Sprintf("%s %s by %q mitigated %t other %t counted %t cost %d", line.Rule, line.Verdict, line.By, line.Mitigated, line.Other, line.Counted, line.Cost))
		}
		want := []string{
			`few passed by "" mitigated false other false counted true cost 1`,
			`on passed by "" mitigated false other false counted true cost 3`,
			`few logged by "on" mitigated false other false counted true cost 1`,
			`on logged by "on" mitigated true other false counted true cost 3`,
			`few logged by "on" mitigated false other false counted true cost 1`,
			`on logged by "on" mitigated true other false counted true cost 3`,
			`few blocked by "few" mitigated true other false counted false cost 1`,
			`on blocked by "few" mitigated true other true counted true cost 3`,
			`login passed by "" mitigated false other false counted false cost 2`,
			`login count 2, decided true`,
			`login passed by "" mitigated false other false counted false cost 2`,
			`login count 2, decided false`,
			`few blocked by "few" mitigated true other false counted false cost 5`,
			`on passed by "" mitigated false other true counted false cost 15`,
			`few passed by "" mitigated false other false counted false cost 0`,
		}
		if !slices.Equal(got, want) {
			for i := range max(len(got), len(want)) {
				t.Errorf("line %d\n     %v\nwant %v", i, slices.Concat(got[min(i, len(got)):], []string{"nothing"})[0], slices.Concat(want[min(i, len(want)):], []string{"nothing"})[0])
			}
		}
	})
}

// The sample of a mitigation that the loop starts is the request as it was, although an engine has reused its memory.
func TestSampleOfABorrowedRequest(t *testing.T) {
	for _, test := range []struct {
		rule  string
		count func(*limit.Limiter, *rule.Request)
	}{
		{"", func(l *limit.Limiter, req *rule.Request) { l.Decide(req, time.Now()) }},
		{", count: {statuses: [401]}", func(l *limit.Limiter, req *rule.Request) { l.Report(req, 401, nil, time.Now()) }},
	} {
		bubble.Test(t, func(t *testing.T) {
			p := startPop(t, 2, 1, "rules: [{id: few, characteristics: [ip], limits: [{threshold: 2, period: 1h}], mitigation_timeout: 1h"+test.rule+"}]")
			defer p.stop()
			of := func(text string) rule.Request {
				return rule.Request{Addr: netip.MustParseAddr("192.0.2.1"), Method: text[:3], Host: text[4:13], Path: text[14:], Borrowed: true}
			}
			for _, l := range []*limit.Limiter{p.limiters[0], p.limiters[0], p.limiters[1]} {
				text := []byte("GET a.example /path")
				req := of(unsafe.String(&text[0], len(text)))
				test.count(l, &req)
				clear(text)
				time.Sleep(time.Second)
			}
			req := of("GET a.example /path")
			d := p.limiters[1].Look(&req, time.Now())
			if d.Record == nil || d.Record.Sample == nil {
				t.Fatalf("decision %+v, want a mitigation with a sample", d)
			}
			if s := d.Record.Sample; s.Method != "GET" || s.Host != "a.example" || s.Path != "/path" {
				t.Errorf("sample %+v, want the request as it was", s)
			}
		})
	}
}
