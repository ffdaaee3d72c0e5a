package analysis

import (
	"fmt"
	"testing"

	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/edgelimit/edge/pop/rule"
)

// Of very many paths the frequent ones are remembered.
func TestTopPaths(t *testing.T) {
	var r refusals
	req := rule.Request{}
	for i := range 100_000 {
		req.Path = fmt.Sprint("/random/", i)
		if i%10 == 0 {
			req.Path = "/often"
		}
		r.add(&accesslog.Entry{}, &req, rule.ClientPrefix{}, int64(i))
	}
	if len(r.paths) > maxPaths {
		t.Errorf("%d paths are remembered", len(r.paths))
	}
	if top := r.topPaths(1); len(top) != 1 || top[0] != (TopPath{"/often", 10_000}) {
		t.Errorf("top path %v", top)
	}
}
