package judge

import "github.com/edgelimit/edge/pop/rule"

// KeysOf returns the keys under which the nth rule counts a request: none if it does not concern it.
func KeysOf(p Properties, set *rule.Set, bits rule.ClientPrefix, n int) []string {
	r := set.Rules()[n]
	f := formOf(&p, bits)
	f.labels = labelsOf(set)
	if !concerns(r, &f) {
		return nil
	}
	return keys(r, &f, false)
}

// Unknown says what of a rule is not judged.
var Unknown = unknown
