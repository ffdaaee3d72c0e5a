package rule_test

import (
	"fmt"
	"testing"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/rule"
)

func TestBound(t *testing.T) {
	for _, test := range []struct {
		limit            rule.Limit
		late, cost, want uint64
		arithmetic       string
	}{
		{rule.Limit{Threshold: 5}, 0, 1, 11, "2·(5 + 0) + 1"},
		{rule.Limit{Threshold: 5, SubWindows: 6}, 3, 1, 17, "2·(5 + 3) + 1"},
		{rule.Limit{Threshold: 5, Estimate: counter.Fixed}, 3, 1, 18, "2·(5 + 3 + 1)"},
		{rule.Limit{Threshold: 5, Estimate: counter.WholeOldest}, 3, 1, 9, "5 + 3 + 1"},
		{rule.Limit{Threshold: 5, Estimate: counter.WeightedRounded}, 3, 1, 19, "2·(5 + 3 + 1) + 1"},
		{rule.Limit{Threshold: 5}, 30, 10, 80, "2·(5 + 30) + 10"},
		{rule.Limit{Threshold: 5, Estimate: counter.Fixed}, 30, 10, 90, "2·(5 + 30 + 10)"},
		{rule.Limit{Threshold: 5, Estimate: counter.WholeOldest}, 30, 10, 45, "5 + 30 + 10"},
		{rule.Limit{Threshold: rule.MaxThreshold}, rule.MaxThreshold, rule.MaxCost, 1<<55 + rule.MaxCost, "2·(9007199254740992 + 9007199254740992) + 1000000"},
	} {
		if got, arithmetic := test.limit.Bound(test.late, test.cost); got != test.want || arithmetic != test.arithmetic {
			t.Errorf("Bound(%d, %d) of %+v = %d, %q, want %d, %q", test.late, test.cost, test.limit, got, arithmetic, test.want, test.arithmetic)
		}
	}
}

func TestString(t *testing.T) {
	r := parse(t, withCharacteristics("[ip, {header: X-Api-Key, missing: skip}]")).Rules()[0]
	for _, test := range []struct {
		value fmt.Stringer
		want  string
	}{
		{rule.Log, "log"}, {rule.ShadowBan, "shadow_ban"}, {rule.Block, "block"}, {rule.Close, "close"},
		{rule.FailLocal, "local"}, {rule.FailOpen, "open"}, {rule.FailClosed, "closed"},
		{rule.IP, "ip"}, {rule.Query, "query"},
		{r.Characteristics[0], "ip"}, {r.Characteristics[1], "header:x-api-key"},
		{r.Limits[0], "5 in 1m"},
	} {
		if got := test.value.String(); got != test.want {
			t.Errorf("String of %#v = %q, want %q", test.value, got, test.want)
		}
	}
	if !(rule.Close > rule.Block && rule.Block > rule.ShadowBan && rule.ShadowBan > rule.Log) {
		t.Error("actions are not in the order of their severity")
	}
}

func TestStatuses(t *testing.T) {
	var edges rule.Statuses
	for _, status := range []int{200, 263, 264, 599} {
		edges.Add(status)
	}
	for status, want := range map[int]bool{-1: false, 0: false, 199: false, 200: true, 201: false, 263: true, 264: true, 265: false, 598: false, 599: true, 600: false, 647: false, 1 << 30: false} {
		if got := edges.Has(status); got != want {
			t.Errorf("Has(%d) = %t, want %t", status, got, want)
		}
	}
}
