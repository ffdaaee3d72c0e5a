package pop_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/operate"
	"github.com/edgelimit/edge/pop"
	"github.com/edgelimit/edge/pop/setting"
	"github.com/edgelimit/edge/rule"
)

// Operators see the last decisions of the log. A node without a log reports that.
func TestRecentDecisions(t *testing.T) {
	const rules = "rules: [{id: all, characteristics: [ip], limits: [{threshold: 2, period: 1h}], mitigation_timeout: 1h}]"
	for _, file := range []string{"", filepath.Join(t.TempDir(), "decisions")} {
		n := startNode(t, rules, func(o *pop.Options) {
			o.AdminListen, o.DecisionLog, o.DecisionLogShare = "127.0.0.1:0", file, 1
		})
		ask := func(query string) (found operate.Decisions, text string) {
			text = page(t, n, "admin", "/api/v1/decisions"+query)
			_ = json.Unmarshal([]byte(text), &found)
			return found, text
		}
		refused := 0
		for deadline := time.Now().Add(2 * time.Minute); refused < 2 && time.Now().Before(deadline); {
			r := &rule.Request{Addr: netip.MustParseAddr("192.0.2.1"), Method: "GET", Path: "/"}
			if d := n.DecideBy(pop.Ask{Rule: n.Rules().Rules()[0], Request: r, Times: 1})[0]; d.Verdict.Refused() {
				refused++
			}
			ask("") // is slow, so the log's queue never fills up
		}
		found, text := ask("")
		if file == "" {
			if !strings.Contains(text, "the node has no decision log: set decision_log") {
				t.Errorf("from a node without a log: %s", text)
			}
		} else {
			await(t, "the log has the last refusal", func() bool {
				found, text = ask("?rule=all")
				return len(found.Decisions) >= 4 && found.Decisions[1].Verdict == "blocked"
			})
			if len(found.Decisions) < 4 || found.Decisions[0].Verdict != "blocked" || found.Decisions[0].By != "all" || found.Decisions[0].Client != "" {
				t.Errorf("all decisions: %s", text)
			}
			if one, text := ask("?limit=1&key=" + found.Decisions[0].Key[:5]); len(one.Decisions) != 1 {
				t.Errorf("one decision: %s", text)
			}
			if none, text := ask("?rule=other"); len(none.Decisions) != 0 || !strings.Contains(text, "[]") {
				t.Errorf("decisions of another rule: %s", text)
			}
		}
		if err := n.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if file != "" {
			written, err := os.ReadFile(file)
			if err != nil || strings.Count(string(written), `"mitigated":true`) != refused || strings.Contains(string(written), "192.0.2.1") {
				t.Errorf("%d refusals, but the log has %s, %v", refused, written, err)
			}
		}
	}
}

// A file that cannot be written is reported as an error of the setting, and the node does not run.
func TestDecisionLogThatCannotBeWritten(t *testing.T) {
	for file, want := range map[string]string{
		filepath.Join(t.TempDir(), "none", "log"): "no such file or directory", t.TempDir(): "is a directory",
	} {
		n := newNode(t, "rules: []", func(o *pop.Options) { o.Listen, o.DecisionLog = "127.0.0.1:0", file })
		err := n.Start()
		var setting *setting.Error
		if !errors.As(err, &setting) || setting.Setting != "decision-log" || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v, want %s", file, err, want)
		}
		if err := n.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
