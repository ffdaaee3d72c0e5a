package judge

import (
	"maps"
	"slices"

	"github.com/edgelimit/edge/rule"
)

// KeysOf returns the keys under which the nth rule counts a request, or nil if the rule does not apply.
func KeysOf(p Properties, set *rule.Set, bits rule.ClientPrefix, n int) []string {
	r := set.Rules()[n]
	f := formOf(&p, bits)
	f.labels = labelsOf(set)
	if len(paths(r, &f)) == 0 {
		return nil
	}
	return keys(r, &f, false)
}

// Overrides returns the keys in the overrides file of a rule.
func Overrides(r *rule.Rule) ([]string, error) {
	plans, err := overrides(r)
	return slices.Sorted(maps.Keys(plans)), err
}

// Width ranks a rule by how many clients share a key.
var Width = width

// Unknown returns the settings of a rule that are not judged.
var Unknown = unknown

// SpreadOf returns the distribution of values, in a unit.
var SpreadOf = spreadOf
