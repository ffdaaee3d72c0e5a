package envoy

import (
	"testing"
	"time"

	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/pop"
)

// A refusal has the fields that its verdict can have, and one that clients must not notice has none.
func TestRefusalFields(t *testing.T) {
	id := limit.ID{1}
	for name, test := range map[string]struct {
		answers []pop.Answer
		want    map[string]string
	}{
		"blocked":             {[]pop.Answer{{Decision: limit.Decision{Verdict: limit.Passed}}, {Decision: limit.Decision{Verdict: limit.Blocked}, ID: id, RetryAfter: 1500 * time.Millisecond}}, map[string]string{"refusal-id": id.String(), "retry-after": "2"}},
		"shard not available": {[]pop.Answer{{Decision: limit.Decision{Verdict: limit.Unavailable}, RetryAfter: time.Second}}, map[string]string{"retry-after": "1"}},
		"denied":              {[]pop.Answer{{Decision: limit.Decision{Verdict: limit.Denied}}}, nil},
		"shadow ban":          {[]pop.Answer{{Decision: limit.Decision{Verdict: limit.ShadowBanned}, ID: id, RetryAfter: time.Second}}, nil},
		"passed":              {[]pop.Answer{{Decision: limit.Decision{Verdict: limit.Passed}}}, nil},
	} {
		fields := refusalFields(test.answers)
		if len(fields) != len(test.want) {
			t.Errorf("%s: fields %v, want %v", name, fields, test.want)
		}
		for _, f := range fields {
			if f.Value != test.want[f.Key] {
				t.Errorf("%s: fields %v, want %v", name, fields, test.want)
			}
		}
	}
}
