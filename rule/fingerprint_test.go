package rule_test

import (
	"testing"

	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// Like keys, a fingerprint depends on the ID and the characteristics of a rule.
func TestFingerprint(t *testing.T) {
	parse := func(text string) *rule.Set {
		set, err := rulefile.Parse("rules.yaml", []byte("rules: ["+text+"]"))
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	const limits = `limits: [{threshold: 5, period: 1m}]`
	set := parse(`{id: a, characteristics: [ip], ` + limits + `}, {id: b, characteristics: [ip, "header:x-key"], ` + limits + `}`)
	for _, r := range set.Rules() {
		if got := set.ByFingerprint(r.Fingerprint()); got != r || r.Fingerprint() == 0 {
			t.Errorf("the rule of the fingerprint of %s is %v", r.ID, got)
		}
	}
	for name, tt := range map[string]struct {
		text string
		same bool
	}{
		"another threshold":         {`{id: a, characteristics: [ip], limits: [{threshold: 9, period: 1h}], action: log}`, true},
		"other characteristics":     {`{id: a, characteristics: [ip, host], ` + limits + `}`, false},
		"another name":              {`{id: b, characteristics: [ip, "header:x-kez"], ` + limits + `}`, false},
		"another ID, same position": {`{id: c, characteristics: [ip], ` + limits + `}`, false},
	} {
		if got := set.ByFingerprint(parse(tt.text).Rules()[0].Fingerprint()); (got != nil) != tt.same {
			t.Errorf("%s: found %v, want found: %t", name, got, tt.same)
		}
	}
	if got := parse("").ByFingerprint(1); got != nil {
		t.Errorf("an empty set has the rule %v", got)
	}
}
