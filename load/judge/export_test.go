package judge

import "github.com/edgelimit/edge/pop/rule"

// KeysOf returns the keys under which a rule counts a request: none if it does not concern it.
func KeysOf(r *rule.Rule, p Properties, bits rule.ClientPrefix) []string {
	f := formOf(&p, bits)
	if !concerns(r, &f) {
		return nil
	}
	return keys(r, &f, false)
}

// Unknown says what of a rule is not judged.
var Unknown = unknown
