package async

import (
	"log/slog"
	"testing"

	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

// However often shards leave and return, the node remembers few former placements: newest first.
func TestFormerPlacementsAreBounded(t *testing.T) {
	c, err := New(Options{
		Rules: new(rule.Set), Table: mitigation.New(mitigation.Options{}), Logger: slog.New(slog.DiscardHandler),
		Shards: []Shard{memcached.New("s1:11211", memcached.Options{}), memcached.New("s2:11211", memcached.Options{})},
	}, func(*rule.Rule) {}, func(*rule.Rule, uint64) {})
	if err != nil {
		t.Fatal(err)
	}
	var before *placement
	for i := range 20 {
		before = c.placed.Load()
		if err := c.SetOut([]string{"s1:11211", "s2:11211"}[i%2]); err != nil {
			t.Fatal(err)
		}
	}
	if past := c.placed.Load().past; len(past) != maxPast || past[0].ring != before.ring {
		t.Errorf("%d former placements are remembered, want %d, the newest first", len(past), maxPast)
	}
}
