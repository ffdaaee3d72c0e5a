package pop

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/edgelimit/edge/internal/harness"
	"github.com/edgelimit/edge/rule"
	rulefile "github.com/edgelimit/edge/rule/file"
)

// A clock is a problem if it is wrong by more than a twentieth of the shortest period of the current rules.
func TestClockCheck(t *testing.T) {
	const rules = "rules: [{id: a, characteristics: [ip], limits: [{threshold: 1, period: 1h}, {threshold: 1, period: %s}]}]"
	var clock clockCheck
	for _, test := range []struct {
		name   string
		offset time.Duration
		period string
		checks int
		wrong  bool
	}{
		{"right", 500 * time.Millisecond, "10s", 10, false},
		{"wrong for a moment", -time.Second, "10s", clockFor - 1, false},
		{"right after a moment", 0, "10s", 1, false},
		{"wrong for another moment", -time.Second, "10s", clockFor - 1, false},
		{"right after it", 0, "10s", 1, false},
		{"behind", -501 * time.Millisecond, "10s", clockFor, true},
		{"right again", -499 * time.Millisecond, "10s", 1, false},
		{"right for other rules", 499 * time.Millisecond, "1s", clockFor, true},
		{"rules with longer periods", 499 * time.Millisecond, "1m", 1, false},
	} {
		set, err := rulefile.Parse("rules.yaml", fmt.Appendf(nil, rules, test.period))
		if err != nil {
			t.Fatal(err)
		}
		problem := ""
		for range test.checks {
			problem = clock.problem(test.offset, set)
		}
		if (problem != "") != test.wrong {
			t.Errorf("%s: the problem is %q, want one: %t", test.name, problem, test.wrong)
		}
	}
}

// A node with peers checks its clock while it runs: a problem that has passed is no longer shown.
func TestTheClockIsChecked(t *testing.T) {
	n, err := New(Options{
		Name: "n1", Embedded: true, Rules: new(rule.Set), Logger: slog.New(slog.DiscardHandler),
		Secret: "a secret of the clocks", Gossip: GossipOptions{Listen: "127.0.0.1:0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.notices.note(problemClock, "this node's clock differs")
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	harness.Until(t, "the clock is right", 10*time.Second, 10*time.Millisecond, func() bool { return len(n.notices.details()) == 0 })
	if err := n.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}
