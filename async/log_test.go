package async

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

// The end of a mitigation is logged unless its key has started too often within the last minute.
func TestLateEndIsLogged(t *testing.T) {
	var out bytes.Buffer
	l := mitigationLog{Logger: slog.New(slog.NewTextHandler(&out, nil)), watched: map[counter.Key]startCount{},
		unlogged: prometheus.NewCounter(prometheus.CounterOpts{})}
	record := mitigation.Record{Sample: &mitigation.Sample{Rule: "r"}}
	now := time.Unix(6000, 0)
	for range maxStarts {
		l.started(&change{record, &rule.Rule{ID: "r"}}, nil, now)
	}
	for _, test := range []struct {
		after time.Duration
		want  int
	}{{time.Second, 0}, {time.Hour, 1}} {
		l.ended(&record, now.Add(test.after))
		if got := strings.Count(out.String(), "mitigation ended"); got != test.want {
			t.Errorf("%d ends are logged after %v, want %d\n%s", got, test.after, test.want, &out)
		}
	}
}

// However many keys are mitigated within a minute, the log counts the starts of a bounded number of them.
func TestWatchedKeysAreBounded(t *testing.T) {
	l := mitigationLog{watched: map[counter.Key]startCount{}}
	now := time.Unix(6000, 0)
	for i := range maxWatched + 10 {
		if l.watch(counter.Key{byte(i), byte(i >> 8)}, now) != 1 {
			t.Errorf("key %d has started before", i)
		}
	}
	if got := len(l.watched); got != maxWatched {
		t.Errorf("%d keys are watched, want %d", got, maxWatched)
	}
	if l.watch(counter.Key{1, 2, 3}, now.Add(time.Minute)); len(l.watched) != 1 {
		t.Errorf("%d keys are watched when another one starts a minute later, want 1", len(l.watched))
	}
}
