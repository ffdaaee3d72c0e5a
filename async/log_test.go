package async

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/rule"
)

// However many keys are mitigated within seconds, few are watched for flapping.
func TestWatchedKeysAreBounded(t *testing.T) {
	l := mitigationLog{
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), flaps: map[counter.Key]*flap{},
		unlogged: prometheus.NewCounter(prometheus.CounterOpts{}),
	}
	now := time.Unix(6000, 0)
	for i := range maxFlaps + 10 {
		l.started(mitigation.Record{Key: counter.Key{byte(i), byte(i >> 8)}}, new(rule.Rule), now)
	}
	if got := len(l.flaps); got != maxFlaps {
		t.Errorf("%d keys are watched, want %d", got, maxFlaps)
	}
	if l.report(now.Add(time.Minute)); len(l.flaps) != 0 {
		t.Errorf("%d keys are watched a minute after their mitigations", len(l.flaps))
	}
}
