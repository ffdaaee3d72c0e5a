//go:build edgeguard

package limit_test

import (
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edge/counter"
	"github.com/edgelimit/edge/counter/memcached"
	"github.com/edgelimit/edge/pop/limit"
)

// A million decisions during real counting, in a build where a shard's socket panics if a decision
// uses it. The block profile shows whether one waited for a channel.
func TestGuardedDecisions(t *testing.T) {
	runtime.SetBlockProfileRate(1)
	defer runtime.SetBlockProfileRate(0)
	p := startPop(t, 2, 2, true, "rules: [{id: all, characteristics: [ip], limits: [{threshold: 5, period: 1m}]}]")
	defer p.stop()
	verdicts := map[limit.Verdict]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			mine := map[limit.Verdict]int{}
			for i := range 250_000 {
				req := request(uint32(i % 5000))
				mine[p.limiters[g%2].Decide(&req, time.Now()).Verdict]++
			}
			mu.Lock()
			defer mu.Unlock()
			for v, n := range mine {
				verdicts[v] += n
			}
		})
	}
	wg.Wait()
	if verdicts[limit.Passed] == 0 || verdicts[limit.Blocked] == 0 {
		t.Errorf("verdicts %v, want passed and blocked ones", verdicts)
	}
	var profile strings.Builder
	if err := pprof.Lookup("block").WriteTo(&profile, 1); err != nil {
		t.Fatal(err)
	}
	for _, stack := range strings.Split(profile.String(), "\n\n") {
		if strings.Contains(stack, ".Decide") && !strings.Contains(stack, "sync.(*Mutex)") && !strings.Contains(stack, "sync.(*RWMutex)") {
			t.Errorf("a decision waited:\n%s", stack)
		}
	}
}

// A probe is a decision that counts immediately, which no real decision does.
type probe struct{ shard *memcached.Client }

func (p probe) Decide() { _, _ = increment(p.shard, counter.Item([]byte("a-counter's-item")), 1) }

func TestGuardPanics(t *testing.T) {
	p := startPop(t, 1, 1, false, "rules: []")
	defer p.stop()
	s := memcached.New("s:1", memcached.Options{Dial: p.shards[0].dial, Timeout: time.Minute})
	defer s.Close()
	if _, err := increment(s, counter.Item([]byte("a-counter's-item")), 1); err != nil {
		t.Fatalf("counting outside the request path: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a decision that counts synchronously does not panic")
		}
	}()
	probe{s}.Decide()
}
