package async_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/counter/wire"
	"github.com/edgelimit/edge/internal/bubble"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
)

// A burst is refused by the waiting requests alone: nothing was flushed or read yet.
func TestBurstIsRefusedBeforeItIsCounted(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for _, tt := range []struct {
		rule string
		want int
	}{
		{"limits: [{threshold: 50, period: 1m}]", 51},
		{"limits: [{threshold: 50, period: 1m, sub_windows: 6}]", 51},
		{"limits: [{threshold: 500, period: 1h}, {threshold: 20, period: 1s}]", 21},
		{"on_failure: open, limits: [{threshold: 50, period: 1m}]", 51},
	} {
		table := mitigation.New(mitigation.Options{})
		var published []mitigation.Record
		l, err := limit.New(limit.Options{
			Rules: parse(t, "rules: [{id: all, characteristics: [ip], mitigation_timeout: 1m, "+tt.rule+"}]"), Table: table, Logger: slog.New(slog.DiscardHandler),
			Shards: []async.Shard{mapShard{values: map[counter.Item]uint64{}}}, Now: func() time.Time { return now },
			Publish: func(r mitigation.Record) { published = append(published, r) },
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		passed := 0
		for range 1000 {
			req := request(1)
			if d := l.Decide(&req, now); !d.Verdict.Refused() {
				passed++
			}
		}
		if passed != tt.want {
			t.Errorf("%s: %d of 1000 requests pass, want %d", tt.rule, passed, tt.want)
		}
		l.Flush()
		if len(published) != 1 || published[0].Sample == nil || published[0].Sample.Path == "" {
			t.Errorf("%s: %d records are published, want one with the request's sample: %+v", tt.rule, len(published), published)
		}
	}
}

// Flushed requests count together with waiting ones.
func TestBurstAfterOtherRequests(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	table := mitigation.New(mitigation.Options{})
	l, err := limit.New(limit.Options{
		Rules: parse(t, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 50, period: 1m}]}]"), Table: table, Logger: slog.New(slog.DiscardHandler),
		Shards: []async.Shard{mapShard{values: map[counter.Item]uint64{}}}, Now: func() time.Time { return now },
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	passed := 0
	for i := range 200 {
		req := request(1)
		if d := l.Decide(&req, now); !d.Verdict.Refused() {
			passed++
		}
		if i == 39 {
			l.Flush()
		}
	}
	if passed != 51 {
		t.Errorf("%d of 200 requests pass, want 51", passed)
	}
}

// While the shard does not answer, a node refuses by its own evidence, except for rules that fail
// open, once the shard is down.
func TestOwnEvidenceBesideAStalledShard(t *testing.T) {
	for failure, want := range map[string]int{"local": 51, "open": 300} {
		bubble.Test(t, func(t *testing.T) {
			metrics := wire.NewMetrics(prometheus.NewRegistry())
			stalled := shardThatStalls(50*time.Millisecond, metrics)
			if failure == "open" {
				stalled = memcached.New("s:1", wire.Options{Metrics: metrics, Dial: dialNobody})
			}
			defer stalled.Close()
			a := startSingle(t, fmt.Sprintf("rules: [{id: all, characteristics: [ip], on_failure: %s, limits: [{threshold: 50, period: 1m}], mitigation_timeout: 1m}]", failure),
				func(o *limit.Options, _ *mitigation.Options) { o.Shards = []async.Shard{stalled} })
			defer a.close()
			a.decide(9)
			time.Sleep(time.Second) // the breaker has opened, because nobody listens
			passed := 0
			for range 300 {
				time.Sleep(5 * time.Millisecond)
				if !a.decide(1).Verdict.Refused() {
					passed++
				}
			}
			if passed != want {
				t.Errorf("on_failure %s: %d of 300 requests pass, want %d", failure, passed, want)
			}
		})
	}
}

// While no shard can be reached, at most TrackedKeys keys are in memory, and the counts of others
// are dropped by cause. A key near its threshold stays.
func TestKeysAreBoundedWithoutShards(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const bound, keys = 640, 20_000
		a := startSingle(t, fmt.Sprintf(perMinute, 10, "1m"), func(o *limit.Options, _ *mitigation.Options) { o.TrackedKeys = bound })
		defer a.close()
		a.down.Store(true)
		for range 10 {
			a.decide(1)
		}
		time.Sleep(10 * time.Millisecond)
		for i := range uint32(keys) {
			a.decide(100 + i)
			if i%100 == 0 {
				time.Sleep(5 * time.Millisecond)
			}
		}
		time.Sleep(100 * time.Millisecond)
		if n := value(t, a.reg, "edge_tracked_keys", ""); n > bound {
			t.Errorf("%v keys are remembered, the bound is %d", n, bound)
		}
		if n := value(t, a.reg, "edge_increments_dropped_total", ""); n < keys-bound {
			t.Errorf("%v counts are dropped, want at least %d", n, keys-bound)
		}
		if n := value(t, a.reg, "edge_increments_dropped_total", "shard_unavailable"); n < keys/2 {
			t.Errorf("%v counts are dropped because the shard is unavailable, want most of %d", n, keys)
		}
		if waiting, oldest := a.Backlog(); waiting == 0 || waiting > bound || oldest < 100*time.Millisecond {
			t.Errorf("%d keys wait, the oldest for %v", waiting, oldest)
		}
		a.decide(1)
		time.Sleep(10 * time.Millisecond)
		if !a.decide(1).Verdict.Refused() {
			t.Error("a client near its threshold was evicted for clients that sent one request")
		}
	})
}

// For a client that is throttled for a long time, three starts and two of their ends are logged each minute.
func TestThrottlingIsLoggedRarely(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log := new(lines)
		a := startSingle(t, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 10, period: 1s}], mitigation_timeout: 0s}]",
			func(o *limit.Options, _ *mitigation.Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
		defer a.close()
		for range 130 * 100 {
			a.decide(1)
			time.Sleep(10 * time.Millisecond)
		}
		text := log.String()
		for part, want := range map[string]int{`msg="mitigation started"`: 9, `next="not logged for a minute"`: 3} {
			if got := strings.Count(text, part); got != want {
				t.Errorf("%s is logged %d times, want %d", part, got, want)
			}
		}
		// An end is not logged if the next mitigation starts at the same time.
		if got := strings.Count(text, `msg="mitigation ended"`); got == 0 || got > 6 {
			t.Errorf("%d ends are logged, want at most 6", got)
		}
		if t.Failed() {
			t.Log(text)
		}
		if value(t, a.reg, "edge_mitigation_log_lines_dropped_total", "") == 0 {
			t.Error("suppressed lines were not counted")
		}
	})
}

// A flood of new keys evicts keys that have been counted, not those that wait to be: no count is lost.
func TestCountsSurviveAFloodOfKeys(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := startSingle(t, fmt.Sprintf(perMinute, 10, "1m"), func(o *limit.Options, _ *mitigation.Options) { o.TrackedKeys = 4096 })
		defer a.close()
		for i := range uint32(20_000) {
			a.decide(100 + i)
			if i%256 == 0 {
				time.Sleep(5 * time.Millisecond)
			}
		}
		time.Sleep(100 * time.Millisecond)
		if n := value(t, a.reg, "edge_tracked_keys_evicted_total", ""); n < 10_000 {
			t.Errorf("%v keys were evicted, want at least 10000", n)
		}
		if n := value(t, a.reg, "edge_increments_dropped_total", ""); n > 0 {
			t.Errorf("%v counts were lost", n)
		}
	})
}
