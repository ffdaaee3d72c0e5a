package analysis

import (
	"testing"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/client"
)

// A table keeps the values of keys that are used at least once per life, and forgets others within twice that
// time.
func TestAging(t *testing.T) {
	a := agingTable[int]{life: 10, each: 1}
	for _, step := range []struct {
		now  int64
		key  string
		want int
	}{
		{100, "a", 0}, {105, "b", 0}, {110, "a", 100}, {111, "b", 105}, {112, "c", 0},
		{122, "b", 111}, {122, "a", 0}, {133, "b", 0}, {200, "b", 0}, {210, "b", 200}, {220, "b", 210}, {241, "b", 0},
	} {
		key := accesslog.Client{step.key[0]}
		a.age(step.now, step.now)
		v := &a.get(&key, client.Hash(&key))[0]
		if *v != step.want {
			t.Errorf("at %d: %s is %d, want %d", step.now, step.key, *v, step.want)
		}
		*v = int(step.now)
	}
}
