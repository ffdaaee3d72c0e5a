package limit_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

// deadShards returns shards whose breakers are open.
func deadShards(tb testing.TB, n int) (shards []async.Shard) {
	refuse := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") }
	for i := range n {
		s := memcached.New(fmt.Sprintf("s%d:1", i), wire.Options{Dial: refuse})
		for !s.Down() {
			if err := s.Probe(); err == nil {
				tb.Fatal("a shard that should refuse answered")
			}
		}
		shards = append(shards, s)
	}
	return shards
}

func TestFailingClosedAllocatesNothing(t *testing.T) {
	for _, tt := range []struct {
		name   string
		shards []async.Shard
		want   limit.Verdict
	}{
		{"shards that were not asked yet", []async.Shard{memcached.New("s:1", wire.Options{})}, limit.Passed},
		{"dead shards", deadShards(t, 2), limit.Unavailable},
		{"no shards", nil, limit.Unavailable},
	} {
		l, table, secret := newLimiter(t, closedRule, tt.shards...)
		now := time.Now()
		mitigate(t, l, table, secret, 1, now)
		for i, want := range []limit.Verdict{tt.want, limit.Blocked} {
			if n := testing.AllocsPerRun(1000, func() {
				req := request(uint32(i))
				if d := l.Decide(&req, now); d.Verdict != want {
					t.Fatalf("%s: client %d is %v, want %v", tt.name, i, d.Verdict, want)
				}
			}); n != 0 {
				t.Errorf("%s: Decide allocates %v times for a client that is %v, want 0", tt.name, n, want)
			}
		}
	}
}

// Access lists and mitigations that refuse take precedence over rules that fail closed. Of these, the first in the files
// refuses the request.
func TestSeverityOfFailingClosed(t *testing.T) {
	table := mitigation.New(mitigation.Options{})
	secret, err := counter.NewSecret("a secret of the severities")
	if err != nil {
		t.Fatal(err)
	}
	reg, now := prometheus.NewPedanticRegistry(), time.Now()
	const more = ", characteristics: [ip], limits: [{threshold: 5, period: 1m}]}"
	l, err := limit.New(limit.Options{
		Secret: secret, Table: table, Registerer: reg, Shards: deadShards(t, 2),
		Rules: parse(t, "deny: [10.9.0.0/16]\nallow: [10.8.0.0/16]\nrules:\n"+
			"  - {id: watch, action: log, on_failure: closed"+more+"\n"+
			"  - {id: ban, match: {hosts: [ban.example]}, action: shadow_ban"+more+"\n"+
			"  - {id: wild, match: {hosts: ['*.wild.example']}, on_failure: closed"+more+"\n"+
			"  - {id: second, match: {hosts: [both.example, ban.example, one.example, a.wild.example]}, on_failure: closed"+more+"\n"+
			"  - {id: third, match: {hosts: [both.example]}, on_failure: closed, count: {statuses: [401]}"+more+"\n"),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	mitigated := func(client uint32, id string) {
		req := request(client)
		req.Canonicalize(rule.ClientPrefix{IPv4: 32, IPv6: 64})
		for _, r := range l.Rules().Rules() {
			if what, _ := r.AppendKey(nil, &req); r.ID == id {
				table.Merge(mitigation.Record{Key: secret.Tag(what), Start: now.UnixMicro(), Why: exceeded, Lifetime: time.Hour, Deadline: now.Add(time.Hour)}, now)
			}
		}
	}
	mitigated(1, "watch")
	mitigated(2, "watch")
	mitigated(2, "ban")
	mitigated(3, "second")
	for _, tt := range []struct {
		name   string
		client uint32
		host   string
		want   limit.Verdict
		rule   string
	}{
		{"a rule that only logs does not fail closed", 7, "none.example", limit.Passed, ""},
		{"its record does not either", 1, "none.example", limit.Logged, "watch"},
		{"a rule that fails closed", 7, "one.example", limit.Unavailable, "second"},
		{"two of them", 7, "both.example", limit.Unavailable, "second"},
		{"the first in the files has the less specific host", 7, "a.wild.example", limit.Unavailable, "wild"},
		{"with the record of a rule that only logs", 1, "one.example", limit.Unavailable, "second"},
		{"with the record of another rule", 2, "ban.example", limit.ShadowBanned, "ban"},
		{"with its own record", 3, "one.example", limit.Blocked, "second"},
		{"one has a record, the other fails", 3, "both.example", limit.Blocked, "second"},
		{"denied", 9 << 16, "both.example", limit.Denied, ""},
		{"allowed", 8 << 16, "both.example", limit.Allowed, ""},
	} {
		req := request(tt.client)
		req.Host = tt.host
		d := l.Decide(&req, now)
		id := ""
		if d.Rule != nil {
			id = d.Rule.ID
		}
		if d.Verdict != tt.want || id != tt.rule {
			t.Errorf("%s: %v by %q, want %v by %q", tt.name, d.Verdict, id, tt.want, tt.rule)
		}
		l.Answered(&d, 401, nil, now)
		if d.Verdict == limit.Unavailable && (d.Record != nil || len(l.Quotas(nil, &d, now)) > 0) {
			t.Errorf("%s: record %+v and quotas for a client that exceeded no limit", tt.name, d.Record)
		}
	}
	if n := value(t, reg, "edge_requests_total", "unavailable"); n != 4 {
		t.Errorf("%v requests are counted as unavailable, want 4", n)
	}
	if n := value(t, reg, "edge_queue_depth", ""); n != 1 {
		t.Errorf("%v keys wait to be counted, want 1: that of the request that passed and has no record", n)
	}
}
