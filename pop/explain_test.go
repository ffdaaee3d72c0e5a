package pop_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/rule"
)

// A key is explained with its overridden limits if its values are known.
func TestExplainOverrides(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		for name, text := range map[string]string{
			"plans.csv":  "ip,1m\n192.0.2.1,7\n",
			"rules.yaml": "rules: [{id: a, characteristics: [ip], limits: [{threshold: 5, period: 1m}], overrides: plans.csv}]",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p := startPiped(t, echo, func(o *pop.Options) { o.RuleFiles = []string{filepath.Join(dir, "rules.yaml")} })
		for ip, want := range map[string]string{
			"192.0.2.1": "0 in 1m (0 in the minute before, 0 in this one); the limit is 7",
			"192.0.2.3": "0 in 1m (0 in the minute before, 0 in this one); the limit is 5",
		} {
			for _, values := range []map[string]string{{"ip": ip}, {"ip": ip, "rule": "a"}} {
				e, err := p.Operator().Explain(values)
				if err != nil || len(e.Keys) != 1 {
					t.Fatalf("%v: %+v, %v", values, e, err)
				}
				got := e.Keys[0].Problem
				for _, l := range e.Keys[0].Limits {
					got = l.Text // the missing shard is a problem, too
				}
				if got != want {
					t.Errorf("%v: %s, want %s", values, fmt.Sprint(e.Keys[0]), want)
				}
			}
		}
		client := &rule.Request{Addr: netip.MustParseAddr("192.0.2.1"), Method: "GET", Path: "/"}
		for range 9 {
			p.DecideBy(pop.Ask{Rule: p.Rules().Rules()[0], Request: client, Times: 1})
		}
		e, err := p.Operator().Explain(map[string]string{"ip": "192.0.2.1"})
		if err != nil || e.Keys[0].Mitigation == nil {
			t.Fatalf("after 9 requests: %+v, %v", e, err)
		}
		e, err = p.Operator().Explain(map[string]string{"key": e.Keys[0].Key})
		if err != nil || !strings.Contains(e.Keys[0].Problem, "the overrides of the rule may give this key other limits") {
			t.Errorf("by the key alone: %+v, %v; want unknown limits", e, err)
		}
	})
}
