package rule_test

import (
	"testing"

	"github.com/edgelimit/edge/rule"
)

func TestCurrent(t *testing.T) {
	const limits = "limits: [{threshold: 5, period: 1m}]"
	before := parse(t, "rules:\n"+
		"- {id: same, characteristics: [ip], "+limits+"}\n"+
		"- {id: edited, characteristics: [ip], "+limits+"}\n"+
		"- {id: gone, characteristics: [ip], "+limits+"}\n"+
		"- {id: other-key, characteristics: [ip], "+limits+"}\n"+
		"- {id: other-name, characteristics: [header:a], "+limits+"}\n")
	after := parse(t, "rules:\n"+
		"- {id: new, characteristics: [ip], "+limits+"}\n"+
		"- {id: other-name, characteristics: [header:b], "+limits+"}\n"+
		"- {id: edited, characteristics: [ip], limits: [{threshold: 6, period: 1h}], action: log, on_failure: open, match: {hosts: [a]}}\n"+
		"- {id: other-key, characteristics: [ip, host], "+limits+"}\n"+
		"- {id: same, characteristics: [ip], "+limits+"}\n")
	for _, r := range before.Rules() {
		if got := before.Current(r); got != r {
			t.Errorf("Current(%s) in its own set = %v, want the rule itself", r.ID, got)
		}
		want := map[string]*rule.Rule{"same": after.Rules()[4], "edited": after.Rules()[2]}[r.ID]
		if got := after.Current(r); got != want {
			t.Errorf("Current(%s) = %v, want %v", r.ID, got, want)
		}
	}
	for name, empty := range map[string]*rule.Set{"a set without rules": parse(t, "rules: []\n"), "the zero set": new(rule.Set)} {
		if got := empty.Current(before.Rules()[0]); got != nil {
			t.Errorf("Current in %s = %v, want nil", name, got)
		}
	}
}
