package async

import (
	"log/slog"
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
	rules, err := rulefile.Parse("rules.yaml", []byte("rules: [{id: all, characteristics: [ip], limits: [{threshold: 16, period: 1m}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	table := mitigation.New(mitigation.Options{})
	now := time.Unix(6000, 0)
	c, err := New(Options{
		Rules: rules, Table: table, Now: func() time.Time { return now }, Logger: slog.New(slog.DiscardHandler),
	}, func(*rule.Rule) {}, func(*rule.Rule, uint64) {})
	if err != nil {
		t.Fatal(err)
	}
	offer := func(key counter.Key, n int) {
		for range n {
			c.Offer(rules.Rules()[0], key, 0, new(mitigation.Sample), 1, now)
		}
	}
	key, other := counter.Key{}, counter.Key{1}
	if c.near.of(key) != c.near.of(other) {
		t.Fatal("the keys do not share an element")
	}
	offer(key, 15)
	c.Flush()
	offer(other, 1)
	c.Flush()
	offer(key, 1)
	if _, held := table.Held(key, now); held {
		t.Fatal("the key was mitigated at its threshold")
	}
	offer(key, 1)
	if _, held := table.Held(key, now); !held {
		t.Error("the key was not mitigated on the evidence of its waiting requests")
	}
	if now = now.Add(2 * time.Minute); c.near.has(key, now) {
		t.Error("the key is still near its threshold after two windows without a request")
	}
}
