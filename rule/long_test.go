package rule_test

import (
	"strings"
	"testing"

	"github.com/edgelimit/edge/rule"
)

// The longest spelling of a path that a rule names is matched. Of a longer path, only the length is read.
func TestLongSpellings(t *testing.T) {
	set := parse(t, "rules:\n- {id: a, match: {paths: [/kk]}, except: {paths: [/k]}, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}\n")
	const kelvin = "%E2%84%AA" // folds to k
	for path, want := range map[string]int{
		"%2f" + kelvin + kelvin:         1,
		"/" + kelvin + kelvin + "/":     1,
		"/" + kelvin + kelvin + "%2f":   1,
		"/" + strings.Repeat(kelvin, 3): 0,
		"/" + kelvin:                    0,
		"/" + strings.Repeat("k", 4000): 0,
	} {
		req := rule.Request{Method: "GET", Host: "example.com", Path: path}
		req.Canonicalize(rule.ClientPrefix{})
		if got := len(set.Match(&req, nil)); got != want {
			t.Errorf("%d rules match %.40s, want %d", got, path, want)
		}
	}
}
