package file_test

import (
	"path/filepath"
	"strings"
	"testing"

	rulefile "github.com/edgelimit/edge/rule/file"
)

// If a file with overrides has errors, the rules are not loaded.
func TestInvalidOverrides(t *testing.T) {
	const two = "rules: [{id: a, characteristics: [ip, 'header:x-key'], limits: [{threshold: 5, period: 1m, sub_windows: 6}, {threshold: 50, period: 1h}], overrides: plans.csv}]"
	for _, test := range []struct{ name, rules, plans, want string }{
		{"another first line", two, "ip,1m,1h\n", "plans.csv:1:1: the first line does not name the columns of rule a (write ip,header:x-key,1m,1h)"},
		{"an empty file", two, "# nothing\n", "plans.csv: the file is empty (write ip,header:x-key,1m,1h as the first line)"},
		{"too few values", two, "ip,header:x-key,1m,1h\n\n192.0.2.1,k,7\n", "plans.csv:3:1: 3 values instead of 4 (write ip,header:x-key,1m,1h)"},
		{"too many", two, "ip,header:x-key,1m,1h\n192.0.2.1,k,7,,\n", "plans.csv:2:1: 5 values instead of 4 (write ip,header:x-key,1m,1h)"},
		{"not a number", two, "ip,header:x-key,1m,1h\n192.0.2.1,k,7,many\n", `plans.csv:2:15: a threshold cannot be "many" (write a whole number from 1 to 9007199254740992, in plain decimal digits)`},
		{"zero", two, "ip,header:x-key,1m,1h\n192.0.2.1,k,0,\n", `plans.csv:2:13: a threshold cannot be "0" (write a whole number from 1 to 9007199254740992, in plain decimal digits)`},
		{"too great for sub-windows", two, "ip,header:x-key,1m,1h\n192.0.2.1,k,97,\n", "plans.csv:2:13: a threshold cannot be 97 with 6 sub-windows, which have room for thresholds up to 96 (set fewer sub_windows in the rule)"},
		{"not an address", two, "ip,header:x-key,1m,1h\nlocalhost,k,7,\n", `plans.csv:2:1: rule a counts by ip, and "localhost" is not an address`},
		{"not a network", two, "ip,header:x-key,1m,1h\n192.0.2.1/24,k,7,\n", `plans.csv:2:1: "192.0.2.1/24" is an address within a network`},
		{"twice, with the greatest threshold", two, "ip,header:x-key,1m,1h\n192.0.2.1,k,96,\n192.0.2.1,k,8,\n", "plans.csv:3:1: this key is listed twice (remove one of them)"},
		{"a quote", two, "ip,header:x-key,1m,1h\n192.0.2.1,k\"k,7,\n", `plans.csv:2:12: bare " in non-quoted-field`},
		{"a quote that is not closed", two, "ip,header:x-key,1m,1h\n192.0.2.1,\"k,7,\n192.0.2.2,k,7,\n", `plans.csv:3:16: extraneous or missing " in quoted-field`},
		{"not a name", strings.Replace(two, "plans.csv", "{file: plans.csv}", 1), "", "rules.yaml:1:150: overrides is a mapping, not a string"},
		{"no such file", strings.Replace(two, "plans.csv", "customers.csv", 1), "", "rules.yaml:1:150: open customers.csv"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := write(t, map[string]string{"rules.yaml": test.rules, "plans.csv": test.plans})
			_, err := rulefile.Load(dir + "/rules.yaml")
			if err == nil {
				t.Fatal("the file is accepted")
			}
			if got := strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), ""); !strings.HasPrefix(got, test.want) || strings.Contains(got, "\n") {
				t.Errorf("%s\nwant only %s", got, test.want)
			}
		})
	}
	if _, err := rulefile.Parse("r.yaml", []byte(two)); err == nil || !strings.Contains(err.Error(), "cannot name one") {
		t.Errorf("rules without a file: %v", err)
	}
}
