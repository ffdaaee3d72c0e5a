package rule_test

import (
	"math"
	"testing"

	"github.com/edgelimit/edge/rule"
)

// An answer tells what a request costs. If that is invalid, a default applies.
func TestCostIn(t *testing.T) {
	r := &rule.Rule{Cost: 7, CostHeader: "X-Cost"}
	for _, test := range []struct {
		values []string
		want   uint64
		ok     bool
	}{
		{[]string{"3"}, 3, true},
		{[]string{"0"}, 0, true},
		{[]string{"007"}, 7, true},
		{[]string{"1000000"}, rule.MaxCost, true},
		{[]string{"1000001"}, rule.MaxCost, false},
		{[]string{"99999999999999999999999"}, rule.MaxCost, false},
		{nil, 7, false},
		{[]string{""}, 7, false},
		{[]string{"3", "3"}, 7, false},
		{[]string{"3, 4"}, 7, false},
		{[]string{"-3"}, 7, false},
		{[]string{"1.5"}, 7, false},
		{[]string{"1_000"}, 7, false},
		{[]string{"0x10"}, 7, false},
		{[]string{"a lot"}, 7, false},
	} {
		if got, ok := r.CostIn(test.values); got != test.want || ok != test.ok {
			t.Errorf("CostIn(%q) = %d, %t, want %d, %t", test.values, got, ok, test.want, test.ok)
		}
	}
}

// The count of any number of requests is bounded.
func TestCostOf(t *testing.T) {
	for _, test := range []struct{ cost, n, want uint64 }{
		{0, 5, 5},
		{1, 5, 5},
		{7, 5, 35},
		{0, math.MaxUint64, rule.MaxThreshold},
		{rule.MaxCost, math.MaxUint64, rule.MaxThreshold / rule.MaxCost * rule.MaxCost},
	} {
		if got := (&rule.Rule{Cost: test.cost}).CostOf(test.n); got != test.want {
			t.Errorf("with a cost of %d, %d requests count as %d, want %d", test.cost, test.n, got, test.want)
		}
	}
}
