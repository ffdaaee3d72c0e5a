package judge

import "github.com/edgelimit/edge/rule"

// actions say how clients see the answers to mitigated requests, by the action of the rule.
var actions = [256]struct{ judged, refuses, hides, closes bool }{
	rule.Log:       {judged: true},
	rule.Shed:      {judged: true, refuses: true},
	rule.ShadowBan: {judged: true, refuses: true, hides: true}, // like the origin's, but for the body
	rule.Block:     {judged: true, refuses: true},
	rule.Close:     {judged: true, refuses: true, closes: true},
}

func acts(r *rule.Rule) bool  { return actions[r.Action].refuses }
func hides(r *rule.Rule) bool { return actions[r.Action].hides }
