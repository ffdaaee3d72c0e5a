package cases_test

import (
	"fmt"
	"os"

	"github.com/edgelimit/edge/analysis/cases"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// A unit test of a rule plays requests to a node on a virtual clock.
func Example() {
	rules, err := rulefile.Parse("rules.yaml", []byte(`
rules: [{id: login, match: {paths: [/login]}, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}]
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := cases.Parse("cases.yaml", []byte(`
rules: [rules.yaml]
cases:
  - name: the sixth request is the last one
    requests:
      - {at: 0s, count: 6, every: 1s, path: /login, expect: passed}
      - {at: 6s, path: /login, expect: blocked}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := c.Run(rules)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := report.WriteText(os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// cases.yaml
	//   SUCCESS: 1 case, 7 requests
}
