package pop

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edge/pop/rule"
	"github.com/edgelimit/edge/pop/rulefile"
)

// A clock that is wrong by more than a twentieth of the shortest period of the current rules is reported once,
// and once more when it is right again.
func TestClockWatch(t *testing.T) {
	parse := func(period string) *rule.Set {
		set, err := rulefile.Parse("rules.yaml", []byte("rules: [{id: a, characteristics: [ip], limits: [{threshold: 1, period: 1h}, {threshold: 1, period: "+period+"}]}]"))
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	var log bytes.Buffer
	var offset time.Duration
	set := parse("10s")
	c := clockWatch{
		offset: func() time.Duration { return offset },
		rules:  func() *rule.Set { return set },
		logger: slog.New(slog.NewTextHandler(&log, nil)),
	}
	for _, test := range []struct {
		name   string
		offset time.Duration
		period string
		looks  int
		want   string // part of the log; empty if nothing is logged
	}{
		{"right", 500 * time.Millisecond, "10s", 10, ""},
		{"wrong for a moment", -time.Second, "10s", clockFor - 1, ""},
		{"right", 0, "10s", 1, ""},
		{"behind", -501 * time.Millisecond, "10s", clockFor, "level=WARN"},
		{"still behind", -501 * time.Millisecond, "10s", 20, ""},
		{"right again", -499 * time.Millisecond, "10s", 1, "the clock is right again"},
		{"right for other rules", 499 * time.Millisecond, "1s", clockFor, "ahead=499ms shortest_period=1s"},
		{"rules with longer periods", 499 * time.Millisecond, "1m", 1, "the clock is right again"},
	} {
		log.Reset()
		offset, set = test.offset, parse(test.period)
		for range test.looks {
			c.look()
		}
		if got := log.String(); test.want == "" && got != "" || !strings.Contains(got, test.want) || strings.Count(got, "\n") > 1 {
			t.Errorf("%s: logged %q, want %q", test.name, got, test.want)
		}
	}
}
