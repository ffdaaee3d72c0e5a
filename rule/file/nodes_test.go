package file_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/edgelimit/edge/counter"
	rulefile "github.com/edgelimit/edge/rule/file"
)

func TestCheckNodes(t *testing.T) {
	for _, tt := range []struct {
		name, limits string
		nodes        int
		want         string // the errors; empty if there are none
	}{
		{"whole windows", "[{threshold: 50, period: 1m}]", 1 << 20, ""},
		{"six sub-windows, as many nodes as fit", "[{threshold: 50, period: 1m, sub_windows: auto}]", 128, ""},
		{"one node more", "[{threshold: 50, period: 1m, sub_windows: auto}]", 129,
			"rules.yaml:1:1: rule r: the limit of 50 in 1m has 6 sub-windows, which work with at most 128 nodes, but the PoP may have 129 (write sub_windows: 5)"},
		{"as many nodes as fit with five sub-windows", "[{threshold: 50, period: 1m, sub_windows: auto}]", 512,
			"rules.yaml:1:1: rule r: the limit of 50 in 1m has 6 sub-windows, which work with at most 128 nodes, but the PoP may have 512 (write sub_windows: 5)"},
		{"thousands of nodes, two limits of three", "[{threshold: 5, period: 1h}, {threshold: 50, period: 1m, sub_windows: 5}, {threshold: 7, period: 1s}, {threshold: 9, period: 2h, sub_windows: 6}]", 5000,
			"rules.yaml:1:1: rule r: the limit of 50 in 1m has 5 sub-windows, which work with at most 512 nodes, but the PoP may have 5000 (write sub_windows: 4)\n" +
				"rules.yaml:1:1: rule r: the limit of 9 in 2h has 6 sub-windows, which work with at most 128 nodes, but the PoP may have 5000 (write sub_windows: 4)"},
		{"more nodes than there are", "[{threshold: 50, period: 1m, sub_windows: 2}]", 1 << 30,
			"rules.yaml:1:1: rule r: the limit of 50 in 1m has 2 sub-windows, which work with at most 536870912 nodes, but the PoP may have 1073741824 (write sub_windows: 1)"},
	} {
		set, err := rulefile.Parse("rules.yaml", []byte("rules: [{id: r, characteristics: [ip], limits: "+tt.limits+"}]"))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := rulefile.CheckNodes(set, tt.nodes); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

// The schema of rules files states the maximum numbers of nodes.
func TestMaxNodesOfTheSchema(t *testing.T) {
	for fields, want := range map[int]int{6: 128, 5: 512, 4: 8192} {
		layout, _ := counter.LayoutOf(fields)
		if got := layout.MaxNodes(); got != want || !strings.Contains(string(rulefile.Schema), fmt.Sprintf("%d are for %d nodes", fields, want)) && !strings.Contains(string(rulefile.Schema), fmt.Sprintf("%d for %d", fields, want)) {
			t.Errorf("%d sub-windows are for %d nodes, but the schema says otherwise", fields, got)
		}
	}
}

// If there are many errors, the first ones are reported.
func TestCheckNodesOfManyRules(t *testing.T) {
	text := "rules:\n"
	for i := range 30 {
		text += fmt.Sprintf("  - {id: r%d, characteristics: [ip], limits: [{threshold: 5, period: 1m, sub_windows: 6}]}\n", i)
	}
	set, err := rulefile.Parse("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var errs rulefile.Errors
	if err := rulefile.CheckNodes(set, 200); !errors.As(err, &errs) || len(errs) != 21 || errs[19].Line != 21 || errs[20].Message != "too many errors; the rest are not shown" {
		t.Errorf("30 rules do not fit: %v", err)
	}
}
