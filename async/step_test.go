package async_test

import (
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/limit"
	"github.com/edgelimit/edge/mitigation"
)

// steppedPop returns limiters that share a shard and a clock. Their Run is not called.
func steppedPop(t *testing.T, n int, clock func() time.Time, log io.Writer, rules string) (limiters []*limit.Limiter) {
	t.Helper()
	var running sync.WaitGroup
	p := &testPop{shards: []*testShard{new(testShard)}, timeout: time.Minute}
	p.shards[0].start(&running)
	t.Cleanup(func() { p.shards[0].kill(); running.Wait() })
	for i := range n {
		table := mitigation.New(mitigation.Options{})
		l, err := limit.New(limit.Options{
			Node: mitigation.NodeID(i + 1), Rules: parse(t, rules), Table: table, Shards: p.clients(0), Now: clock,
			Logger: slog.New(slog.NewTextHandler(log, nil)),
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		limiters = append(limiters, l)
	}
	return limiters
}

// Nodes that are stepped share counts, mitigate immediately, and end mitigations in time.
func TestStepping(t *testing.T) {
	now := time.Unix(6010, 0)
	log := new(lines)
	limiters := steppedPop(t, 2, func() time.Time { return now }, log,
		"rules: [{id: all, characteristics: [ip], limits: [{threshold: 10, period: 1m}], mitigation_timeout: 2m}]")
	ask := func(l *limit.Limiter) limit.Verdict {
		req := request(1)
		d := l.Decide(&req, now)
		l.Flush()
		return d.Verdict
	}
	for i := range 11 {
		if v := ask(limiters[i%2]); v != limit.Passed {
			t.Fatalf("request %d is %v, want passed", i+1, v)
		}
	}
	if v := ask(limiters[0]); v != limit.Blocked {
		t.Fatalf("the request after the one that exceeded the threshold is %v, want blocked", v)
	}
	next := limiters[0].Step()
	if want := now.Add(2 * time.Minute); !next.Equal(want) {
		t.Errorf("Step returned %v, want the end of the mitigation, %v", next, want)
	}
	if strings.Contains(log.String(), "mitigation ended") {
		t.Error("the mitigation ended early")
	}
	now = next
	limiters[0].Step()
	if strings.Count(log.String(), "mitigation ended") != 1 {
		t.Errorf("the mitigation did not end in time:\n%s", log)
	}
	if v := ask(limiters[0]); v != limit.Passed {
		t.Errorf("a request after the mitigation is %v, want passed", v)
	}
}

// Late counts of another node in the previous window are read with the key's next count.
func TestLateCountsAreReadWithTheNextOne(t *testing.T) {
	now := time.Unix(6000, 0).Add(-time.Millisecond)
	limiters := steppedPop(t, 2, func() time.Time { return now }, io.Discard,
		"rules: [{id: all, characteristics: [ip], limits: [{threshold: 10, period: 1m}]}]")
	late, other := limiters[0], limiters[1]
	req := request(1)
	for range 10 {
		late.Decide(&req, now)
	}
	now = now.Add(2 * time.Millisecond)
	other.Decide(&req, now)
	other.Flush()
	late.Flush()
	if v := other.Look(&req, now).Verdict; v != limit.Passed {
		t.Fatalf("%v before the late counts are read", v)
	}
	now = now.Add(4 * time.Millisecond) // two flush intervals after the window's beginning
	other.Decide(&req, now)
	other.Flush()
	if v := other.Look(&req, now).Verdict; v != limit.Blocked {
		t.Errorf("%v after the late counts are read: 10×0.9999+2 > 10, want blocked", v)
	}
}

// A decision lists its counts, and Look counts nothing.
func TestLook(t *testing.T) {
	now := time.Unix(6010, 0)
	l := steppedPop(t, 1, func() time.Time { return now }, io.Discard, `rules:
  - {id: one, characteristics: [ip], limits: [{threshold: 1, period: 1m}]}
  - {id: login, match: {paths: [/login]}, characteristics: [ip], limits: [{threshold: 100, period: 1m}]}
  - {id: other, match: {paths: [/other]}, characteristics: [ip], limits: [{threshold: 100, period: 1m}]}
`)[0]
	counts := func(d limit.Decision) (ids []string) {
		for r, key := range d.Counts {
			ids = append(ids, r.ID)
			if key == (counter.Key{}) {
				t.Errorf("rule %s counts without a key", r.ID)
			}
		}
		slices.Sort(ids)
		return ids
	}
	req := request(1)
	for range 3 {
		d := l.Look(&req, now)
		l.Flush()
		if diff := cmp.Diff([]string{"login", "one"}, counts(d)); d.Verdict != limit.Passed || diff != "" {
			t.Fatalf("a look is %v and counts by (-want +got):\n%s", d.Verdict, diff)
		}
	}
	for range 2 {
		l.Decide(&req, now)
		l.Flush()
	}
	if d := l.Look(&req, now); d.Verdict != limit.Blocked || counts(d) != nil {
		t.Errorf("a refused request is %v and counts by %v", d.Verdict, counts(d))
	}
}

// However many mitigations start at the same time, the shard gets a record of each: another node acts on them with the
// next request.
func TestEachOfManyRecordsIsStored(t *testing.T) {
	pop := newSteppedPop(t, "rules: [{id: a, characteristics: [ip], limits: [{threshold: 2, period: 1m}], mitigation_timeout: 1m}]", 2)
	const clients = 700
	for i := range clients {
		for range 3 {
			pop[0].ask(addrOf(i))
		}
	}
	pop[0].Step()
	for i := range clients {
		pop[1].ask(addrOf(i))
	}
	pop[1].wait(time.Millisecond)
	refused := 0
	for i := range clients {
		if pop[1].ask(addrOf(i)).Refused() {
			refused++
		}
	}
	if refused != clients {
		t.Errorf("the other node refuses %d of %d clients", refused, clients)
	}
}

// A client is told what is left if other nodes count as much until the next answer as between the last two, also in the
// next window. So one that sends each request to another node is not told too much.
func TestQuotaAllowsForOtherNodes(t *testing.T) {
	pop := newSteppedPop(t, "rules: [{id: a, characteristics: [ip], limits: [{threshold: 100, period: 1m}]}]", 2)
	ask := func(s *stepped, n int) (q limit.Quota) {
		s.now = s.now.Add(time.Millisecond)
		for range n {
			req := request(1)
			d := s.Decide(&req, s.now)
			q = s.Quotas(nil, &d, s.now)[0]
		}
		return q
	}
	for i, n := range []int{1, 5, 1} {
		ask(pop[i%2], n)
		pop[i%2].wait(time.Millisecond)
	}
	if q := ask(pop[0], 1); !q.Known || q.Remaining != 100-7-1-5 {
		t.Errorf("%d of 100 remain after 7 that the shard has counted, one more, and perhaps 5 at the other node", q.Remaining)
	}
	pop[0].now = time.Unix(6060, 0)
	ask(pop[0], 1)
	pop[0].wait(time.Millisecond)
	if q := ask(pop[0], 1); !q.Known || q.Remaining != 100-8-1-1-5 {
		t.Errorf("%d of 100 remain after 8 in the previous window, 2 in this one, and perhaps 5 at the other node", q.Remaining)
	}
}

// A node that hears late of another node's counts reads the record that they may have caused when the previous window
// weighed more, although the estimate is below the threshold by then.
func TestRecordOfAnEarlierEstimate(t *testing.T) {
	pop := newSteppedPop(t, "rules: [{id: a, characteristics: [ip], limits: [{threshold: 10, period: 1m}], mitigation_timeout: 1h}]", 2)
	var last limit.Verdict
	ask := func(node int, at time.Duration, n int) {
		pop[node].now = time.Unix(6000, 0).Add(at)
		for range n {
			last = pop[node].ask(addrOf(1))
		}
		pop[node].wait(time.Millisecond)
	}
	ask(0, 0, 9)
	ask(1, 60*time.Second+500*time.Millisecond, 1) // 9×0.99+1
	ask(0, 61*time.Second, 1)                      // 9×0.98+2 > 10
	ask(1, 90*time.Second, 1)                      // 9×0.5+3
	if ask(1, 91*time.Second, 1); last != limit.Blocked {
		t.Errorf("a client that another node blocks is %v, want %v", last, limit.Blocked)
	}
}
