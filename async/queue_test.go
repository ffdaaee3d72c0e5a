package async_test

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/edgelimit/edge/async"
	"github.com/edgelimit/edge/internal/bubble"
)

func newQueue(t testing.TB, o async.QueueOptions[int, int]) *async.Queue[int, int] {
	t.Helper()
	if o.Hash == nil {
		o.Hash = func(k int) uint64 { return uint64(k) * 0x9e3779b97f4a7c15 }
	}
	o.Merge = func(queued *int, offered int) { *queued += offered }
	o.Size = func(v *int) uint64 { return uint64(*v) }
	o.Capacity, o.Interval = cmp.Or(o.Capacity, 16384), cmp.Or(o.Interval, 2*time.Millisecond)
	return async.NewQueue(o)
}

// flushes records the items that a queue flushes, and when.
type flushes struct {
	mu    sync.Mutex
	start time.Time
	log   []string
	sum   map[int]int
}

func (f *flushes) flush(items []async.Item[int, int]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, item := range items {
		f.log = append(f.log, fmt.Sprintf("%v: %d×%d", time.Since(f.start), item.Key, item.Value))
		if f.sum == nil {
			f.sum = map[int]int{}
		}
		f.sum[item.Key] += item.Value
	}
}

// drain polls q when it is due, until ctx is done, then flushes the rest.
func drain[V any](ctx context.Context, q *async.Queue[int, V], flush func([]async.Item[int, V])) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			q.Flush(flush)
			return
		case <-q.Wake():
		case <-timer.C:
		}
		now := time.Now()
		next := q.Poll(now, flush)
		if timer.Stop(); !next.IsZero() {
			timer.Reset(next.Sub(now))
		}
	}
}

// run runs test with a queue in fake time, and returns the flushes.
func run(t *testing.T, o async.QueueOptions[int, int], test func(q *async.Queue[int, int])) []string {
	t.Helper()
	f := new(flushes)
	bubble.Test(t, func(t *testing.T) {
		f.start = time.Now()
		q := newQueue(t, o)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			drain(ctx, q, f.flush)
			close(done)
		}()
		synctest.Wait()
		test(q)
		cancel()
		<-done
	})
	return f.log
}

func TestOffersJoinUntilTheInterval(t *testing.T) {
	got := run(t, async.QueueOptions[int, int]{Interval: 4 * time.Millisecond}, func(q *async.Queue[int, int]) {
		q.Offer(7, 1, false)
		time.Sleep(3 * time.Millisecond)
		q.Offer(7, 2, false) // merged with the first
		time.Sleep(3 * time.Millisecond)
		q.Offer(7, 4, false) // a new item
		time.Sleep(time.Hour)
	})
	want := []string{"4ms: 7×3", "10ms: 7×4"}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("flushes (-want +got):\n%s", diff)
	}
}

// Offer returns the size of what was being flushed for its key, even after that flush, until the offer is flushed itself.
func TestOfferReturnsFlushedSize(t *testing.T) {
	q := newQueue(t, async.QueueOptions[int, int]{})
	offer := func(k int, wantSize, wantBefore uint64) {
		t.Helper()
		if size, before, ok := q.Offer(k, 1, false); !ok || size != wantSize || before != wantBefore {
			t.Errorf("Offer(%d) = %d, %d, %t; want %d, %d, true", k, size, before, ok, wantSize, wantBefore)
		}
	}
	offer(7, 1, 0)
	offer(7, 2, 0)
	flushed := 0
	count := func(items []async.Item[int, int]) { flushed += len(items) }
	q.Flush(func(items []async.Item[int, int]) {
		count(items)
		offer(7, 1, 2)
	})
	offer(7, 2, 2)
	q.Flush(count)
	offer(7, 1, 0)
	if flushed != 2 {
		t.Errorf("%d items were flushed, want 2", flushed)
	}
}

func TestUrgentOffersDoNotWait(t *testing.T) {
	got := run(t, async.QueueOptions[int, int]{Interval: 8 * time.Millisecond}, func(q *async.Queue[int, int]) {
		time.Sleep(time.Second)
		q.Offer(1, 1, true)
		synctest.Wait() // flushed immediately
		q.Offer(1, 1, true)
		synctest.Wait() // the next flush is later
		time.Sleep(500 * time.Microsecond)
		q.Offer(1, 1, true) // merged
		time.Sleep(time.Hour)
	})
	want := []string{"1s: 1×1", "1.001s: 1×2"}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("flushes (-want +got):\n%s", diff)
	}
}

func TestUrgencyDoesNotHurryOthers(t *testing.T) {
	got := run(t, async.QueueOptions[int, int]{
		Interval: 8 * time.Millisecond,
		Hash:     func(k int) uint64 { return uint64(k) }, // keys 1 and 2 in different stripes
	}, func(q *async.Queue[int, int]) {
		q.Offer(1, 1, false)
		q.Offer(2, 1, true)
		time.Sleep(time.Hour)
	})
	want := []string{"0s: 2×1", "8ms: 1×1"}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("flushes (-want +got):\n%s", diff)
	}
}

func TestEndFlushesTheRest(t *testing.T) {
	got := run(t, async.QueueOptions[int, int]{Interval: time.Hour}, func(q *async.Queue[int, int]) {
		q.Offer(1, 1, false)
		q.Offer(1, 1, false)
	})
	if diff := gocmp.Diff([]string{"0s: 1×2"}, got); diff != "" {
		t.Errorf("flushes (-want +got):\n%s", diff)
	}
}

// An offer to a stripe that is being flushed wakes the queue again.
func TestOffersDuringFlush(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &flushes{start: time.Now()}
		q := newQueue(t, async.QueueOptions[int, int]{Interval: 4 * time.Millisecond})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			drain(ctx, q, func(items []async.Item[int, int]) {
				if f.flush(items); len(f.log) < 3 {
					q.Offer(7, 1, false)
				}
			})
			close(done)
		}()
		q.Offer(7, 1, false)
		time.Sleep(time.Hour)
		cancel()
		<-done
		if diff := gocmp.Diff([]string{"4ms: 7×1", "8ms: 7×1", "12ms: 7×1"}, f.log); diff != "" {
			t.Errorf("flushes (-want +got):\n%s", diff)
		}
	})
}

// The queue retains no flushed items, even if it is idle for a long time.
func TestFlushedValuesAreReleased(t *testing.T) {
	type value [64]byte
	q := async.NewQueue(async.QueueOptions[int, *value]{Hash: func(k int) uint64 { return uint64(k) }, Merge: func(**value, *value) {}, Size: func(**value) uint64 { return 1 }, Capacity: 1000})
	var values []weak.Pointer[value]
	for k := range 100 {
		v := new(value)
		values = append(values, weak.Make(v))
		q.Offer(k, v, false)
	}
	flushed := 0
	q.Flush(func(items []async.Item[int, *value]) { flushed += len(items) })
	runtime.GC()
	kept := 0
	for _, v := range values {
		if v.Value() != nil {
			kept++
		}
	}
	if flushed != 100 || kept > 0 {
		t.Errorf("%d values were flushed, %d are still in memory", flushed, kept)
	}
	runtime.KeepAlive(q)
}

// A full queue rejects new keys, and still merges offers of its keys.
func TestFull(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	// Room for 3 keys in each of 16 stripes; all keys have the same hash and share one.
	q := newQueue(t, async.QueueOptions[int, int]{Capacity: 3 * 16, Hash: func(int) uint64 { return 0 }, Registerer: reg})
	for k := range 3 {
		if _, _, ok := q.Offer(k, 1, false); !ok {
			t.Errorf("Offer(%d) = false with %d of 3 keys queued", k, k)
		}
	}
	for range 2 {
		if _, _, ok := q.Offer(99, 1, false); ok {
			t.Error("Offer of a fourth key = true, want false")
		}
	}
	if _, _, ok := q.Offer(2, 1, false); !ok {
		t.Error("Offer(2) = false, but it is queued already")
	}
	want := `
# HELP edge_queue_depth Keys waiting to be counted.
# TYPE edge_queue_depth gauge
edge_queue_depth 3
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	f := new(flushes)
	q.Flush(f.flush)
	if diff := gocmp.Diff(map[int]int{0: 1, 1: 1, 2: 2}, f.sum); diff != "" {
		t.Errorf("flushed (-want +got):\n%s", diff)
	}
}

// Every offer is flushed exactly once, whichever goroutine makes it.
func TestNothingIsLostOrDoubled(t *testing.T) {
	q := newQueue(t, async.QueueOptions[int, int]{Interval: 50 * time.Microsecond})
	f := new(flushes)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		drain(ctx, q, f.flush)
		close(done)
	}()
	var wg sync.WaitGroup
	var offered [100]atomic.Int64
	for g := range 4 {
		wg.Go(func() {
			for i := range 20000 {
				k := (i*7 + g) % 100
				if _, _, ok := q.Offer(k, 1, i%50 == 0); ok {
					offered[k].Add(1)
				}
			}
		})
	}
	wg.Wait()
	cancel()
	<-done
	for k := range offered {
		if got, want := f.sum[k], int(offered[k].Load()); got != want {
			t.Errorf("key %d: flushed %d, offered %d", k, got, want)
		}
	}
}

func TestOfferAllocatesNothing(t *testing.T) {
	q := newQueue(t, async.QueueOptions[int, int]{})
	k := 0
	if n := testing.AllocsPerRun(5000, func() {
		q.Offer(k%2000, 1, k%10 == 0)
		k++
	}); n != 0 {
		t.Errorf("Offer allocates %v times, want 0", n)
	}
}

func BenchmarkOffer(b *testing.B) {
	for _, keys := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			q := newQueue(b, async.QueueOptions[int, int]{})
			ctx, cancel := context.WithCancel(b.Context())
			var wg sync.WaitGroup
			wg.Go(func() { drain(ctx, q, func([]async.Item[int, int]) {}) })
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					q.Offer(i%keys, 1, false)
				}
			})
			cancel()
			wg.Wait()
		})
	}
}

// Flush flushes everything immediately, however often it is called.
func TestFlush(t *testing.T) {
	q := newQueue(t, async.QueueOptions[int, int]{Interval: time.Hour})
	f := &flushes{start: time.Now()}
	q.Offer(1, 1, false)
	q.Offer(2, 1, true)
	q.Offer(1, 1, false)
	q.Flush(f.flush)
	q.Flush(f.flush)
	if diff := gocmp.Diff(map[int]int{1: 2, 2: 1}, f.sum); diff != "" || q.Len() != 0 {
		t.Errorf("flushed (-want +got):\n%s%d are left", diff, q.Len())
	}
	q.Offer(1, 5, false)
	q.Flush(f.flush)
	if f.sum[1] != 7 {
		t.Errorf("flushed %d of key 1 after another offer, want 7", f.sum[1])
	}
}

// Keys with the same hash, few or many, leave nothing behind after a flush.
func TestFlushedKeysLeaveNothingBehind(t *testing.T) {
	q := newQueue(t, async.QueueOptions[int, int]{Hash: func(int) uint64 { return 7 }, Capacity: 16 * 256})
	for _, n := range []int{3, 200, 5, 1} {
		for range 2 { // the queue swaps two tables
			for k := range n {
				for range 2 {
					q.Offer(k, 1, false)
				}
			}
			var f flushes
			q.Flush(f.flush)
			if len(f.log) != n || f.sum[n-1] != 2 {
				t.Errorf("flushed %d keys, the last one %d times; want %d keys, 2 times", len(f.log), f.sum[n-1], n)
			}
		}
	}
}
