package edge_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/operate"
	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/rule"
	"github.com/edgelimit/edge/rule/describe"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// loadRule returns a rule with a characteristic and an action, both as in rules files. Parser and schema must agree
// about it.
func loadRule(t *testing.T, characteristic, action string) (*rule.Set, error) {
	t.Helper()
	text := fmt.Sprintf(`{"rules": [{"id": "a", "characteristics": [%s], "limits": [{"threshold": 2, "period": "1m"}],
		"mitigation_timeout": "1m", "action": %q}], "labels": {"by": {"file": "labels.txt"}}}`, characteristic, action)
	dir := t.TempDir()
	const labels = "192.0.2.0/25 one\n192.0.2.128/25 two\n"
	for name, content := range map[string]string{"rules.yaml": text, "labels.txt": labels} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set, err := rulefile.Load(filepath.Join(dir, "rules.yaml"))
	value, wrong := jsonschema.UnmarshalJSON(strings.NewReader(text))
	schema, wrongSchema := jsonschema.UnmarshalJSON(bytes.NewReader(rulefile.Schema))
	c := jsonschema.NewCompiler()
	if err := cmp.Or(wrong, wrongSchema, c.AddResource("rules.json", schema)); err != nil {
		t.Fatal(err)
	}
	if refused := c.MustCompile("rules.json").Validate(value); (refused == nil) != (err == nil) {
		t.Errorf("rule/file says %v, and its schema.json says %v", err, refused)
	}
	return set, err
}

// startNode runs a node with rules in a bubble.
func startNode(t *testing.T, set *rule.Set) *pop.Node {
	t.Helper()
	n, err := pop.New(pop.Options{Embedded: true, Name: "n1", Rules: set, Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		err = n.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return n
}

// send asks node about n HTTP requests like req, and reports whether it refuses the last one.
func send(node *pop.Node, req rule.Request, n int) (refused bool) {
	r := httptest.NewRequest(req.Method, req.Path+"?"+req.Query, nil)
	r.Host, r.RemoteAddr = cmp.Or(req.Host, "example.com"), "198.51.100.1:1"
	if req.Addr.IsValid() {
		r.RemoteAddr = req.Addr.String() + ":1"
	}
	for name, values := range req.Header {
		r.Header[name] = values
	}
	for range n {
		refused = node.Admit(r).Refused()
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
	}
	return refused
}

// secret is a value that operators do not see.
const secret = "s3cr3t"

// kinds maps a kind to a characteristic as in rules files, its name where operators give values, and two values.
var kinds = map[string]struct{ characteristic, name, value, other string }{
	"ip":      {`"ip"`, "ip", "192.0.2.1", "192.0.2.129"},
	"host":    {`"host"`, "host", "a.example", "b.example"},
	"path":    {`"path"`, "path", "/a", "/b"},
	"method":  {`"method"`, "method", "GET", "POST"},
	"header":  {`"header:x-api-key"`, "header:x-api-key", secret, "b"},
	"cookie":  {`"cookie:sid"`, "cookie:sid", secret, "b"},
	"query":   {`"query:user"`, "query:user", secret, "b"},
	"label":   {`"label:by"`, "label:by", "one", "two"},
	"network": {`"network:25/48"`, "network:25/48", "192.0.2.0/25", "192.0.2.128/25"},
	"first":   {`{"first": ["cookie:sid", "ip"]}`, "cookie:sid", secret, "b"},
}

// A node counts by every kind of characteristic, and operators find what it counts. To add a kind, add a row to kinds
// and follow the failures.
func TestCharacteristics(t *testing.T) {
	documented, err := os.ReadFile("docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, kind := range rule.KindNames()[rule.IP:] {
		row, ok := kinds[kind]
		if !ok {
			t.Errorf("%s has no row in kinds of this file", kind)
			continue
		}
		if list := regexp.MustCompile(`characteristics: \[\w+\] +#.*\b` + kind + `\b`); kind != rule.First.String() && !list.Match(documented) {
			t.Errorf("the comment that lists characteristics in docs/rules.md lacks %s", kind)
		}
		t.Run(kind, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				set, err := loadRule(t, row.characteristic, "block")
				if err != nil {
					t.Fatal(err)
				}
				r := set.Rules()[0]
				if _, err := loadRule(t, row.characteristic, "shed"); (err == nil) != (r.Width() > 0) {
					t.Errorf("the width is %d, and action: shed has the error %v", r.Width(), err)
				}
				text := describe.Rule(r)
				if other, ok := texts[text]; ok {
					t.Errorf("rule/describe says the same as about %s: %s", other, text)
				}
				texts[text] = kind
				var requests []rule.Request
				for _, value := range []string{row.value, row.other} {
					req, err := r.RequestFrom(func(c *rule.Characteristic) (string, bool) { return value, c.String() == row.name })
					if err != nil {
						t.Fatal(err)
					}
					requests = append(requests, req)
				}
				node := startNode(t, set)
				if !send(node, requests[0], 4) || send(node, requests[1], 1) {
					t.Error("requests with one value are not refused, or those with another are")
				}
				target := "rule=a," + row.name + "=" + row.value
				values, err := operate.ParseTarget(target)
				if err != nil {
					t.Fatal(err)
				}
				e, err := node.Operator().Explain(values)
				if err != nil || len(e.Keys) != 1 || !e.Keys[0].Refused() {
					t.Fatalf("the operator finds %+v for %s, %v", e, target, err)
				}
				want := row.value
				if row.value == secret {
					_, want, _ = strings.Cut(row.name, ":")
				}
				if about := e.Keys[0].About; !strings.Contains(about, want) || strings.Contains(about, secret) {
					t.Errorf("the key is about %q, want %s", about, want)
				}
			})
		})
	}
}

// A node takes every action, and rules.md, descriptions, metrics and alerts know it. To add one, follow the failures.
func TestActions(t *testing.T) {
	documented, err := os.ReadFile("docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	monitoring, err := os.ReadFile("deploy/monitoring.yaml")
	if err != nil {
		t.Fatal(err)
	}
	passing := regexp.MustCompile(`verdict[=!]~"([a-z_|]*logged[a-z_|]*)"`).FindAllSubmatch(monitoring, -1)
	texts, verdicts := map[string]string{}, map[string]string{}
	for i, action := range rule.ActionNames() {
		if !regexp.MustCompile(`\b` + action + `\b`).Match(documented) {
			t.Errorf("docs/rules.md lacks %s", action)
		}
		t.Run(action, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				set, err := loadRule(t, `"host"`, action)
				if err != nil {
					t.Fatal(err)
				}
				text := describe.Rule(set.Rules()[0])
				if other, ok := texts[text]; ok {
					t.Errorf("rule/describe says the same as about %s: %s", other, text)
				}
				texts[text] = action
				node, refused := startNode(t, set), false
				for client := range 50 { // shed refuses a share of them
					addr := netip.AddrFrom4([4]byte{192, 0, 2, byte(client)})
					refused = send(node, rule.Request{Method: "GET", Path: "/", Addr: addr}, 1) || refused
				}
				if want := rule.Action(i) != rule.Log; refused != want {
					t.Errorf("requests are refused: %t, want %t", refused, want)
				}
				var taken []string
				for verdict, n := range node.Operator().Rules().Rules[0].Requests {
					if n > 0 {
						taken = append(taken, verdict)
					}
				}
				if len(taken) != 1 || verdicts[taken[0]] != "" || limit.Refused(taken[0]) != refused {
					t.Fatalf("metrics have the verdicts %q, want one that no other action has", taken)
				}
				verdicts[taken[0]] = action
				for _, list := range passing {
					if slices.Contains(strings.Split(string(list[1]), "|"), taken[0]) == refused {
						t.Errorf("deploy/monitoring.yaml lacks %s in %s, or it has it", taken[0], list[0])
					}
				}
			})
		})
	}
}
