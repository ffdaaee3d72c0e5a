package limit

import (
	"log/slog"
	"testing"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/mitigation"
	"github.com/edgelimit/edge/pop/rule"
)

// A mitigation that starts wins over the one before on every node, also where the clock
// was set back in between, or the one before was lifted.
func TestMergeWinsOverTheOneBefore(t *testing.T) {
	set, err := rule.Parse("rules.yaml", []byte("rules: [{id: a, characteristics: [ip], limits: [{threshold: 1, period: 1m}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Unix(1_800_000_000, 0)
	for _, test := range []struct {
		name   string
		before func(*mitigation.Record) // change of the record before, of 1 min from start
		now    time.Time
	}{
		{"prolongs", func(*mitigation.Record) {}, start.Add(30 * time.Second)},
		{"next", func(*mitigation.Record) {}, start.Add(61 * time.Second)},
		{"clock set back", func(r *mitigation.Record) { r.Start += time.Hour.Microseconds() }, start.Add(61 * time.Second)},
		{"lifted", func(r *mitigation.Record) { r.Lifted = true }, start.Add(30 * time.Second)},
		{"lift is over", func(r *mitigation.Record) { r.Lifted = true }, start.Add(61 * time.Second)},
	} {
		t.Run(test.name, func(t *testing.T) {
			table, err := mitigation.New(mitigation.Options{})
			if err != nil {
				t.Fatal(err)
			}
			l, err := New(Options{Table: table, Rules: set, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			before := mitigation.Record{Key: counter.Key{1}, Start: start.UnixMicro(), Lifetime: time.Minute, Deadline: start.Add(time.Minute)}
			test.before(&before)
			table.Merge(before, start)
			got, changed := l.merge(counter.Key{1}, 45*time.Second, finding{back: test.now.Add(40 * time.Second)}, mitigation.Sample{}, test.now)
			if !changed || !got.Wins(before) {
				t.Errorf("merge = %+v, %t; want one that wins over %+v", got, changed, before)
			}
			if left := got.Deadline.Sub(test.now); left < 40*time.Second || left > 75*time.Second {
				t.Errorf("it lasts for %v from now, want 40 to 75 s", left)
			}
			if _, ok := table.Get(counter.Key{1}, test.now); !ok {
				t.Error("the key is not mitigated")
			}
		})
	}
}
