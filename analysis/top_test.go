package analysis

import (
	"fmt"
	"testing"

	"github.com/edgelimit/edge/rule"
)

// The frequent paths are remembered, even if there are very many.
func TestTopPaths(t *testing.T) {
	var r refusals
	var q replayedRequest
	for i := range 100_000 {
		q.entry.Path = fmt.Sprint("/random/", i)
		if i%10 == 0 {
			q.entry.Path = "/often"
		}
		q.now = int64(i)
		r.add(&q, rule.ClientPrefix{})
	}
	if len(r.paths) > maxPaths {
		t.Errorf("%d paths are remembered", len(r.paths))
	}
	if top := r.topPaths(1); len(top) != 1 || top[0] != (TopPath{"/often", 10_000}) {
		t.Errorf("top path %v", top)
	}
}
