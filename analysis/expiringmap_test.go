package analysis

import (
	"testing"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/analysis/client"
)

func TestAging(t *testing.T) {
	a := expiringMap[int]{life: 10}
	for _, step := range []struct {
		now   int64
		key   string
		known bool
	}{
		{100, "a", false}, {105, "b", false}, {110, "a", true}, {111, "b", true}, {112, "c", false},
		{121, "a", false}, {121, "b", true}, {200, "b", false}, {210, "b", true}, {220, "b", true}, {230, "b", true}, {241, "b", false},
	} {
		key := accesslog.Client{step.key[0]}
		v, known := a.get(&key, client.Hash(&key), step.now)
		if known != step.known || known && *v != 1 || !known && *v != 0 {
			t.Errorf("at %d: %s is %d, known = %t, want %t", step.now, step.key, *v, known, step.known)
		}
		*v = 1
	}
}
