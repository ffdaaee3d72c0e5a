package async

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// A key near its threshold stays marked as near while keys that share its element and are far from their
// thresholds are counted. A burst is refused because of the requests that wait to be counted.
func TestOtherKeysDoNotHideNearKey(t *testing.T) {
	c, now := newLoop(t, "threshold: 16", Options{})
	table := c.o.Table
	offer := func(key counter.Key, n int) { offerTo(c, key, n, *now) }
	key, other := counter.Key{}, counter.Key{1}
	if c.near.of(key) != c.near.of(other) {
		t.Fatal("the keys do not share an element")
	}
	offer(key, 15)
	c.Flush()
	offer(other, 1)
	c.Flush()
	offer(key, 1)
	if _, held := table.Held(key, *now); held {
		t.Fatal("the key was mitigated at its threshold")
	}
	offer(key, 1)
	if r, held := table.Held(key, *now); !held || r.Sample.At != now.UnixMicro() {
		t.Errorf("%+v: the key was not mitigated on the evidence of its waiting requests, or the last one has another time", r)
	}
	if *now = now.Add(2 * time.Minute); c.near.has(key, *now) {
		t.Error("the key is still near its threshold after two windows without a request")
	}
}

// newLoop returns a Loop whose rule has this limit a minute, and its clock.
func newLoop(t *testing.T, limit string, o Options) (*Loop, *time.Time) {
	t.Helper()
	now := time.Unix(6000, 0)
	o.Rules, o.Table = rulesOf(t, limit), mitigation.New(mitigation.Options{})
	o.Now, o.Logger = func() time.Time { return now }, slog.New(slog.DiscardHandler)
	c, err := New(o, func(*rule.Rule) {}, func(*rule.Rule, uint64) {})
	if err != nil {
		t.Fatal(err)
	}
	return c, &now
}

func rulesOf(t *testing.T, limit string) *rule.Set {
	t.Helper()
	text := "rules: [{id: all, characteristics: [ip], limits: [{" + limit + ", period: 1m}]}]"
	rules, err := rulefile.Parse("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func offerTo(c *Loop, key counter.Key, n int, now time.Time) {
	for range n {
		c.Offer(c.rules.Load().Rules()[0], key, 0, new(mitigation.Sample), 1, now)
	}
}

// Right after a reload, requests are compared with the new limit, although the loop has not evaluated the key yet.
func TestOfferAfterReload(t *testing.T) {
	for _, tt := range []struct {
		name, limit string
		want        bool
	}{
		{"a higher threshold", "threshold: 20", false},
		{"a lower threshold", "threshold: 10", true},
		{"another estimate", "threshold: 16, estimate: fixed", false},
		{"no change", "threshold: 16", true},
	} {
		c, now := newLoop(t, "threshold: 16", Options{})
		key := counter.Key{}
		offerTo(c, key, 15, *now)
		c.Flush()
		*now = now.Add(time.Minute)
		c.SetRules(rulesOf(t, tt.limit))
		offerTo(c, key, 2, *now)
		if _, held := c.o.Table.Last(key); held != tt.want {
			t.Errorf("%s: the key was mitigated: %t, want %t", tt.name, held, tt.want)
		}
	}
}

// Requests start a bounded number of mitigations while the loop does not run. It starts the others.
func TestMitigationsByRequestsAreBounded(t *testing.T) {
	const keys = maxChanges + 100
	c, now := newLoop(t, "threshold: 1", Options{})
	for i := range keys {
		offerTo(c, counter.Key{byte(i), byte(i >> 8)}, 2, *now)
	}
	if got := c.o.Table.Len(); got != maxChanges {
		t.Errorf("requests started %d mitigations, want %d", got, maxChanges)
	}
	if c.Flush(); c.o.Table.Len() != keys {
		t.Errorf("with those of the loop there are %d mitigations, want %d", c.o.Table.Len(), keys)
	}
}

// A limit with sub-windows is counted alone by exactly the numbers of nodes that leave no budget for each.
func TestNodesThatCountAlone(t *testing.T) {
	nodes := 0
	c, _ := newLoop(t, "threshold: 16, sub_windows: 6", Options{Nodes: func() int { return nodes }})
	layout, _ := counter.LayoutOf(6)
	for nodes = range 2 * layout.MaxNodes() {
		want := 0
		if layout.Budget(counter.Senders(nodes)) == 0 {
			want = 1
		}
		if limits, alone := c.SubWindows(); limits != 1 || alone != want {
			t.Fatalf("with %d nodes, %d of %d limits are counted alone, want %d of 1", nodes, alone, limits, want)
		}
	}
}

// A liveShard is a Shard that is never asked.
type liveShard struct {
	Shard
	addr string
}

func (s *liveShard) Addr() string { return s.addr }
func (*liveShard) Down() bool     { return false }

// The same shards change nothing, and shards that stay keep what is in flight to them.
func TestSetShardsKeepsShards(t *testing.T) {
	a, b := &liveShard{addr: "a:1"}, &liveShard{addr: "b:1"}
	c, _ := newLoop(t, "threshold: 16", Options{Shards: []Shard{a, b}})
	before := c.placed.Load()
	if err := c.SetShards([]Shard{b, a}); err != nil || c.placed.Load() != before {
		t.Errorf("the same shards change the placement: %v", err)
	}
	if err := c.SetShards([]Shard{b}); err != nil || c.placed.Load().all[0] != before.all[1] {
		t.Errorf("the shard that stays is a new one: %v", err)
	}
}

// Records, lifts and keys near a threshold name clients only where the operator allows it.
func TestClientsInRecords(t *testing.T) {
	for _, logs := range []bool{false, true} {
		var sent mitigation.Record
		c, now := newLoop(t, "threshold: 16", Options{LogClients: logs, Publish: func(r mitigation.Record) { sent = r }})
		r, key, learned, client := c.rules.Load().Rules()[0], counter.Key{1}, counter.Key{2}, netip.MustParseAddr("192.0.2.1")
		check := func(what string, got netip.Addr) {
			t.Helper()
			if logs && got != client || !logs && got.IsValid() {
				t.Errorf("LogClients = %t: %s has the client %v", logs, what, got)
			}
		}
		offer := func(n int) {
			for range n {
				c.Offer(r, key, 0, &mitigation.Sample{Client: client}, 1, *now)
			}
			c.Flush()
		}
		offer(15)
		near, ok := c.nearOf(c.part(key).find(key), *now)
		if check("a key near its threshold", near.Client); !ok {
			t.Error("15 of 16 requests are not near")
		}
		offer(2)
		record, _ := c.o.Table.Last(key)
		check("a record", record.Client)
		c.mitigate(key, r, finding{back: record.Deadline.Add(time.Hour)}, new(mitigation.Sample), maxChanges, *now)
		c.Step()
		if check("an extended record", sent.Client); sent.Lifetime != record.Lifetime+time.Hour {
			t.Errorf("%v is extended to %v", record.Lifetime, sent.Lifetime)
		}
		lift, err := c.Lift(key, *now)
		if check("a lift", lift.Client); err != nil {
			t.Error(err)
		}
		c.Learn(mitigation.Record{Key: learned, Client: client, Start: now.UnixMicro(), Lifetime: time.Hour, Deadline: now.Add(time.Hour)}, "peer", *now)
		record, _ = c.o.Table.Last(learned)
		check("a record of a peer", record.Client)
	}
}
