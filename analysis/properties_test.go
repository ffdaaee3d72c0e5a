package analysis_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/edgelimit/edge/analysis"
	"github.com/edgelimit/edge/analysis/accesslog"
	"github.com/google/go-cmp/cmp"
)

// A property is missing until an entry has it, whether a characteristic or only an alternative needs it.
func TestUnseen(t *testing.T) {
	unseen := analysis.NewUnseen(parse(t, `rules: [{id: a, limits: [{threshold: 1, period: 1m}],
		characteristics: [ip, network:24/48, host, path, method, query:q, {first: [cookie:sid, header:x-key, ip]}]}]`))
	unseen.Note(&accesslog.Entry{Host: "example.com", Header: []accesslog.Field{{Name: "Cookie", Value: "sid=a"}}})
	want := []string{"header:x-key", "method", "path", "query:q"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(unseen))); diff != "" {
		t.Errorf("properties that no entry has (-want +got):\n%s", diff)
	}
	unseen = analysis.NewUnseen(parse(t, `rules: [{id: a, except: [{methods: [PUT]}], limits: [{threshold: 1, period: 1m}], characteristics: [ip]}]`))
	if unseen["method"] == nil {
		t.Error("the method in except is not a property that the rule uses")
	}
}
