package limit

import (
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

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
			if got.End() != got.Deadline.UnixMicro() {
				t.Errorf("to others it ends at %v, here at %v", time.UnixMicro(got.End()), got.Deadline)
			}
			if _, ok := table.Get(counter.Key{1}, test.now); !ok {
				t.Error("the key is not mitigated")
			}
		})
	}
}

// Of the workers that see a limit exceeded at the same time, one starts the mitigation. They
// meet between looking into the table and writing to it: it is held until all are there.
func TestAMitigationStartsOnce(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that Gosched lets each go on until it waits
	l, _ := idle(t, "[{threshold: 1, period: 1m}]", 0)
	table, err := mitigation.New(mitigation.Options{Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	l.o.Table = table
	r, now := l.Rules().Rules()[0], time.Now()
	var workers sync.WaitGroup
	table.OnEvict(func(counter.Key) { // the table is locked
		for i := range 4 {
			workers.Go(func() {
				seen := now.Add(time.Duration(i+1) % 4 * time.Millisecond) // mostly later than the one before
				l.mitigate(counter.Key{1}, r, finding{back: seen}, mitigation.Sample{}, seen)
			})
		}
		for range 100 {
			runtime.Gosched()
		}
	})
	for i := range byte(2) { // the second makes the first go
		table.Merge(mitigation.Record{Key: counter.Key{15: i}, Start: now.UnixMicro(), Lifetime: time.Minute, Deadline: now.Add(time.Minute)}, now)
	}
	workers.Wait()
	if n := testutil.ToFloat64(l.metrics.startedBy(r)); n != 1 {
		t.Errorf("one mitigation was started %v times", n)
	}
}
